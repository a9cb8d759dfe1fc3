"""Failed pages: kept with reason and raw text in `failures/part-*.jsonl`, and tried again by `replay`."""

from __future__ import annotations

import contextlib
import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from preprocess.config import PreprocessConfig
from preprocess.document import Document
from preprocess.extract import FailedPage, document_of
from preprocess.manifest import load_manifest
from preprocess.settings import build
from preprocess.site import Site
from preprocess.sources import Page
from preprocess.storage import Storage

FOLDER = "failures"
REPLAYED = f"{FOLDER}/replayed.jsonl"
PART_BYTES = 64 * 1024 * 1024
OPEN_FILES = 256


@dataclass(frozen=True)
class ReplayResult:
    """What a replay found; `path` names the documents that came out, empty where none did."""

    tried: int
    documents: int
    still_failing: dict[str, int]
    path: str


def write_failures(storage: Storage, name: str, failed: Iterable[tuple[FailedPage, str]]) -> int:
    """Commit the failures of one split with the names of their sources, sorted; their number. No file without any."""
    lines = sorted(_line(page, source) for page, source in failed)
    if lines:
        storage.write_bytes(name, b"".join(lines))
    return len(lines)


def first_failure(storage: Storage, name: str) -> str:
    """Id of the first failure in a file that `write_failures` made."""
    with storage.open(name) as lines:
        return json.loads(lines.readline())["id"]


def collect_failures(storage: Storage, names: Sequence[str], scratch: str) -> int:
    """Merge the failures of all splits into parts of bounded size, in an order that splits do not change; the parts.

    `scratch` is a folder for intermediate files, needed when more files are to be merged than may be open at once.
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
    """The rows of all parts."""
    for name in storage.names(FOLDER):
        if name.startswith("part-"):
            with storage.open(f"{FOLDER}/{name}") as part:
                for line in part:
                    yield json.loads(line)


def replay(output: str) -> ReplayResult:
    """Clean the failed pages of a finished job again with the present code.

    A finished data directory never changes, so the documents that now come out are written beside the failures, as
    `failures/replayed.jsonl` with `id`, `language`, `title` and `text`: an input (`--books`) for another job. Input
    that was too damaged to hold a page (broken XML, undecodable bytes) stays a failure.

    Raises:
        UserError: `output` is no finished data directory.
    """
    config = build(PreprocessConfig, load_manifest(output).config, source=f"{output}/manifest.json")
    storage = Storage.at(output)
    if not storage.names(FOLDER):
        return ReplayResult(0, 0, {}, "")
    tried, documents, failing = 0, 0, Counter[str]()
    with storage.new_file(REPLAYED) as new, open(new.path, "w", encoding="utf-8") as file:
        for row in read_failures(storage):
            tried += 1
            made = _again(row, config)
            if isinstance(made, Document):
                documents += 1
                file.write(json.dumps(vars(made), ensure_ascii=False) + "\n")
            else:
                failing[made] += 1
    if not documents:
        storage.remove(REPLAYED)
    path = f"{storage.url}/{REPLAYED}" if documents else ""
    return ReplayResult(tried, documents, dict(sorted(failing.items())), path)


def _again(row: dict[str, Any], config: PreprocessConfig) -> Document | str:
    if row["page"] is None:
        return row["reason"]
    site = Site.from_dict(row["page"]["site"]) if row["page"]["site"] else None
    page = Page(**{**row["page"], "id": row["id"], "text": row["text"], "site": site})
    made = document_of(page, config.filters)
    if isinstance(made, Document):
        return made
    return made if isinstance(made, str) else made.reason


def _line(failed: FailedPage, source: str) -> bytes:
    page = None
    if failed.page is not None:
        page = {name: value for name, value in vars(failed.page).items() if name not in ("id", "text")}
        page["site"] = failed.page.site.to_dict() if failed.page.site else None
    failure = failed.failure
    row = {"id": failure.id, "reason": failure.reason, "source": source, "text": failure.text, "page": page}
    # Lone surrogates of undecodable input become escapes; JSON has no other place for them.
    return (json.dumps(row, ensure_ascii=failure.text.isascii() or not _encodes(failure.text)) + "\n").encode()


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
