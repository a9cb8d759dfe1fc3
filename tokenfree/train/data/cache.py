"""Remote shards, fetched into a cache of bounded size.

The cache is the folder TOKENFREE_CACHE (default ~/.cache/tokenfree), with shards of up to TOKENFREE_CACHE_GB
(default 50). All workers of a machine share it. Files are named by their hash and appear by renaming, and one
worker at a time fetches a shard.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from fsspec import AbstractFileSystem

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import cache_folder, hash_file, lock
from tokenfree.core.storage import retry

ATTEMPTS = 5
PAUSE = 1.0  # seconds after the first failed attempt; doubled after each
_ACTION = "run `tokenfree verify` on the data"


def fetch(system: AbstractFileSystem, name: str, *, num_bytes: int, sha256: str) -> str:
    path = cache_folder() / f"{sha256}.arrow"
    cache_folder().mkdir(parents=True, exist_ok=True)
    with lock(path.with_suffix(".lock")):
        # Another worker may have fetched it in the meantime.
        if not path.exists():
            _evict(int(float(os.environ.get("TOKENFREE_CACHE_GB", "50")) * 1e9) - num_bytes)
            _download(system, name, path, sha256)
        # Another worker may just have removed it to make room.
        with contextlib.suppress(FileNotFoundError):
            # The most recently used shard is removed last.
            os.utime(path)
    return str(path)


def _download(system: AbstractFileSystem, name: str, path: Path, sha256: str) -> None:
    temporary = path.with_suffix(".partial")
    try:
        retry(lambda: system.get_file(name, str(temporary)), again=_may_pass, pause=PAUSE, attempts=ATTEMPTS)
        digest = hash_file(temporary)
    except FileNotFoundError as error:
        raise JobError(f"{name}, which the manifest names, is absent; {_ACTION}") from error
    except Exception as error:  # fsspec's file systems raise errors of many libraries
        if _may_pass(error):
            raise JobError(f"{name} cannot be fetched: {error}; try again when the store is back") from error
        raise UserError(
            f"{cache_folder()}: no room for {name}; free space, lower TOKENFREE_CACHE_GB, or set TOKENFREE_CACHE to "
            "a folder on a larger disk"
        ) from error
    else:
        if digest != sha256:
            raise JobError(f"{name} has SHA-256 {digest}, its manifest says {sha256}; {_ACTION}")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _may_pass(error: Exception) -> bool:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return not full and not isinstance(error, FileNotFoundError)


def _evict(limit: int) -> None:
    files = []
    for path in cache_folder().glob("*.arrow"):
        # Another worker has removed it.
        with contextlib.suppress(FileNotFoundError):
            files.append((path.stat(), path))
    total = sum(status.st_size for status, _ in files)
    for status, path in sorted(files, key=lambda entry: entry[0].st_mtime):
        if total > limit:
            path.unlink(missing_ok=True)
            total -= status.st_size
