"""Hashes of the files of a folder, and a small file of JSON that holds its own: nothing in it changes unnoticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tokenfree.preprocess.common.errors import JobError
from tokenfree.preprocess.common.local_files import hash_stream
from tokenfree.preprocess.common.storage import Storage

OWN = "sha256"  # the key of a file's own hash


def hash_of(storage: Storage, name: str) -> str | None:
    """The SHA-256 of a file, in hex; None where there is none."""
    try:
        with storage.open(name) as file:
            return hash_stream(file)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def hashes_of(storage: Storage, names: Iterable[str]) -> dict[str, str]:
    """The SHA-256 of those of the files that are there, by name."""
    found = {name: hash_of(storage, name) for name in names}
    return {name: sha256 for name, sha256 in found.items() if sha256 is not None}


def check_hash(storage: Storage, name: str, sha256: str, *, source: str, remedy: str) -> None:
    """See that a file is what it was.

    Args:
        sha256: its hash then.
        source: the file that holds this hash, for the message.
        remedy: what the user can do, for the message.

    Raises:
        JobError: it is gone or changed.
    """
    found = hash_of(storage, name)
    if found is None:
        raise JobError(f"{name}: missing; {remedy}")
    if found != sha256:
        raise JobError(f"{name}: damaged, its SHA-256 is not that of {source}; {remedy}")


def is_inside(name: str) -> bool:
    """Whether the name of a file that was read somewhere is a plain one below its folder, on every file system."""
    return {"", ".", ".."}.isdisjoint(name.split("/")) and set("\\:\0").isdisjoint(name)


def write_sealed(storage: Storage, name: str, values: Mapping[str, Any]) -> None:
    """Write JSON with the hash of its own values.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    storage.write_bytes(name, _text(values))


def read_sealed(storage: Storage, name: str) -> dict[str, Any] | None:
    """The values of a file that `write_sealed` wrote; None where it is gone, or any bit of it is another."""
    try:
        data = storage.read_bytes(name)
        values = json.loads(data)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    values.pop(OWN, None)
    return values if data == _text(values) else None


def _text(values: Mapping[str, Any]) -> bytes:
    """The one text of these values."""
    own = hashlib.sha256(_json(values)).hexdigest()
    return _json({**values, OWN: own})


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode(errors="surrogatepass")
