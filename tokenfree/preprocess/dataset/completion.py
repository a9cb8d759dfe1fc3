"""What completes a data directory: counts that add up, the fingerprint of its content, and `_SUCCESS`.

`_SUCCESS` holds the hash of the manifest and of itself, and the sizes and times by which a later command
recognises its inputs. Older directories have an empty one, or one without a hash of itself.
"""

import hashlib
import platform
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.machine import version_of
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import hash_of, read_sealed, write_sealed
from tokenfree.preprocess.dataset.manifest import MANIFEST, DatasetSplit

LIBRARIES = ("tokenfree", "charset-normalizer", "numpy", "pyarrow", "sentencepiece")


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
    return {
        "python": platform.python_version(),
        "unicode": unicodedata.unidata_version,
        **{name: version_of(name) for name in LIBRARIES},
    }


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
    mark = {
        "manifest_sha256": manifest_sha256,
        "inputs": list(inputs),
        "added_later": previous.get("added_later", {}),
    }
    write_sealed(storage, SUCCESS, mark)


def note_added(storage: Storage, name: str, sha256: str | None) -> None:
    """Record the hash of a file that is added to a complete directory, or with None that the file is absent.

    A directory whose `_SUCCESS` is damaged or missing stays as it is: `verify` reports that. Raises UserError
    if the directory cannot be written to.
    """
    mark = read_sealed(storage, SUCCESS)
    if mark is not None:
        later = {
            key: value for key, value in {**mark["added_later"], name: sha256}.items() if value is not None
        }
        write_sealed(storage, SUCCESS, {**mark, "added_later": later})


def marked_inputs(storage: Storage) -> list[dict[str, Any]] | None:
    """Return the inputs that `_SUCCESS` lists, or None if it lists none or belongs to another manifest."""
    mark = read_sealed(storage, SUCCESS)
    if mark is None or mark["manifest_sha256"] != hash_of(storage, MANIFEST):
        return None
    return mark["inputs"] or None
