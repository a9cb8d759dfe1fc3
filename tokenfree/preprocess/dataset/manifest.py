"""manifest.json, `_SUCCESS` and the vocabulary of a data directory.

The manifest holds the hashes of all other files. `_SUCCESS` holds the hash of the manifest and of itself, and
the sizes and times by which a later command recognises its inputs. Everything else in a data directory
depends on content alone. Older directories have an empty `_SUCCESS`, or one without a hash of itself.
"""

import hashlib
import json
import platform
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import Field

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import AnyPath
from tokenfree.core.machine import version_of
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import checked, hash_of, is_inside, read_sealed, write_sealed
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.records import SCHEMA_VERSION

Count = Annotated[int, Field(ge=0)]


MANIFEST = "manifest.json"
NEAR_DUPLICATE_PAIRS = "near_duplicates.jsonl"  # each dropped document, with the one that it resembles
LIBRARIES = ("tokenfree", "charset-normalizer", "numpy", "pyarrow", "sentencepiece")


@dataclass(frozen=True)
class ShardEntry:
    """One Arrow file. `path` is relative to the data directory; `characters` counts the codepoints of its windows."""

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


def content_fingerprint(splits: Mapping[str, DatasetSplit], vocabulary_sha256: str | None) -> str:
    """Return 32 hex digits of the hashes of all shards, in order, and of the vocabulary."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"vocabulary {vocabulary_sha256}\n".encode())
    for name in sorted(splits):
        for shard in splits[name].shards:
            digest.update(f"{shard.path} {shard.sha256}\n".encode())
    return digest.hexdigest()


def reconcile(counters: Mapping[str, Any]) -> None:
    """Raise JobError unless each page that was read is counted once: as a document, as dropped or as failed."""
    parts = {name: counters[name] for name in ("documents", "redirects", "other_namespaces", "duplicates")}
    parts["near_duplicates"] = counters.get("near_duplicates", 0)
    parts["filtered"] = sum(counters["filtered"].values())
    parts["failed"] = sum(counters["failed"].values())
    if counters["pages"] != sum(parts.values()):
        breakdown = " + ".join(f"{count} {name}" for name, count in parts.items())
        raise JobError(
            f"{counters['pages']} pages were read, but {breakdown} make {sum(parts.values())}; "
            "no manifest is written: remove the output and run again, and please report this"
        )


def library_versions() -> dict[str, str]:
    """Return the versions that decide the bytes of shards: libraries, Python and its Unicode tables."""
    libraries = {name: version_of(name) for name in LIBRARIES}
    return {"python": platform.python_version(), "unicode": unicodedata.unidata_version, **libraries}


SUCCESS = "_SUCCESS"


def mark_success(storage: Storage, inputs: Sequence[Mapping[str, Any]]) -> None:
    """Write `_SUCCESS` into a directory that has its manifest.

    Each of `inputs` has `path` (a name), `size` in bytes and `modified`, as the job found them. Raises
    UserError if the directory cannot be written to or has a `_SUCCESS` for another manifest.
    """
    previous = read_sealed(storage, SUCCESS) or {}
    manifest_sha256 = hash_of(storage, MANIFEST)
    if previous.get("manifest_sha256", manifest_sha256) != manifest_sha256:
        raise UserError(f"{storage.url}/{MANIFEST}: damaged; see `tokenfree verify {storage.url}`")
    later = previous.get("added_later", {})
    mark = {"manifest_sha256": manifest_sha256, "inputs": list(inputs), "added_later": later}
    write_sealed(storage, SUCCESS, mark)


def note_added(storage: Storage, name: str, sha256: str | None) -> None:
    """Record the hash of a file that is added to a complete directory, or with None that the file is absent.

    A directory whose `_SUCCESS` is damaged or missing stays as it is: `verify` reports that. Raises UserError
    if the directory cannot be written to.
    """
    mark = read_sealed(storage, SUCCESS)
    if mark is not None:
        added = {**mark["added_later"], name: sha256}
        later = {key: value for key, value in added.items() if value is not None}
        write_sealed(storage, SUCCESS, {**mark, "added_later": later})


def marked_inputs(storage: Storage) -> list[dict[str, Any]] | None:
    """Return the inputs that `_SUCCESS` lists, or None if it lists none or belongs to another manifest."""
    mark = read_sealed(storage, SUCCESS)
    if mark is None or mark["manifest_sha256"] != hash_of(storage, MANIFEST):
        return None
    return mark["inputs"] or None


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
