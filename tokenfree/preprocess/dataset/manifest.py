"""manifest.json: what a data directory holds. Written when all of that stands: without it a directory is unfinished."""

from __future__ import annotations

import hashlib
import json
import platform
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.file_hashes import is_inside
from tokenfree.preprocess.common.stored.stored_files import checked
from tokenfree.preprocess.dataset.manifest_content import ManifestContent
from tokenfree.preprocess.features.schema import SCHEMA_VERSION

MANIFEST = "manifest.json"
NEAR_DUPLICATE_PAIRS = "near_duplicates.jsonl"  # each that was dropped, with the document for which it was
LIBRARIES = ("tokenfree", "charset-normalizer", "numpy", "pyarrow", "sentencepiece")


@dataclass(frozen=True)
class ShardEntry:
    """One Arrow file; `path` is relative to the data directory, `characters` are codepoints of its windows."""

    path: str
    language: str
    rows: int
    documents: int
    characters: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class DatasetSplit:
    """`train` or `validation`, with its shards in the order of their numbers."""

    shards: tuple[ShardEntry, ...]

    @property
    def rows(self) -> int:
        """Windows."""
        return sum(shard.rows for shard in self.shards)

    @property
    def documents(self) -> int:
        """Documents."""
        return sum(shard.documents for shard in self.shards)

    @property
    def characters(self) -> int:
        """Codepoints of all windows."""
        return sum(shard.characters for shard in self.shards)


@dataclass(frozen=True)
class Manifest:
    """A finished data directory.

    `config` is the resolved PreprocessConfig as a mapping, `counters` are reconciled (see `reconcile`), `statistics`
    is what the card shows, `inputs` have name, size and SHA-256 each, and `fingerprint` changes with any byte of any
    shard or of the vocabulary, and with nothing else. `files` are the SHA-256 of all files beside the shards and
    `vocabulary/subwords.model`; directories of before have none.
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

    @property
    def shards(self) -> tuple[ShardEntry, ...]:
        """Those of all splits."""
        return tuple(shard for split in self.splits.values() for shard in split.shards)


def load_manifest(directory: str) -> Manifest:
    """The manifest of a data directory (a path or any fsspec address).

    Raises:
        UserError: it is absent, damaged, or of a schema version that this version does not know.
    """
    storage = Storage.at(directory)
    try:
        values = json.loads(storage.read_bytes(MANIFEST))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{directory}: no {MANIFEST} there, so it is no finished data directory; make one with "
            f"`tokenfree preprocess --output {directory}` (the same command goes on where a job stopped)"
        ) from None
    except (ValueError, RecursionError):
        raise UserError(
            f"{directory}/{MANIFEST}: damaged, it is not JSON; copy the directory again or remake it"
        ) from None
    except OSError as error:
        raise UserError(
            f"{directory}/{MANIFEST}: cannot be read ({error.strerror or error}); check its rights"
        ) from None
    found = values.get("schema_version") if isinstance(values, dict) else None
    if found != SCHEMA_VERSION:
        raise UserError(
            f"{directory}/{MANIFEST}: schema version {found!r} is not known here (known: {SCHEMA_VERSION}); "
            "install the tokenfree that made it, or preprocess again"
        )
    try:
        values = checked(ManifestContent, values)
        manifest: Manifest = checked(Manifest, values)
    except ValueError as error:
        raise UserError(f"{directory}/{MANIFEST}: damaged, {error}; copy the directory again or remake it") from None
    for path in (*(shard.path for shard in manifest.shards), *manifest.files):
        if not is_inside(path):
            raise UserError(
                f"{directory}/{MANIFEST}: names {path!r}, which is no file of this directory; no `tokenfree "
                "preprocess` wrote that: get the directory from whom you trust, or remake it"
            )
    return manifest


def save_manifest(storage: Storage, manifest: Manifest) -> None:
    """Write the manifest, by which a directory becomes a finished one; the mark of success comes after it.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    storage.write_json(MANIFEST, asdict(manifest))


def content_fingerprint(splits: Mapping[str, DatasetSplit], vocabulary_sha256: str | None) -> str:
    """32 hex digits of the hashes of all shards, in order, and of the vocabulary."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"vocabulary {vocabulary_sha256}\n".encode())
    for name in sorted(splits):
        for shard in splits[name].shards:
            digest.update(f"{shard.path} {shard.sha256}\n".encode())
    return digest.hexdigest()


def reconcile(counters: Mapping[str, Any]) -> None:
    """Check that every page that was read is accounted for.

    Raises:
        JobError: pages read are not documents + redirects + other namespaces + filtered + failed + duplicates +
            near-duplicates (where these were looked for).
    """
    parts = {name: counters[name] for name in ("documents", "redirects", "other_namespaces", "duplicates")}
    parts["near_duplicates"] = counters.get("near_duplicates", 0)
    parts["filtered"] = sum(counters["filtered"].values())
    parts["failed"] = sum(counters["failed"].values())
    if counters["pages"] != sum(parts.values()):
        found = " + ".join(f"{count} {name}" for name, count in parts.items())
        raise JobError(
            f"{counters['pages']} pages were read, but {found} make {sum(parts.values())}; "
            "no manifest is written: remove the output and run again, and please report this"
        )


def library_versions() -> dict[str, str]:
    """The versions that decide the bytes of shards: libraries, Python and its Unicode tables."""
    versions = {"python": platform.python_version(), "unicode": unicodedata.unidata_version}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # run from a checkout that is not installed
            versions[name] = "unknown"
    return versions
