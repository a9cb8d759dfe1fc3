"""Shards of remote data directories on this machine's disk: fetched whole, hash checked, the oldest removed first.

The folder is TOKENFREE_CACHE (default ~/.cache/tokenfree); its shards are kept under TOKENFREE_CACHE_GB (default 50).
All workers of a machine share it: files are named by their hash and appear by renaming, and one worker at a time
fetches a shard, while others that need it wait for it.
"""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from fsspec import AbstractFileSystem

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.common.local_files import hash_file, lock
from tokenfree.preprocess.common.retry import retry
from tokenfree.train.machine.cache_folder import folder

ATTEMPTS = 5
PAUSE = 1.0  # seconds after the first attempt that failed; doubled after each
STALE = 3600.0  # seconds after which a part of a shard belongs to a worker that was killed
_REMEDY = "run `tokenfree verify` on the data"


def fetch(system: AbstractFileSystem, name: str, *, num_bytes: int, sha256: str) -> str:
    """The path of a local copy of the file `name` of `system`.

    Raises:
        JobError: the file is absent, cannot be fetched, or its content is not that of `sha256`.
        UserError: there is no room for it.
    """
    path = folder() / f"{sha256}.arrow"
    if _in_use(path):
        return str(path)
    folder().mkdir(parents=True, exist_ok=True)
    limit = int(float(os.environ.get("TOKENFREE_CACHE_GB", "50")) * 1e9)
    with lock(path.with_suffix(".lock")):
        if not _in_use(path):  # another worker may have fetched it meanwhile
            _make_room(limit - num_bytes)
            _fetch(system, name, path, sha256)
    return str(path)


def _in_use(path: Path) -> bool:
    """Whether the shard is here; if so it is now the one used last, which is removed last."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _fetch(system: AbstractFileSystem, name: str, path: Path, sha256: str) -> None:
    temporary = path.with_suffix(".partial")
    try:
        _download(system, name, temporary)
        found = hash_file(temporary)
        if found != sha256:
            raise JobError(f"{name} has SHA-256 {found}, its manifest says {sha256}; {_REMEDY}")
        temporary.replace(path)
    except FileNotFoundError as error:
        raise JobError(f"{name}, which the manifest names, is absent; {_REMEDY}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _download(system: AbstractFileSystem, name: str, target: Path) -> None:
    try:
        retry(lambda: system.get_file(name, str(target)), again=_may_pass, pause=PAUSE, attempts=ATTEMPTS)
    except FileNotFoundError:
        raise
    except Exception as error:  # fsspec's file systems raise errors of many libraries
        if _may_pass(error):
            raise JobError(f"{name} cannot be fetched: {error}; try again when the store is back") from error
        raise UserError(
            f"{folder()}: no room for {name}; free space, lower TOKENFREE_CACHE_GB, or set TOKENFREE_CACHE to "
            "a folder on a larger disk"
        ) from error


def _may_pass(error: Exception) -> bool:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return not full and not isinstance(error, FileNotFoundError)


def _make_room(limit: int) -> None:
    """Remove shards used longest ago until at most `limit` bytes are left; a mapped one lives on until it is closed."""
    files = []
    for path in [*folder().glob("*.arrow"), *folder().glob("*.partial")]:
        try:
            files.append((path.stat(), path))
        except FileNotFoundError:  # another worker was first
            continue
    files.sort(key=lambda entry: entry[0].st_mtime)
    total = sum(status.st_size for status, _ in files)
    now = time.time()
    for status, path in files:
        stale = path.suffix == ".partial" and now - status.st_mtime > STALE
        if stale or (total > limit and path.suffix == ".arrow"):
            path.unlink(missing_ok=True)
            total -= status.st_size
