"""Sorted runs: the documents of one input split in the order of their keys, each run with its sidecar.

An input that cannot be cut before it is read, such as a dump in one gz stream, becomes several runs. A run is
an Arrow IPC stream of small batches, each of one drawn split and one language. The sidecar, which commits the
run, lists the byte range and the first and last key of each batch, so that a shard fetches only the bytes
that it needs.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import hash_of, sealed_record, write_sealed
from tokenfree.preprocess.records import KEY_BYTES, Document, document_key

# Values of the first eight bytes of a key, which shards divide among them.
KEY_SPACE = 2**64
TRAIN, VALIDATION = "train", "validation"
DATASET_SPLITS = (TRAIN, VALIDATION)
KeyRange = tuple[int, int]  # positions from the first up to, but excluding, the second


class Partition(NamedTuple):
    """The documents of one dataset split and language, which share their shards."""

    dataset_split: str
    language: str


def key_position(key: bytes) -> int:
    """Return the position of a key in `range(KEY_SPACE)`, which decides its shard."""
    return int.from_bytes(key[:8], "big")


def validation_draw(key: bytes) -> int:
    """Return the last eight bytes of a key as a number below 2**64, which decides between train and validation."""
    return int.from_bytes(key[8:], "big")


@dataclass(frozen=True)
class Partitioning:
    """The rule that assigns each document to a dataset split by its text alone, so that no text is in two splits.

    Validation gets about `validation_fraction` of all texts. In a tiny corpus this may leave a split empty.
    Then the one text at the position `moved` of the key space belongs to `moved_to` instead.
    """

    validation_fraction: float
    moved: int | None = None
    moved_to: str = ""

    def drawn_split(self, key: bytes) -> str:
        """Return the dataset split that a key draws, without the exception.

        Batches of runs are divided by it.
        """
        return VALIDATION if validation_draw(key) < self.validation_fraction * 2.0**64 else TRAIN

    def dataset_split(self, key: bytes) -> str:
        return self.moved_to if key_position(key) == self.moved else self.drawn_split(key)

    def ranges(self, dataset_split: str, drawn_split: str) -> tuple[KeyRange, ...]:
        """Return the ascending ranges of `dataset_split` among documents that drew `drawn_split`; there may be none."""
        if self.moved is None or drawn_split == self.moved_to:
            return ((0, KEY_SPACE),) if drawn_split == dataset_split else ()
        if dataset_split == self.moved_to:
            return ((self.moved, self.moved + 1),)
        return clipped(((0, self.moved), (self.moved + 1, KEY_SPACE)), 0, KEY_SPACE)


def clipped(ranges: Iterable[KeyRange], low: int, high: int) -> tuple[KeyRange, ...]:
    """Return the non-empty parts of `ranges` from `low` up to, but excluding, `high`."""
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
_Row = tuple[Partition, bytes, str, str, str]  # of a document: key, id, title and text


@dataclass(frozen=True)
class SortedRunBatch:
    """The place of a batch: bytes [start, end) of the file `run`, keys `first` to `last` (hex, both inclusive)."""

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
    """The file of a run. `lowest` and `highest` are the keys (hex) with the lowest and the highest draw."""

    bytes: int = 0
    lowest: str = ""
    highest: str = ""
    batches: tuple[SortedRunBatch, ...] = ()
    sha256: str = ""


@dataclass(frozen=True)
class SortedRun:
    """A committed run, as its sidecar describes it.

    `input_bytes` is approximate, after decompression. `first_page` is a number in the split, which ends with
    this run if it is the `last`. `beside` has the SHA-256 of each file next to the run's own, by the end of
    the file's name.
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
        """Characters of clean text, including duplicates."""
        return sum(batch.characters for batch in self.file.batches)


def runs_name(split_json: str) -> str:
    """Return the beginning of the names of all runs of an input split (its line of JSON)."""
    return hashlib.blake2b(split_json.encode(), digest_size=16).hexdigest()


def run_name(runs: str, number: int) -> str:
    """Return the file name, without ending, of the run with this number (from 0) of the split with this `runs_name`."""
    return f"{runs}-{number:05}"


def split_of_run(run: str) -> str:
    """Return the `runs_name` of the split to which the run with this `run_name` belongs."""
    return run.rpartition("-")[0]


def find_run(
    storage: Storage, folder: str, name: str, fingerprint: str, *, read: bool = True
) -> SortedRun | None:
    """Return the run if it was committed for this input and config and its files exist (`read`: and are whole)."""
    run = sealed_record(SortedRun, storage, f"{folder}/{name}.json")
    if run is None or (run.name, run.fingerprint) != (name, fingerprint):
        return None
    if read:
        files = {**run.beside, DOCUMENTS: run.file.sha256} if run.file.batches else run.beside
        whole = all(
            hash_of(storage, f"{folder}/{name}{ending}") == sha256 for ending, sha256 in files.items()
        )
    else:
        whole = all(storage.size(f"{folder}/{name}{ending}") is not None for ending in run.beside)
        whole &= not run.file.batches or storage.size(f"{folder}/{name}{DOCUMENTS}") == run.file.bytes
    return run if whole else None


def commit_run(storage: Storage, folder: str, run: SortedRun) -> None:
    """Write the sidecar, which makes the run valid.

    Raises UserError if the directory cannot be written to.
    """
    write_sealed(storage, f"{folder}/{run.name}.json", asdict(run))


def write_documents(
    storage: Storage, folder: str, name: str, documents: Iterable[Document], validation_fraction: float
) -> SortedRunFile:
    """Sort `documents` and commit them as a run file. Without documents, no file is written."""
    rule = Partitioning(validation_fraction)
    rows: list[_Row] = []
    for document in documents:
        key = document_key(document.text)
        partition = Partition(rule.drawn_split(key), document.language)
        rows.append((partition, key, document.id, document.title, document.text))
    if not rows:
        return SortedRunFile()
    rows.sort()
    batches = []
    with storage.new_file(f"{folder}/{name}.arrow") as new:
        sink = pa.OSFile(new.path, "wb")
        with sink, pa.ipc.new_stream(sink, SORTED_RUN_SCHEMA) as writer:
            groups = (
                (partition, group)
                for partition, part in groupby(rows, key=itemgetter(0))
                for group in grouped(part, lambda row: len(row[-1]), BATCH_ROWS, BATCH_CHARACTERS)
            )
            for partition, group in groups:
                batch = _batch(group, partition.language)
                writer.write_batch(batch)
                # Before the first batch, the position would be that of the schema.
                end = sink.tell()
                batches.append(
                    SortedRunBatch(
                        run=f"{folder}/{name}.arrow",
                        drawn_split=partition.dataset_split,
                        language=partition.language,
                        rows=len(group),
                        characters=sum(len(row[-1]) for row in group),
                        first=group[0][1].hex(),
                        last=group[-1][1].hex(),
                        start=end - pa.ipc.get_record_batch_size(batch),
                        end=end,
                    )
                )
    draws = [(validation_draw(row[1]), row[1]) for row in rows]
    return SortedRunFile(new.size, min(draws)[1].hex(), max(draws)[1].hex(), tuple(batches), new.sha256)


def read_batch(buffer: pa.Buffer) -> pa.RecordBatch:
    """Return the batch, of `SORTED_RUN_SCHEMA`, in the bytes that a `SortedRunBatch` names, without a copy."""
    return pa.ipc.read_record_batch(pa.ipc.read_message(buffer), SORTED_RUN_SCHEMA)


T = TypeVar("T")


def grouped(items: Iterable[T], size: Callable[[T], int], max_items: int, max_size: int) -> Iterator[list[T]]:
    """Yield lists of at most `max_items` items and a total size of `max_size`; a larger item is alone in its list."""
    group: list[T] = []
    total = 0
    for item in items:
        if group and (len(group) >= max_items or total + size(item) > max_size):
            yield group
            group, total = [], 0
        group.append(item)
        total += size(item)
    if group:
        yield group


def _batch(group: list[_Row], language: str) -> pa.RecordBatch:
    _, keys, ids, titles, texts = zip(*group, strict=True)
    columns = (keys, ids, [language] * len(group), titles, texts)
    return pa.record_batch(
        [pa.array(values, field.type) for values, field in zip(columns, SORTED_RUN_SCHEMA, strict=True)],
        schema=SORTED_RUN_SCHEMA,
    )
