"""Check a data directory: the manifest against the files, every hash, and the invariants of every row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from tokenfree.preprocess.common.errors import JobError
from tokenfree.preprocess.common.local_files import hash_stream
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.dataset.invariants import check_windows
from tokenfree.preprocess.dataset.manifest import Manifest, ShardEntry, content_fingerprint, load_manifest, reconcile
from tokenfree.preprocess.dataset.vocabulary import MODEL
from tokenfree.preprocess.features.schema import MAX_BATCH_ROWS, schema
from tokenfree.preprocess.features.vocabulary import Vocabulary


def verify(directory: str, progress: Callable[[int, int], None] | None = None) -> None:
    """Check everything; `progress` is called with the shards done and all shards.

    Raises:
        UserError: `directory` is no finished data directory.
        JobError: the first thing that is wrong, with the shard and the row.
    """
    manifest = load_manifest(directory)
    storage = Storage.at(directory)
    vocabulary = _check_vocabulary(storage, manifest)
    _check_totals(manifest)
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    for done, shard in enumerate(shards):
        if progress is not None:
            progress(done, len(shards))
        _check_hash(storage, shard)
        _check_rows(storage, shard, manifest, vocabulary)
    for name, split in manifest.splits.items():
        known = {shard.path for shard in split.shards}
        for file in storage.names(name):
            if file.endswith(".arrow") and f"{name}/{file}" not in known:
                raise JobError(f"{name}/{file}: not in the manifest; remove it")
    if progress is not None:
        progress(len(shards), len(shards))


def _check_vocabulary(storage: Storage, manifest: Manifest) -> Vocabulary | None:
    if manifest.vocabulary_sha256 is None:
        return None
    try:
        model = storage.read_bytes(MODEL)
    except FileNotFoundError:
        raise JobError(f"{MODEL}: missing; copy the directory again") from None
    if hashlib.sha256(model).hexdigest() != manifest.vocabulary_sha256:
        raise JobError(f"{MODEL}: its SHA-256 is not that of the manifest; copy the directory again")
    return Vocabulary.load(model)


def _check_totals(manifest: Manifest) -> None:
    reconcile(manifest.counters)
    for counter, field in (("documents", "documents"), ("windows", "rows"), ("characters", "characters")):
        total = sum(getattr(split, field) for split in manifest.splits.values())
        if total != manifest.counters[counter]:
            raise JobError(
                f"manifest.json: its shards hold {total} {counter}, its counters {manifest.counters[counter]}"
            )
    if content_fingerprint(manifest.splits, manifest.vocabulary_sha256) != manifest.fingerprint:
        raise JobError("manifest.json: its fingerprint is not that of its shards and vocabulary; it was changed")


def _check_hash(storage: Storage, shard: ShardEntry) -> None:
    size = storage.size(shard.path)
    if size is None:
        raise JobError(f"{shard.path}: missing; copy the directory again")
    if size != shard.bytes:
        raise JobError(f"{shard.path}: {size} bytes, not the {shard.bytes} of the manifest; copy it again")
    with storage.open(shard.path) as file:
        sha256 = hash_stream(file)
    if sha256 != shard.sha256:
        raise JobError(f"{shard.path}: damaged, its SHA-256 is not that of the manifest; copy it again")


def _check_rows(storage: Storage, shard: ShardEntry, manifest: Manifest, vocabulary: Vocabulary | None) -> None:
    rows = documents = characters = 0
    last_document = None
    for batch in _batches(storage, shard, manifest):
        broken = check_windows(batch, vocabulary)
        if broken is not None:
            raise JobError(f"{shard.path}: in the batch that starts at row {rows}, {broken}")
        if batch.num_rows > MAX_BATCH_ROWS:
            raise JobError(f"{shard.path}: row {rows}: a batch of {batch.num_rows} rows, more than {MAX_BATCH_ROWS}")
        _check_language(batch, shard, rows)
        characters += _count_characters(batch)
        if "document" in batch.schema.names:
            for document in batch["document"].to_pylist():
                documents += document != last_document
                last_document = document
        rows += batch.num_rows
    _compare(shard, "rows", rows, shard.rows)
    if {"text", "codepoints", "whitespace"} & set(manifest.config["columns"]):
        _compare(shard, "characters", characters, shard.characters)
    if "document" in manifest.config["columns"] and manifest.config["window"]["pack"] == "none":
        _compare(shard, "documents", documents, shard.documents)


def _batches(storage: Storage, shard: ShardEntry, manifest: Manifest) -> Iterator[pa.RecordBatch]:
    try:
        with storage.open(shard.path) as file, pa.ipc.open_stream(file) as reader:
            if not reader.schema.equals(schema(manifest.config["columns"])):
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
