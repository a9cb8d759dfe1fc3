"""Sorted runs: the documents of one input split in the order of their keys, each run with its sidecar.

A split is one run where it has the size that was planned. One that cannot be cut before it is read, such as a dump in a
single gz stream, becomes as many as it fills.

A run is an Arrow IPC stream of small batches, none of which crosses a border of drawn splits or of languages. The
sidecar, which commits it, says where each batch lies and between which keys, so that a shard fetches only the bytes
that it needs, on any file system.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import checked, hash_of, read_sealed, write_sealed
from tokenfree.preprocess.records import KEY_BYTES, Document, document_key

KEY_SPACE = 2**64  # of the first eight bytes of a key, by which shards divide it
TRAIN, VALIDATION = "train", "validation"
DATASET_SPLITS = (TRAIN, VALIDATION)
KeyRange = tuple[int, int]  # positions from the first one up to, but without, the second


class Partition(NamedTuple):
    """The documents that share their shards: those of one dataset split and language."""

    dataset_split: str
    language: str


def key_position(key: bytes) -> int:
    """Where a key lies in `range(KEY_SPACE)`: decides the shard."""
    return int.from_bytes(key[:8], "big")


def validation_draw(key: bytes) -> int:
    """The last eight bytes of a key as a number under 2**64: decides between train and validation."""
    return int.from_bytes(key[8:], "big")


@dataclass(frozen=True)
class Partitioning:
    """To which dataset split each document belongs: by its text alone, so that no text is in two splits.

    Validation gets about `validation_fraction` of all texts. A tiny corpus may leave a split empty by that; then what
    lies at the position `moved` of the key space, which is one text, belongs to `moved_to` instead.
    """

    validation_fraction: float
    moved: int | None = None
    moved_to: str = ""

    def drawn_split(self, key: bytes) -> str:
        """The dataset split that a key draws, the one exception left aside. Batches of sorted runs are told by it."""
        return VALIDATION if validation_draw(key) < self.validation_fraction * 2.0**64 else TRAIN

    def dataset_split(self, key: bytes) -> str:
        """The dataset split of the document with this key."""
        return self.moved_to if key_position(key) == self.moved else self.drawn_split(key)

    def ranges(self, dataset_split: str, drawn_split: str) -> tuple[KeyRange, ...]:
        """Where the documents of `dataset_split` lie among those that drew `drawn_split`: ascending ranges, or none."""
        if self.moved is None or drawn_split == self.moved_to:
            return ((0, KEY_SPACE),) if drawn_split == dataset_split else ()
        if dataset_split == self.moved_to:
            return ((self.moved, self.moved + 1),)
        return clipped(((0, self.moved), (self.moved + 1, KEY_SPACE)), 0, KEY_SPACE)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Partitioning:
        """The rule that `to_json` described."""
        return cls(**values)


def clipped(ranges: Iterable[KeyRange], low: int, high: int) -> tuple[KeyRange, ...]:
    """The parts of `ranges` from `low` up to, but without, `high`; empty ones are left out."""
    parts = ((max(first, low), min(end, high)) for first, end in ranges)
    return tuple((first, end) for first, end in parts if first < end)


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
