"""Check a data directory: files, hashes and every row, without the code that wrote them."""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from tokenfree.core.errors import JobError
from tokenfree.core.files import AnyPath
from tokenfree.core.locks import LOCK
from tokenfree.core.settings import build
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import check_hash, read_sealed
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.completion import SUCCESS, content_fingerprint, reconcile
from tokenfree.preprocess.dataset.manifest import MANIFEST, MODEL, Manifest, ShardEntry, load_manifest
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.records import MAX_BATCH_ROWS, MAX_WINDOW_CHARACTERS, schema
from tokenfree.preprocess.text.characters import SPACE, byte_offsets, classes_of, codepoints_of
from tokenfree.preprocess.text.words import MAX_WORD_BYTES

Break = tuple[int, str]  # the row within the batch, and what is wrong with it


def check_windows(batch: pa.RecordBatch, vocabulary: Vocabulary | None = None) -> str | None:
    """Return what is wrong with the first invalid row, or None. Absent columns are not checked."""
    try:
        batch.validate(full=True)
        if not batch.schema.equals(schema(batch.schema.names)):
            return f"row 0: the columns are not those of schema version 1 (found: {', '.join(batch.schema.names)})"
    except (pa.ArrowInvalid, ValueError) as error:
        return f"row 0: {' '.join(str(error).split())}"
    nulls = [name for name in batch.schema.names if _has_nulls(batch[name])]
    if nulls:
        return f"row 0: {nulls[0]}: holds nulls"
    if "text" not in batch.schema.names or not batch.num_rows:
        return None
    rows = _Rows(batch)
    breaks = [
        *_text(rows),
        *_characters(rows),
        *_words(rows),
        *_subwords(rows, vocabulary),
        *_sentences(rows),
    ]
    if not breaks:
        return None
    row, message = min(breaks, key=itemgetter(0))
    return f"row {row}: {message}"


class _Rows:
    """A batch as flat arrays: `values(name)` concatenates all rows; `offsets(name)` and `row(name)` locate each."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        texts = batch["text"].to_pylist()
        self.codepoints = codepoints_of("".join(texts))
        self.whitespace = classes_of(self.codepoints) == SPACE
        self.num_characters = np.array([len(text) for text in texts])
        self.characters = np.concatenate([[0], np.cumsum(self.num_characters)])
        self.byte_positions = byte_offsets(self.codepoints)
        self.bytes = self.byte_positions[self.characters]

    def has(self, *names: str) -> bool:
        return set(names) <= set(self.batch.schema.names)

    def values(self, name: str) -> np.ndarray:
        values = self.batch[name].flatten().to_numpy(zero_copy_only=False)
        return values.astype(np.int64) if values.dtype != bool else values

    def offsets(self, name: str) -> np.ndarray:
        offsets = self.batch[name].offsets.to_numpy().astype(np.int64)
        return offsets - offsets[0]

    def row(self, name: str) -> np.ndarray:
        return np.repeat(np.arange(self.batch.num_rows), np.diff(self.offsets(name)))


def _has_nulls(column: pa.Array) -> bool:
    return bool(column.null_count or (pa.types.is_list(column.type) and column.flatten().null_count))


def _first(bad: np.ndarray, rows: np.ndarray, message: str) -> Iterator[Break]:
    if bad.any():
        yield int(rows[np.argmax(bad)]), message


def _differs_in_length(rows: _Rows, name: str, lengths: np.ndarray, than: str) -> Iterator[Break]:
    bad = np.diff(rows.offsets(name)) != lengths
    yield from _first(bad, np.arange(len(bad)), f"{name}: has not the length of {than}")


def _text(rows: _Rows) -> Iterator[Break]:
    number = np.arange(len(rows.num_characters))
    yield from _first(rows.num_characters == 0, number, "text: is empty")
    too_long = rows.num_characters > MAX_WINDOW_CHARACTERS
    yield from _first(too_long, number, f"text: is longer than {MAX_WINDOW_CHARACTERS} characters")


def _characters(rows: _Rows) -> Iterator[Break]:
    for name, truth in {"codepoints": rows.codepoints, "whitespace": rows.whitespace}.items():
        if not rows.has(name):
            continue
        broken = list(_differs_in_length(rows, name, rows.num_characters, "text"))
        yield from broken or _first(
            rows.values(name) != truth, rows.row(name), f"{name}: is not that of text"
        )


def _words(rows: _Rows) -> Iterator[Break]:
    names = ("word_starts", "word_ends")
    if not rows.has(*names):
        return
    broken = list(_differs_in_length(rows, "word_ends", np.diff(rows.offsets("word_starts")), "word_starts"))
    if broken:
        yield from broken
        return
    row = rows.row("word_starts")
    starts, ends = (rows.values(name) + rows.bytes[row] for name in names)
    outside = np.maximum(starts, ends) > rows.bytes[row + 1]
    yield from _first(outside, row, "word_ends: a word lies behind the text")
    yield from _first(starts >= ends, row, "word_ends: a word ends before it starts")
    yield from _first(
        ends - starts > MAX_WORD_BYTES, row, f"word_ends: a word of more than {MAX_WORD_BYTES} bytes"
    )
    follows = row[1:] == row[:-1]
    yield from _first(
        follows & (starts[1:] < ends[:-1]), row[1:], "word_starts: words overlap or are out of order"
    )
    if outside.any():
        return
    for name, positions in zip(names, (starts, ends), strict=True):
        nearest = rows.byte_positions[np.searchsorted(rows.byte_positions, positions)]
        yield from _first(nearest != positions, row, f"{name}: a word is cut inside a character")
    yield from _coverage(rows, starts, ends)


def _coverage(rows: _Rows, starts: np.ndarray, ends: np.ndarray) -> Iterator[Break]:
    depth = np.zeros(len(rows.codepoints) + 1, dtype=np.int64)
    np.add.at(depth, np.searchsorted(rows.byte_positions, starts), 1)
    np.add.at(depth, np.searchsorted(rows.byte_positions, ends), -1)
    covered = np.cumsum(depth)[:-1] > 0
    row = np.repeat(np.arange(len(rows.num_characters)), rows.num_characters)
    message = "word_starts: words do not cover exactly the characters that are not white space"
    yield from _first(covered == rows.whitespace, row, message)


def _subwords(rows: _Rows, vocabulary: Vocabulary | None) -> Iterator[Break]:
    if rows.has("subword_ids"):
        ids, size = rows.values("subword_ids"), vocabulary.size if vocabulary else np.inf
        message = "subword_ids: an id that the vocabulary does not have"
        yield from _first((ids < 0) | (ids >= size), rows.row("subword_ids"), message)
    names = ("subword_starts", "subword_ends")
    if not rows.has(*names):
        return
    counts = np.diff(rows.offsets("subword_starts"))
    broken = list(_differs_in_length(rows, "subword_ends", counts, "subword_starts"))
    if rows.has("subword_ids"):
        broken += _differs_in_length(rows, "subword_ids", counts, "subword_starts")
    if broken:
        yield from broken
        return
    row = rows.row("subword_starts")
    starts, ends = (rows.values(name) + rows.characters[row] for name in names)
    outside = np.maximum(starts, ends) > rows.characters[row + 1]
    yield from _first(outside, row, "subword_ends: a subword lies behind the text")
    yield from _first(starts >= ends, row, "subword_ends: a subword ends before it starts")
    # The bytes of one character share its span; all others are disjoint.
    apart = (starts[1:] >= ends[:-1]) | (
        (starts[1:] == starts[:-1]) & (ends[1:] == ends[:-1]) & (ends - starts == 1)[1:]
    )
    follows = row[1:] == row[:-1]
    yield from _first(follows & ~apart, row[1:], "subword_starts: subwords overlap or are out of order")
    if not outside.any() and not (starts >= ends).any():
        bare = rows.whitespace[starts] | rows.whitespace[ends - 1]
        yield from _first(bare, row, "subword_starts: a subword starts or ends with white space")


def _sentences(rows: _Rows) -> Iterator[Break]:
    if not rows.has("sentence_starts"):
        return
    starts, row, offsets = (
        rows.values("sentence_starts"),
        rows.row("sentence_starts"),
        rows.offsets("sentence_starts"),
    )
    counts = np.diff(offsets)
    yield from _first(counts == 0, np.arange(len(counts)), "sentence_starts: is empty")
    heads = offsets[:-1][counts > 0]
    yield from _first(starts[heads] != 0, row[heads], "sentence_starts: the first is not 0")
    disorder = (row[1:] == row[:-1]) & (starts[1:] <= starts[:-1])
    yield from _first(disorder, row[1:], "sentence_starts: are not increasing")
    yield from _first(starts >= rows.num_characters[row], row, "sentence_starts: one lies behind the text")


COPY = "copy the directory again"
# And what is kept for a later job, which checks documents and shards before it uses them.
NOT_DATA = (LOCK, "_work")


def verify(directory: AnyPath) -> tuple[str, ...]:
    """Check everything and return the files that no hash covers.

    Raises UserError if `directory` is not a complete data directory, and JobError if anything else is wrong.
    """
    storage = Storage.at(directory)
    mark = read_sealed(storage, SUCCESS)
    if mark is not None:
        check_hash(storage, MANIFEST, mark["manifest_sha256"], source=SUCCESS, action=COPY)
    # Read before a missing mark is reported, so that a folder that is no data directory is named as such.
    manifest = load_manifest(directory)
    if mark is None:
        raise JobError(f"{SUCCESS}: damaged or missing; {COPY}, or run its `tokenfree preprocess` again")
    added = mark["added_later"]
    for name, sha256 in manifest.files.items():
        check_hash(storage, name, sha256, source=MANIFEST, action=COPY)
    for name, sha256 in added.items():
        check_hash(storage, name, sha256, source=SUCCESS, action="run `tokenfree replay` again")
    vocabulary = None
    if manifest.vocabulary_sha256 is not None:
        check_hash(storage, MODEL, manifest.vocabulary_sha256, source=MANIFEST, action=COPY)
        vocabulary = Vocabulary.load(storage.read_bytes(MODEL))
    _check_totals(manifest)
    config = build(PreprocessConfig, manifest.config, source=f"{directory}/{MANIFEST}")
    for shard in manifest.shards:
        size = storage.size(shard.path)
        if size is not None and size != shard.bytes:
            raise JobError(
                f"{shard.path}: {size} bytes, not the {shard.bytes} of the manifest; copy it again"
            )
        check_hash(storage, shard.path, shard.sha256, source=MANIFEST, action=COPY)
        _check_rows(storage, shard, config, vocabulary)
    covered = {MANIFEST, SUCCESS, MODEL, *manifest.files, *added, *(shard.path for shard in manifest.shards)}
    others = tuple(
        name for name in storage.find() if name not in covered and name.split("/")[0] not in NOT_DATA
    )
    for name in others:
        if name.endswith(".arrow") and name.split("/")[0] in manifest.splits:
            raise JobError(f"{name}: not in the manifest; remove it")
    return others


def _check_totals(manifest: Manifest) -> None:
    try:
        reconcile(manifest.counters)
        counted = [manifest.counters[name] for name in ("documents", "windows", "characters")]
    except (KeyError, TypeError, AttributeError):
        raise JobError(f"{MANIFEST}: its counters are damaged; {COPY}") from None
    for name, field, count in zip(
        ("documents", "windows", "characters"), ("documents", "rows", "characters"), counted, strict=True
    ):
        total = sum(getattr(split, field) for split in manifest.splits.values())
        if total != count:
            raise JobError(f"{MANIFEST}: its shards hold {total} {name}, its counters {count}")
    if content_fingerprint(manifest.splits, manifest.vocabulary_sha256) != manifest.fingerprint:
        raise JobError(
            f"{MANIFEST}: its fingerprint is not that of its shards and vocabulary; it was changed"
        )


def _check_rows(
    storage: Storage, shard: ShardEntry, config: PreprocessConfig, vocabulary: Vocabulary | None
) -> None:
    rows = changes = characters = 0
    last_document = None
    for batch in read_batches(storage, shard, config):
        broken = check_windows(batch, vocabulary)
        if broken is not None:
            raise JobError(f"{shard.path}: in the batch that starts at row {rows}, {broken}")
        if batch.num_rows > MAX_BATCH_ROWS:
            raise JobError(
                f"{shard.path}: row {rows}: a batch of {batch.num_rows} rows, more than {MAX_BATCH_ROWS}"
            )
        _check_language(batch, shard, rows)
        characters += _count_characters(batch)
        if "document" in batch.schema.names:
            for document in batch["document"].to_pylist():
                changes += document != last_document
                last_document = document
        rows += batch.num_rows
    _compare(shard, "rows", rows, shard.rows)
    if {"text", "codepoints", "whitespace"} & set(config.columns):
        _compare(shard, "characters", characters, shard.characters)
    # Ids come from the inputs and may repeat, so neighbours may share one.
    is_possible = changes <= shard.documents <= shard.rows
    if "document" in config.columns and config.window.pack == "none" and not is_possible:
        raise JobError(
            f"{shard.path}: {changes} documents or more in {shard.rows} rows, not the {shard.documents} of the manifest"
        )


def read_batches(storage: Storage, shard: ShardEntry, config: PreprocessConfig) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a shard.

    Raises JobError if it is damaged or has other columns than the manifest.
    """
    try:
        with storage.open(shard.path) as file, pa.ipc.open_stream(file) as reader:
            if not reader.schema.equals(schema(config.columns)):
                raise JobError(f"{shard.path}: its columns are not those of the manifest")
            yield from reader
    except pa.ArrowInvalid as error:
        raise JobError(f"{shard.path}: not a whole Arrow stream ({error})") from error


def _check_language(batch: pa.RecordBatch, shard: ShardEntry, first_row: int) -> None:
    if "language" in batch.schema.names:
        for row, language in enumerate(batch["language"].to_pylist(), first_row):
            if language != shard.language:
                raise JobError(f"{shard.path}: row {row}: language {language}, not {shard.language}")


def _count_characters(batch: pa.RecordBatch) -> int:
    for name in ("codepoints", "whitespace"):
        if name in batch.schema.names:
            return len(batch[name].flatten())
    return sum(map(len, batch["text"].to_pylist())) if "text" in batch.schema.names else 0


def _compare(shard: ShardEntry, name: str, actual: Any, expected: Any) -> None:
    if actual != expected:
        raise JobError(f"{shard.path}: {actual} {name}, not the {expected} of the manifest")
