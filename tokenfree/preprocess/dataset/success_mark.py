"""`_SUCCESS`, the last file of a job. Other tools look whether it is there; it also holds what the inputs were like.

It holds the hash of the manifest, which holds those of all other files, and a hash of itself. Sizes and times by which
a later command recognises its inputs stand here and not in the manifest, so that everything else in a data directory
stays a function of content. Directories of before have an empty one, or one without a hash of itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.file_hashes import OWN, hash_of, read_sealed, write_sealed
from tokenfree.preprocess.dataset.manifest import MANIFEST

SUCCESS = "_SUCCESS"


def mark_success(storage: Storage, inputs: Sequence[Mapping[str, Any]]) -> None:
    """Write the mark of a directory whose manifest stands.

    Args:
        storage: the data directory.
        inputs: `path` (a name), `size` in bytes and `modified` of each input, as the job found them; empty where
            nobody knows any more.

    Raises:
        UserError: the directory cannot be written to, or is full; or it has a mark already, of another manifest.
    """
    before = read_sealed(storage, SUCCESS) or {}
    found = hash_of(storage, MANIFEST)
    if before.get("manifest_sha256", found) != found:
        raise UserError(f"{storage.url}/{MANIFEST}: damaged; see `tokenfree verify {storage.url}`")
    later = before.get("added_later", {})
    mark = {"manifest_sha256": found, "inputs": list(inputs), "added_later": later}
    write_sealed(storage, SUCCESS, mark)


def note_added(storage: Storage, name: str, sha256: str | None) -> None:
    """Note the hash of a file that is added to a finished directory, or with None that it is not there.

    Nothing is noted in a directory without a mark of this kind.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    mark = read_sealed(storage, SUCCESS)
    if mark is not None:
        added = {**mark["added_later"], name: sha256}
        later = {key: value for key, value in added.items() if value is not None}
        write_sealed(storage, SUCCESS, {**mark, "added_later": later})


def marked_inputs(storage: Storage) -> list[dict[str, Any]] | None:
    """The inputs in the mark; None where it has none, as jobs left it before it held any, or of another manifest."""
    values = storage.read_json(SUCCESS)
    if isinstance(values, dict) and OWN in values:
        values = read_sealed(storage, SUCCESS)
    if not isinstance(values, dict) or values.get("manifest_sha256") != hash_of(storage, MANIFEST):
        return None
    return values["inputs"] or None
