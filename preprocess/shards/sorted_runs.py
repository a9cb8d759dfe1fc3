"""Runs: the documents of one input split, sorted by (dataset split, language, key, id), and the sidecar of each.

A run is an Arrow IPC stream of small batches, none of which crosses a (dataset split, language) border. The sidecar,
which commits it, says where each batch lies and between which keys, so that a shard fetches only the bytes that it
needs, on any file system.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from preprocess.document import KEY_BYTES, Document, document_key
from preprocess.storage import Storage

RUN_SCHEMA = pa.schema(
    [
        ("key", pa.binary(KEY_BYTES)),
        ("id", pa.string()),
        ("language", pa.string()),
        ("title", pa.string()),
        ("text", pa.large_string()),
    ]
)
BATCH_ROWS = 1000
BATCH_CHARACTERS = 200_000
KEY_SPACE = 2**64  # of the first eight bytes of a key, by which shards divide it


@dataclass(frozen=True)
class RunBatch:
    """Where one batch of a run lies: bytes [start, end) of file `run`, keys `first` to `last` (hex, both inclusive)."""

    run: str
    split: str
    language: str
    rows: int
    characters: int
    first: str
    last: str
    start: int
    end: int


@dataclass(frozen=True)
class RunFile:
    """The sorted documents of a split: `lowest` and `highest` are the keys (hex) with the extreme validation draws."""

    bytes: int = 0
    lowest: str = ""
    highest: str = ""
    batches: tuple[RunBatch, ...] = ()


@dataclass(frozen=True)
class Run:
    """A committed run (its sidecar): the counters of its pages, how many failed pages stand in the file beside it."""

    name: str
    fingerprint: str
    input_bytes: int
    counters: dict[str, Any]
    failures: int
    file: RunFile

    @property
    def characters(self) -> int:
        """Of clean text, duplicates included."""
        return sum(batch.characters for batch in self.file.batches)


def position(key: bytes) -> int:
    """Where a key lies in `range(KEY_SPACE)`: decides the shard."""
    return int.from_bytes(key[:8], "big")


def validation_draw(key: bytes) -> int:
    """The last eight bytes of a key as a number under 2**64: decides between train and validation."""
    return int.from_bytes(key[8:], "big")


def dataset_split(key: bytes, validation_fraction: float) -> str:
    """`validation` for about that fraction of all texts, by their content alone."""
    return "validation" if validation_draw(key) < validation_fraction * 2.0**64 else "train"


def run_name(split_json: str) -> str:
    """The file name of the run of an input split, without ending."""
    return hashlib.blake2b(split_json.encode(), digest_size=16).hexdigest()


def find_run(storage: Storage, folder: str, name: str, fingerprint: str) -> Run | None:
    """The run if it was committed for this input and config and is whole, else None."""
    sidecar = storage.read_json(f"{folder}/{name}.json")
    if sidecar is None or sidecar.get("fingerprint") != fingerprint:
        return None
    file = sidecar.pop("file")
    batches = tuple(RunBatch(**batch) for batch in file.pop("batches"))
    run = Run(**sidecar, file=RunFile(**file, batches=batches))
    whole = not batches or storage.size(f"{folder}/{name}.arrow") == run.file.bytes
    return run if whole else None


def commit_run(storage: Storage, folder: str, run: Run) -> None:
    """Write the sidecar, which makes the run valid."""
    storage.write_bytes(f"{folder}/{run.name}.json", json.dumps(asdict(run)).encode())


def write_documents(
    storage: Storage, folder: str, name: str, documents: Iterable[Document], validation_fraction: float
) -> RunFile:
    """Sort `documents` and commit them as a run file; no file is made without documents."""
    rows = []
    for document in documents:
        key = document_key(document.text)
        rows.append((dataset_split(key, validation_fraction), document.language, key, document))
    if not rows:
        return RunFile()
    rows.sort(key=lambda row: (*row[:3], row[3].id, row[3].title))
    batches = []
    with storage.new_file(f"{folder}/{name}.arrow") as new:
        sink = pa.OSFile(new.path, "wb")
        with sink, pa.ipc.new_stream(sink, RUN_SCHEMA) as writer:
            for split, language, group in _groups(rows):
                batch = _batch(group)
                writer.write_batch(batch)
                end = sink.tell()  # a tell before the first batch would be that of the schema
                batches.append(
                    RunBatch(
                        run=f"{folder}/{name}.arrow",
                        split=split,
                        language=language,
                        rows=len(group),
                        characters=sum(len(document.text) for _, document in group),
                        first=group[0][0].hex(),
                        last=group[-1][0].hex(),
                        start=end - pa.ipc.get_record_batch_size(batch),
                        end=end,
                    )
                )
    draws = [(validation_draw(key), key) for _, _, key, _ in rows]
    return RunFile(new.size, min(draws)[1].hex(), max(draws)[1].hex(), tuple(batches))


def read_batch(buffer: pa.Buffer) -> pa.RecordBatch:
    """The batch in the bytes that a `RunBatch` names."""
    return pa.ipc.read_record_batch(pa.ipc.read_message(buffer), RUN_SCHEMA)


def _groups(rows: list[tuple[str, str, bytes, Document]]) -> Iterator[tuple[str, str, list[tuple[bytes, Document]]]]:
    group: list[tuple[bytes, Document]] = []
    place, characters = ("", ""), 0
    for split, language, key, document in rows:
        full = len(group) >= BATCH_ROWS or characters + len(document.text) > BATCH_CHARACTERS
        if group and (full or (split, language) != place):
            yield *place, group
            group, characters = [], 0
        place = (split, language)
        group.append((key, document))
        characters += len(document.text)
    if group:
        yield *place, group


def _batch(group: list[tuple[bytes, Document]]) -> pa.RecordBatch:
    columns: list[list[Any]] = [[key for key, _ in group]]
    columns += [[getattr(document, name) for _, document in group] for name in RUN_SCHEMA.names[1:]]
    return pa.record_batch(
        [pa.array(values, field.type) for values, field in zip(columns, RUN_SCHEMA, strict=True)], schema=RUN_SCHEMA
    )
