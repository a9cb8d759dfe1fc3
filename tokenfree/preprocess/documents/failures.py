"""Failed pages: kept with reason and raw text in `failures/part-*.jsonl`, and tried again by `replay`."""

from __future__ import annotations

import contextlib
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.json_lines import json_lines
from tokenfree.preprocess.documents.extract import FailedPage

FOLDER = "failures"
PART_BYTES = 64 * 1024 * 1024
OPEN_FILES = 256


def write_failures(storage: Storage, name: str, failed: Iterable[tuple[FailedPage, str]]) -> tuple[int, str]:
    """Commit the failures of one input split with the names of their sources, sorted; their number, and the SHA-256 of
    the file. No file without any.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    lines = sorted(_line(page, source) for page, source in failed)
    return len(lines), storage.write_bytes(name, b"".join(lines)).sha256 if lines else ""


def first_failure(storage: Storage, name: str) -> str:
    """Id of the first failure in a file that `write_failures` made."""
    with storage.open(name) as lines:
        return json.loads(lines.readline())["id"]


def collect_failures(storage: Storage, names: Sequence[str], scratch: str) -> int:
    """Merge the failures of all splits into parts of bounded size, in an order that splits do not change; the parts.

    `scratch` is a folder for intermediate files, needed when more files are to be merged than may be open at once.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    storage.remove(FOLDER)
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
            with storage.new_file(f"{FOLDER}/part-{parts:05}.jsonl") as new, open(new.path, "wb") as part:
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
    """The rows of all parts: id, reason, source, text, and the page without these where one was found."""
    for name in storage.names(FOLDER):
        if name.startswith("part-"):
            with storage.open(f"{FOLDER}/{name}") as part:
                yield from json_lines(part)


def _line(failed: FailedPage, source: str) -> bytes:
    page = None
    if failed.page is not None:
        page = {name: value for name, value in vars(failed.page).items() if name not in ("id", "text")}
        page["site"] = failed.page.site.to_dict() if failed.page.site else None
    failure = failed.failure
    row = {"id": failure.id, "reason": failure.reason, "source": source, "text": failure.text, "page": page}
    # Lone surrogates of undecodable input become escapes; JSON has no other way to hold them.
    return (json.dumps(row, ensure_ascii=failure.text.isascii() or not _encodes(failure.text)) + "\n").encode()


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
