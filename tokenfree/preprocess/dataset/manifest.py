"""manifest.json and the vocabulary of a data directory.

The manifest holds the hashes of all other files. Everything in a data directory except `_SUCCESS` depends on
content alone.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import Field

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import checked, is_inside
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.records import SCHEMA_VERSION

Count = Annotated[int, Field(ge=0)]


MANIFEST = "manifest.json"
NEAR_DUPLICATE_PAIRS = "near_duplicates.jsonl"  # each dropped document, with the one that it resembles


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One Arrow file.

    `path` is relative to the data directory; `characters` counts the codepoints of its windows.
    """

    path: str
    language: str
    rows: Count
    documents: Count
    characters: Count
    bytes: Count
    sha256: str


@dataclass(frozen=True)
class DatasetSplit:
    """The split `train` or `validation`, with its shards in the order of their numbers."""

    shards: tuple[ShardEntry, ...]

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @property
    def documents(self) -> int:
        return sum(shard.documents for shard in self.shards)

    @property
    def characters(self) -> int:
        return sum(shard.characters for shard in self.shards)


@dataclass(frozen=True, repr=False)
class Manifest:
    """A finished data directory.

    `fingerprint` changes with any byte of any shard or of the vocabulary, and with nothing else. `files` has
    the SHA-256 of all files except the shards and `vocabulary/subwords.model`.
    """

    schema_version: int
    config: Mapping[str, Any]
    config_fingerprint: str
    versions: Mapping[str, str]
    inputs: tuple[Mapping[str, Any], ...]
    vocabulary_sha256: str | None
    vocabulary_size: int | None
    splits: Mapping[str, DatasetSplit]
    counters: Mapping[str, Any]
    statistics: Mapping[str, Any]
    fingerprint: str
    files: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        counts = (
            f"{name}: {split.documents:,} documents, {split.rows:,} windows, {split.characters:,} characters; "
            for name, split in self.splits.items()
        )
        return f"Manifest({''.join(counts)}fingerprint={self.fingerprint})"

    @property
    def shards(self) -> tuple[ShardEntry, ...]:
        return tuple(shard for split in self.splits.values() for shard in split.shards)


def load_manifest(directory: AnyPath) -> Manifest:
    """Return the manifest of a data directory.

    Raises UserError if it is absent, damaged or of an unknown version.
    """
    try:
        values = json.loads(Storage.at(directory).read_bytes(MANIFEST))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{directory}: no {MANIFEST} there, so it is not a finished data directory; make one with "
            f"`tokenfree preprocess --output {directory}` (the same command resumes a job that stopped)"
        ) from None
    except (ValueError, RecursionError):
        raise UserError(
            f"{directory}/{MANIFEST}: damaged, it is not JSON; copy the directory again or remake it"
        ) from None
    version = values.get("schema_version") if isinstance(values, dict) else None
    if version != SCHEMA_VERSION:
        raise UserError(
            f"{directory}/{MANIFEST}: schema version {version!r} is not known here (known: {SCHEMA_VERSION}); "
            "install the tokenfree that made it, or preprocess again"
        )
    try:
        manifest: Manifest = checked(Manifest, values)
    except ValueError as error:
        raise UserError(
            f"{directory}/{MANIFEST}: damaged, {error}; copy the directory again or remake it"
        ) from None
    for path in (*(shard.path for shard in manifest.shards), *manifest.files):
        if not is_inside(path):
            raise UserError(
                f"{directory}/{MANIFEST}: names {path!r}, which is not a file of this directory; remake it"
            )
    return manifest


def save_manifest(storage: Storage, manifest: Manifest) -> None:
    """Write the manifest, which makes a directory complete.

    Raises UserError if the directory cannot be written to.
    """
    storage.write_json(MANIFEST, asdict(manifest))


MODEL, VOCABULARY = "vocabulary/subwords.model", "vocabulary/subwords.vocab"


def load_vocabulary(data: AnyPath) -> Vocabulary | None:
    """Return the subword vocabulary of a data directory or run (a path or fsspec address), or None if it has none.

    Raises UserError if the address cannot be read or the vocabulary is not the one of the manifest.
    """
    storage = Storage.at(data)
    try:
        model = storage.read_bytes(MODEL)
    except (FileNotFoundError, NotADirectoryError):
        return None
    # A run has none.
    manifest = storage.read_json(MANIFEST)
    sha256 = manifest.get("vocabulary_sha256") if isinstance(manifest, dict) else None
    if sha256 is not None and sha256 != hashlib.sha256(model).hexdigest():
        raise UserError(
            f"{data}/{MODEL}: damaged, its SHA-256 is not that of {MANIFEST}; copy the file again"
        )
    try:
        return Vocabulary.load(model)
    except UserError:
        raise UserError(
            f"{data}/{MODEL}: damaged, it is not a SentencePiece model; copy the file again"
        ) from None
