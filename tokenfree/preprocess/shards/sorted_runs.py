"""Sorted runs: the documents of one input split in the order of their keys, each run with its sidecar.

An input that cannot be cut before it is read, such as a dump in one gz stream, becomes several runs. The file
of a run holds small Arrow record batches, each of one drawn split and one language, as IPC messages, and
behind them an index with the byte range, checksum, first and last key of each batch, so that a shard fetches
only the bytes that it needs. The sidecar, which commits the run, says where the index of each split and
language lies.
"""

import hashlib
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import hash_of, sealed_record, write_sealed
from tokenfree.preprocess.documents.near_duplicates import key_halves
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


# Of a batch: its first and last key as halves, its bytes [start, end) in the file, and their CRC-32.
INDEX = np.dtype(
    [("first", "<u8", 2), ("last", "<u8", 2), ("start", "<u8"), ("end", "<u8"), ("crc32", "<u4")]
)


@dataclass(frozen=True)
class SortedPart:
    """The documents of one drawn split and language in a sorted file.

    `first` and `last` are keys (hex, both inclusive). The index of the batches, of type `INDEX`, are the
    bytes [start, end) of the file, and `crc32` is of these bytes.
    """

    drawn_split: str
    language: str
    documents: int
    characters: int
    first: str
    last: str
    start: int
    end: int
    crc32: int

    @property
    def positions(self) -> tuple[int, int]:
        return int(self.first[:16], 16), int(self.last[:16], 16)

    def overlaps(self, low: int, high: int) -> bool:
        """Return True if keys may lie at positions from `low` up to, but excluding, `high`."""
        first, last = self.positions
        return first < high and last >= low


@dataclass(frozen=True)
class SortedFile:
    """A file of documents in the order of their drawn split, language and key.

    `path` is empty without documents.
    """

    path: str = ""
    bytes: int = 0
    parts: tuple[SortedPart, ...] = ()
    sha256: str = ""


@dataclass(frozen=True)
class SortedRun:
    """A committed run, as its sidecar describes it.

    `input_bytes` is approximate, after decompression. `lowest` and `highest` are the keys (hex) with the
    lowest and the highest draw, or empty without documents. `first_page` is a number in the split, which ends
    with this run if it is the `last`. `beside` has the SHA-256 of each file next to the run's own, by the end
    of the file's name.
    """

    name: str
    fingerprint: str
    input_bytes: int
    counters: dict[str, Any]
    failures: int
    file: SortedFile
    lowest: str = ""
    highest: str = ""
    first_page: int = 0
    last: bool = True
    beside: dict[str, str] = field(default_factory=dict)


def runs_name(split_json: str) -> str:
    """Return the beginning of the names of all runs of an input split (its line of JSON)."""
    return hashlib.blake2b(split_json.encode(), digest_size=16).hexdigest()


def run_name(runs: str, number: int) -> str:
    return f"{runs}-{number:05}"


def split_of_run(run: str) -> str:
    return run.rpartition("-")[0]


def find_run(
    storage: Storage, folder: str, name: str, fingerprint: str, *, read: bool = True, merged: bool = False
) -> SortedRun | None:
    """Return the run if it was committed for this input and config and its files exist (`read`: and are whole).

    `merged` runs have no documents of their own any more.
    """
    run = sealed_record(SortedRun, storage, f"{folder}/{name}.json")
    if run is None or (run.name, run.fingerprint) != (name, fingerprint):
        return None
    files = {f"{folder}/{name}{ending}": sha256 for ending, sha256 in run.beside.items()}
    if run.file.path and not merged:
        files[run.file.path] = run.file.sha256
    if read:
        whole = all(hash_of(storage, file) == sha256 for file, sha256 in files.items())
    else:
        whole = all(
            storage.size(file) == run.file.bytes if file == run.file.path else storage.size(file) is not None
            for file in files
        )
    return run if whole else None


def commit_run(storage: Storage, folder: str, run: SortedRun) -> None:
    """Write the sidecar, which makes the run valid.

    Raises UserError if the directory cannot be written to.
    """
    write_sealed(storage, f"{folder}/{run.name}.json", asdict(run))


def write_documents(
    storage: Storage, path: str, documents: Iterable[Document], validation_fraction: float
) -> tuple[SortedFile, str, str]:
    """Sort `documents` and commit them as a file. Return it, and the keys (hex) with the lowest and highest draw.

    Without documents, no file is written.
    """
    rule = Partitioning(validation_fraction)
    rows: list[_Row] = sorted(
        (Partition(rule.drawn_split(key), document.language), key, document.id, document.title, document.text)
        for key, document in ((document_key(document.text), document) for document in documents)
    )
    if not rows:
        return SortedFile(), "", ""
    batches = (
        (partition, _batch(group, partition.language))
        for partition, part in groupby(rows, key=itemgetter(0))
        for group in grouped(part, lambda row: len(row[-1]), BATCH_ROWS, BATCH_CHARACTERS)
    )
    draws = [(validation_draw(row[1]), row[1]) for row in rows]
    return write_batches(storage, path, batches), min(draws)[1].hex(), max(draws)[1].hex()


def write_batches(
    storage: Storage, path: str, batches: Iterable[tuple[Partition, pa.RecordBatch]]
) -> SortedFile:
    """Commit batches of `SORTED_RUN_SCHEMA`, sorted by partition and key, and behind them an index of each part."""
    entries: dict[Partition, list[tuple[Any, ...]]] = defaultdict(list)
    documents, characters = Counter[Partition](), Counter[Partition]()
    parts = []
    with storage.new_file(path) as new, open(new.path, "wb") as sink:
        for partition, batch in batches:
            start, data, keys = sink.tell(), batch.serialize(), key_halves(batch["key"])
            sink.write(data)
            entries[partition].append((keys[0], keys[-1], start, sink.tell(), zlib.crc32(data)))
            documents[partition] += batch.num_rows
            lengths = pc.utf8_length(batch["text"])  # pyright: ignore[reportAttributeAccessIssue]
            characters[partition] += int(lengths.to_numpy().sum())
        for partition in entries:
            index = np.array(entries[partition], INDEX)
            start, data = sink.tell(), index.tobytes()
            sink.write(data)
            parts.append(
                SortedPart(
                    *partition,
                    documents=documents[partition],
                    characters=characters[partition],
                    first=index["first"][0].astype(">u8").tobytes().hex(),
                    last=index["last"][-1].astype(">u8").tobytes().hex(),
                    start=start,
                    end=sink.tell(),
                    crc32=zlib.crc32(data),
                )
            )
    return SortedFile(path, new.size, tuple(parts), new.sha256)


def read_batch(buffer: pa.Buffer) -> pa.RecordBatch:
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
