"""Files of failed and of dropped pages: written per run, merged at the end; failures are read by `tokenfree replay`."""

import contextlib
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tokenfree.core.files import is_utf8
from tokenfree.core.storage import Storage
from tokenfree.preprocess.documents.extract import DroppedPage, FailedPage

FOLDER = "failures"
DROPPED_FOLDER = "dropped"
PART_BYTES = 64 * 1024 * 1024
OPEN_FILES = 256


def write_failures(
    storage: Storage, name: str, failed: Iterable[tuple[FailedPage | DroppedPage, str]]
) -> str:
    """Commit the failed or dropped pages of one input split, sorted, and return the file's SHA-256.

    Raises UserError if the directory cannot be written to.
    """
    return storage.write_bytes(name, b"".join(sorted(_line(page, source) for page, source in failed))).sha256


def first_failure(storage: Storage, name: str) -> str:
    with storage.open(name) as lines:
        return json.loads(lines.readline())["id"]


def collect_failures(storage: Storage, names: Sequence[str], scratch: str, folder: str = FOLDER) -> int:
    """Merge the failures of all splits into parts of bounded size in `folder`, and return the number of parts.

    Splits do not affect the order. `scratch` is a folder for intermediate files. Raises UserError if the
    directory cannot be written to.
    """
    storage.remove(folder)
    waiting = list(names)
    rounds = 0
    while len(waiting) > OPEN_FILES:
        merged = f"{scratch}/merged-{rounds:05}.jsonl"
        with (
            _merged(storage, waiting[:OPEN_FILES]) as lines,
            storage.new_file(merged) as new,
            open(new.path, "wb") as out,
        ):
            out.writelines(lines)
        waiting = [*waiting[OPEN_FILES:], merged]
        rounds += 1
    parts = 0
    with _merged(storage, waiting) as lines:
        line = next(lines, None)
        while line is not None:
            with storage.new_file(f"{folder}/part-{parts:05}.jsonl") as new, open(new.path, "wb") as part:
                while line is not None and part.tell() < PART_BYTES:
                    part.write(line)
                    line = next(lines, None)
            parts += 1
    return parts


@contextlib.contextmanager
def _merged(storage: Storage, names: Sequence[str]) -> Iterator[Iterator[bytes]]:
    with contextlib.ExitStack() as stack:
        yield heapq.merge(*[stack.enter_context(storage.open(name)) for name in names])


def read_failures(storage: Storage) -> Iterator[dict[str, Any]]:
    """Yield the rows of all parts: id, reason, source, text, and the rest of the page if one was found."""
    for name in storage.names(FOLDER):
        if name.startswith("part-"):
            with storage.open(f"{FOLDER}/{name}") as part:
                yield from map(json.loads, part)


def _line(failed: FailedPage | DroppedPage, source: str) -> bytes:
    page = None
    if failed.page is not None:
        page = {name: value for name, value in asdict(failed.page).items() if name not in ("id", "text")}
    failure = failed.failure
    row = {"id": failure.id, "reason": failure.reason, "source": source, "text": failure.text, "page": page}
    # Lone surrogates of undecodable input become escapes, because JSON cannot hold them otherwise.
    return (json.dumps(row, ensure_ascii=failure.text.isascii() or not is_utf8(failure.text)) + "\n").encode()
