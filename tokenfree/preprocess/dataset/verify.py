"""Check a data directory: the manifest against the files, every hash, and the invariants of every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tokenfree.preprocess.common.errors import JobError
from tokenfree.preprocess.common.settings import build
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.file_hashes import check_hash, read_sealed
from tokenfree.preprocess.common.stored.store_lock import LOCK
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.invariants import check_windows
from tokenfree.preprocess.dataset.manifest import (
    MANIFEST,
    Manifest,
    ShardEntry,
    content_fingerprint,
    load_manifest,
    reconcile,
)
from tokenfree.preprocess.dataset.success_mark import SUCCESS
from tokenfree.preprocess.dataset.vocabulary import MODEL
from tokenfree.preprocess.features.schema import MAX_BATCH_ROWS, schema
from tokenfree.preprocess.features.vocabulary import Vocabulary

COPY = "copy the directory again"
NOT_DATA = (LOCK, "_work")  # and what was kept for a later job, which checks documents and shards before it uses them


def verify(directory: str, progress: Callable[[int, int], None] | None = None) -> tuple[str, ...]:
    """Check everything; `progress` is called with the shards done and all shards.

    Returns:
        The files that no hash covers: most of those beside the shards where an earlier version made the directory,
        and what was put there later.

    Raises:
        UserError: `directory` is no finished data directory.
        JobError: the first thing that is wrong, with the file, of a shard also with the row.
    """
    storage = Storage.at(directory)
    mark = read_sealed(storage, SUCCESS)
    if mark is not None:
        check_hash(storage, MANIFEST, mark["manifest_sha256"], source=SUCCESS, remedy=COPY)
    manifest = load_manifest(directory)
    if mark is None:
        _check_mark_of_before(storage, manifest)
    added = {} if mark is None else mark["added_later"]
    for name, sha256 in manifest.files.items():
        check_hash(storage, name, sha256, source=MANIFEST, remedy=COPY)
    for name, sha256 in added.items():
        check_hash(storage, name, sha256, source=SUCCESS, remedy="run `tokenfree replay` again")
    vocabulary = _check_vocabulary(storage, manifest)
    _check_totals(manifest)
    config = build(PreprocessConfig, manifest.config, source=f"{directory}/{MANIFEST}")
    for done, shard in enumerate(manifest.shards):
        if progress is not None:
            progress(done, len(manifest.shards))
        _check_hash(storage, shard)
        _check_rows(storage, shard, config, vocabulary)
    covered = {MANIFEST, SUCCESS, MODEL, *manifest.files, *added, *(shard.path for shard in manifest.shards)}
    others = tuple(name for name in storage.find() if name not in covered and name.split("/")[0] not in NOT_DATA)
    for name in others:
        if name.endswith(".arrow") and name.split("/")[0] in manifest.splits:
            raise JobError(f"{name}: not in the manifest; remove it")
    if progress is not None:
        progress(len(manifest.shards), len(manifest.shards))
    return others


def _check_mark_of_before(storage: Storage, manifest: Manifest) -> None:
    """That a mark without a hash of itself is as earlier versions left it: empty, or with the hash of the manifest."""
    remedy = f"{COPY}, or run its `tokenfree preprocess` again, which writes this file"
    if storage.size(SUCCESS) is None:
        raise JobError(f"{SUCCESS}: missing; {remedy}")
    known = storage.read_json(SUCCESS)
    if manifest.files or (storage.size(SUCCESS) and not (isinstance(known, dict) and "manifest_sha256" in known)):
        raise JobError(f"{SUCCESS}: damaged; {remedy}")
    if known is not None:
        check_hash(storage, MANIFEST, known["manifest_sha256"], source=SUCCESS, remedy=COPY)


def _check_vocabulary(storage: Storage, manifest: Manifest) -> Vocabulary | None:
    if manifest.vocabulary_sha256 is None:
        return None
    check_hash(storage, MODEL, manifest.vocabulary_sha256, source=MANIFEST, remedy=COPY)
    return Vocabulary.load(storage.read_bytes(MODEL))


def _check_totals(manifest: Manifest) -> None:
    try:
        reconcile(manifest.counters)
        told = [manifest.counters[name] for name in ("documents", "windows", "characters")]
    except (KeyError, TypeError, AttributeError):
        raise JobError(f"{MANIFEST}: its counters are damaged; {COPY}") from None
    for name, field, count in zip(
        ("documents", "windows", "characters"), ("documents", "rows", "characters"), told, strict=True
    ):
        total = sum(getattr(split, field) for split in manifest.splits.values())
        if total != count:
            raise JobError(f"{MANIFEST}: its shards hold {total} {name}, its counters {count}")
    if content_fingerprint(manifest.splits, manifest.vocabulary_sha256) != manifest.fingerprint:
        raise JobError(f"{MANIFEST}: its fingerprint is not that of its shards and vocabulary; it was changed")


def _check_hash(storage: Storage, shard: ShardEntry) -> None:
    size = storage.size(shard.path)
    if size is not None and size != shard.bytes:
        raise JobError(f"{shard.path}: {size} bytes, not the {shard.bytes} of the manifest; copy it again")
    check_hash(storage, shard.path, shard.sha256, source=MANIFEST, remedy=COPY)


def _check_rows(storage: Storage, shard: ShardEntry, config: PreprocessConfig, vocabulary: Vocabulary | None) -> None:
    rows = changes = characters = 0
    last_document = None
    for batch in _batches(storage, shard, config):
        broken = check_windows(batch, vocabulary)
        if broken is not None:
            raise JobError(f"{shard.path}: in the batch that starts at row {rows}, {broken}")
        if batch.num_rows > MAX_BATCH_ROWS:
            raise JobError(f"{shard.path}: row {rows}: a batch of {batch.num_rows} rows, more than {MAX_BATCH_ROWS}")
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
    if "document" in config.columns and config.window.pack == "none":
        _check_documents(shard, changes)


def _check_documents(shard: ShardEntry, changes: int) -> None:
    """A row of another id begins another document, and so may one of the same: ids come from the inputs, and repeat."""
    if not changes <= shard.documents <= shard.rows:
        raise JobError(
            f"{shard.path}: {changes} documents or more in {shard.rows} rows, not the {shard.documents} of the manifest"
        )


def _batches(storage: Storage, shard: ShardEntry, config: PreprocessConfig) -> Iterator[pa.RecordBatch]:
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
    """Codepoints of all rows, from whichever column tells; 0 where none does."""
    for name in ("codepoints", "whitespace"):
        if name in batch.schema.names:
            return len(batch[name].flatten())
    return sum(map(len, batch["text"].to_pylist())) if "text" in batch.schema.names else 0


def _compare(shard: ShardEntry, name: str, found: Any, told: Any) -> None:
    if found != told:
        raise JobError(f"{shard.path}: {found} {name}, not the {told} of the manifest")
