"""Shards of remote data directories on this machine's disk: fetched whole, hash checked, the oldest removed first.

The folder is TOKENFREE_CACHE (default ~/.cache/tokenfree); it is kept under TOKENFREE_CACHE_GB (default 50).
All workers of a machine share it: files are named by their hash and appear by renaming.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fsspec import AbstractFileSystem

from preprocess.errors import JobError
from preprocess.storage import hash_file


def fetch(system: AbstractFileSystem, name: str, *, num_bytes: int, sha256: str) -> str:
    """The path of a local copy of the file `name` of `system`.

    Raises:
        JobError: the file is absent, or its content is not that of `sha256`.
    """
    folder = Path(os.environ.get("TOKENFREE_CACHE") or Path.home() / ".cache" / "tokenfree")
    limit = int(float(os.environ.get("TOKENFREE_CACHE_GB", "50")) * 1e9)
    path = folder / f"{sha256}.arrow"
    if path.exists():
        path.touch()  # used last: removed last
        return str(path)
    folder.mkdir(parents=True, exist_ok=True)
    _make_room(folder, limit - num_bytes)
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".partial")
    os.close(handle)
    try:
        system.get_file(name, temporary)
        found = hash_file(temporary)
        if found != sha256:
            raise JobError(
                f"{name} has SHA-256 {found}, its manifest says {sha256}; run `tokenfree verify` on the data"
            )
        os.replace(temporary, path)
    except FileNotFoundError as error:
        raise JobError(f"{name}, which the manifest names, is absent; run `tokenfree verify` on the data") from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    return str(path)


def _make_room(folder: Path, limit: int) -> None:
    """Remove shards used longest ago until at most `limit` bytes are left; a mapped one lives on until it is closed."""
    files = []
    for path in folder.glob("*.arrow"):
        try:
            files.append((path.stat(), path))
        except FileNotFoundError:  # another worker was first
            continue
    files.sort(key=lambda entry: entry[0].st_mtime)
    total = sum(status.st_size for status, _ in files)
    for status, path in files:
        if total <= limit:
            return
        path.unlink(missing_ok=True)
        total -= status.st_size
