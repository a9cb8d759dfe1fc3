"""`_SUCCESS`, the last file of a job. Other tools look whether it is there; it also holds what the inputs were like.

Sizes and times by which a later command recognises its inputs stand here and not in the manifest, so that everything
else in a data directory stays a function of content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.dataset.manifest import MANIFEST

SUCCESS = "_SUCCESS"


def mark_success(storage: Storage, inputs: Sequence[Mapping[str, Any]]) -> None:
    """Write the mark of a directory whose manifest stands.

    Args:
        storage: the data directory.
        inputs: `path` (a name), `size` in bytes and `modified` of each input, as the job found them; empty where
            nobody knows any more.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    if not inputs:
        storage.write_bytes(SUCCESS, b"")
        return
    storage.write_json(SUCCESS, {"manifest_sha256": _manifest_sha256(storage), "inputs": list(inputs)})


def marked_inputs(storage: Storage) -> list[dict[str, Any]] | None:
    """The inputs in the mark; None where it is empty, as jobs left it before it held any, or of another manifest."""
    values = storage.read_json(SUCCESS)
    if not isinstance(values, dict) or values.get("manifest_sha256") != _manifest_sha256(storage):
        return None
    return values["inputs"]


def _manifest_sha256(storage: Storage) -> str:
    return hashlib.sha256(storage.read_bytes(MANIFEST)).hexdigest()
