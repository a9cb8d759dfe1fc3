"""Sorted runs: documents of one input split, sorted by (drawn split, language, key, id), each run with its sidecar.

A split is one run where it has the size that was planned. One that cannot be cut before it is read, such as a dump in a
single gz stream, becomes as many as it fills.

A run is an Arrow IPC stream of small batches, none of which crosses a border of drawn splits or of languages. The
sidecar, which commits it, says where each batch lies and between which keys, so that a shard fetches only the bytes
that it needs, on any file system.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.file_hashes import hash_of, read_sealed, write_sealed
from tokenfree.preprocess.common.stored.stored_files import checked
from tokenfree.preprocess.records.document import KEY_BYTES, Document, document_key
from tokenfree.preprocess.shards.partitioning import Partition, Partitioning, validation_draw

SORTED_RUN_SCHEMA = pa.schema(
    [
        ("key", pa.binary(KEY_BYTES)),
        ("id", pa.string()),
        ("language", pa.string()),
        ("title", pa.string()),
        ("text", pa.large_string()),
    ]
)
DOCUMENTS = ".arrow"  # the end of the name of a run's own file
BATCH_ROWS = 1000
BATCH_CHARACTERS = 200_000
_Row = tuple[Partition, bytes, Document]  # with the key of the document


@dataclass(frozen=True)
class SortedRunBatch:
    """Where one batch of a run lies: bytes [start, end) of file `run`, keys `first` to `last` (hex, both inclusive).

    `drawn_split` is the dataset split that its keys draw (see `Partitioning`).
    """

    run: str
    drawn_split: str
    language: str
    rows: int
    characters: int
    first: str
    last: str
    start: int
    end: int


@dataclass(frozen=True)
class SortedRunFile:
    """The sorted documents of a run: `lowest` and `highest` are the keys (hex) with the extreme draws, `sha256` is that
    of the file."""

    bytes: int = 0
    lowest: str = ""
    highest: str = ""
    batches: tuple[SortedRunBatch, ...] = ()
    sha256: str = ""


@dataclass(frozen=True)
class SortedRun:
    """A committed run, as its sidecar tells of it.

    `input_bytes` are about those of its pages after decompression, `counters` count them, and `failures` says how many
    failed pages stand in the file beside it. The run begins with page number `first_page` of its split; with the one
    that is `last` the split is read. `beside` has the SHA-256 of each file beside its own, by the end of its name.
    """

    name: str
    fingerprint: str
    input_bytes: int
    counters: dict[str, Any]
    failures: int
    file: SortedRunFile
    first_page: int = 0
    last: bool = True
    beside: dict[str, str] = field(default_factory=dict)

    @property
    def characters(self) -> int:
        """Of clean text, duplicates included."""
        return sum(batch.characters for batch in self.file.batches)


def runs_name(split_json: str) -> str:
    """What the names of all runs of an input split (its line of JSON) begin with."""
    return hashlib.blake2b(split_json.encode(), digest_size=16).hexdigest()


def run_name(runs: str, number: int) -> str:
    """The file name, without ending, of the run with this number, from 0 on, of the split whose `runs_name` it is."""
    return f"{runs}-{number:05}"


def split_of_run(run: str) -> str:
    """The `runs_name` of the split to which the run with this `run_name` belongs."""
    return run.rpartition("-")[0]


def find_run(storage: Storage, folder: str, name: str, fingerprint: str, *, read: bool = True) -> SortedRun | None:
    """The run if it was committed for this input and config and its files are what was written, else None; without
    `read`, if they are there.
    """
    run = load_run(storage, folder, name)
    if run is None or run.fingerprint != fingerprint:
        return None
    return run if (is_whole if read else _is_there)(storage, folder, run) else None


def is_whole(storage: Storage, folder: str, run: SortedRun) -> bool:
    """Whether the files of a run are what was written; all of them are read."""
    endings = {**run.beside, DOCUMENTS: run.file.sha256} if run.file.batches else run.beside
    return all(is_file_whole(storage, folder, run, ending, sha256) for ending, sha256 in endings.items())


def _is_there(storage: Storage, folder: str, run: SortedRun) -> bool:
    """Whether a run has its files; none of them is read."""
    sizes = {ending: storage.size(f"{folder}/{run.name}{ending}") for ending in run.beside}
    documents = not run.file.batches or storage.size(f"{folder}/{run.name}{DOCUMENTS}") == run.file.bytes
    return documents and None not in sizes.values()


def is_file_whole(storage: Storage, folder: str, run: SortedRun, ending: str, sha256: str | None = None) -> bool:
    """Whether one of the files of a run is what was written, by default as `beside` has it."""
    return hash_of(storage, f"{folder}/{run.name}{ending}") == (sha256 or run.beside.get(ending))


def load_run(storage: Storage, folder: str, name: str) -> SortedRun | None:
    """What the sidecar of a run tells; None where there is none, or it is damaged or another's: then the run is made
    again."""
    try:
        run: SortedRun = checked(SortedRun, read_sealed(storage, f"{folder}/{name}.json"))
    except ValueError:
        return None
    return run if run.name == name else None


def commit_run(storage: Storage, folder: str, run: SortedRun) -> None:
    """Write the sidecar, which makes the run valid.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    write_sealed(storage, f"{folder}/{run.name}.json", asdict(run))


def write_documents(
    storage: Storage, folder: str, name: str, documents: Iterable[Document], validation_fraction: float
) -> SortedRunFile:
    """Sort `documents` and commit them as a run file; no file is made without documents.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    rule = Partitioning(validation_fraction)
    rows: list[_Row] = []
    for document in documents:
        key = document_key(document.text)
        rows.append((Partition(rule.drawn_split(key), document.language), key, document))
    if not rows:
        return SortedRunFile()
    rows.sort(key=lambda row: (*row[:2], row[2].id, row[2].title))
    batches = []
    with storage.new_file(f"{folder}/{name}.arrow") as new:
        sink = pa.OSFile(new.path, "wb")
        with sink, pa.ipc.new_stream(sink, SORTED_RUN_SCHEMA) as writer:
            for partition, group in _groups(rows):
                batch = _batch(group)
                writer.write_batch(batch)
                end = sink.tell()  # a tell before the first batch would be that of the schema
                batches.append(
                    SortedRunBatch(
                        run=f"{folder}/{name}.arrow",
                        drawn_split=partition.dataset_split,
                        language=partition.language,
                        rows=len(group),
                        characters=sum(len(document.text) for _, document in group),
                        first=group[0][0].hex(),
                        last=group[-1][0].hex(),
                        start=end - pa.ipc.get_record_batch_size(batch),
                        end=end,
                    )
                )
    draws = [(validation_draw(key), key) for _, key, _ in rows]
    return SortedRunFile(new.size, min(draws)[1].hex(), max(draws)[1].hex(), tuple(batches), new.sha256)


def read_batch(buffer: pa.Buffer) -> pa.RecordBatch:
    """The batch, of `SORTED_RUN_SCHEMA`, in the bytes that a `SortedRunBatch` names; its values are not copied."""
    return pa.ipc.read_record_batch(pa.ipc.read_message(buffer), SORTED_RUN_SCHEMA)


def _groups(rows: list[_Row]) -> Iterator[tuple[Partition, list[tuple[bytes, Document]]]]:
    """The sorted rows, in order, in groups of one partition each and of bounded size."""
    group: list[tuple[bytes, Document]] = []
    current, characters = rows[0][0], 0
    for partition, key, document in rows:
        full = len(group) >= BATCH_ROWS or characters + len(document.text) > BATCH_CHARACTERS
        if group and (full or partition != current):
            yield current, group
            group, characters = [], 0
        current = partition
        group.append((key, document))
        characters += len(document.text)
    yield current, group


def _batch(group: list[tuple[bytes, Document]]) -> pa.RecordBatch:
    columns: list[list[Any]] = [[key for key, _ in group]]
    columns += [[getattr(document, name) for _, document in group] for name in SORTED_RUN_SCHEMA.names[1:]]
    return pa.record_batch(
        [pa.array(values, field.type) for values, field in zip(columns, SORTED_RUN_SCHEMA, strict=True)],
        schema=SORTED_RUN_SCHEMA,
    )
