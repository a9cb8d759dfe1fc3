"""Local files: paths, atomic writes, hashes and locks; and the cache folder."""

import contextlib
import errno
import functools
import hashlib
import inspect
import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import filelock

from tokenfree.core.errors import JobError, UserError

# Folder in which the files of a directory are written.
TEMPORARY = "_tmp"
_HALF_WRITTEN = "_tmp_"
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


AnyPath = str | os.PathLike[str]
# Lone surrogates: Python uses these for bytes of a path that are not UTF-8.
_NOT_UTF8 = re.compile("[\ud800-\udfff]")


def is_utf8(text: str) -> bool:
    return _NOT_UTF8.search(text) is None


def without_surrogates(text: str) -> str:
    return text if text.isascii() else _NOT_UTF8.sub("\ufffd", text)


def expand_home(path: AnyPath) -> str:
    """Return a path or an address as text, with the home folder in place of `~` or `~USER` at its beginning.

    Raises UserError if there is no such home folder. A file named `~` is written `./~`.
    """
    text = os.fspath(path)
    whole = os.path.expanduser(text)
    if text.startswith("~") and whole == text:
        raise UserError(
            f"{text}: no home folder of this user is known. Write ./{text} for a file of that name."
        )
    return whole


def absolute_path(path: AnyPath) -> str:
    """Return a path in its absolute form. An address stays as it is."""
    text = expand_home(path)
    return text if "://" in text else os.path.abspath(text)


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def accepting_path(
    function: Callable[Concatenate[R, P], T], read: Callable[[AnyPath], R]
) -> Callable[Concatenate[R | AnyPath, P], T]:
    """Return `function` such that its first argument may also be a path or a name, which `read` turns into it."""
    signature = inspect.signature(function)
    first = next(iter(signature.parameters))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> T:
        bound = signature.bind(*args, **kwargs)
        if isinstance(bound.arguments[first], str | os.PathLike):
            bound.arguments[first] = read(bound.arguments[first])
        return function(*bound.args, **bound.kwargs)

    return call


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a small file so that readers see the whole old or new content.

    On an error, no temporary file remains.
    """
    temporary = path.with_name(f"{_HALF_WRITTEN}{path.name}_{os.getpid()}")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: str | os.PathLike[str]) -> None:
    """Flush a file's bytes, or a folder's names, to the disk, so that they survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_half_written(path: Path) -> bool:
    """Return True if a killed process left the file behind: one that was to be renamed, or the folder of such files."""
    return path.name == TEMPORARY or path.name.startswith(_HALF_WRITTEN)


def hash_file(path: str | os.PathLike[str], algorithm: str = "sha256") -> str:
    with open(path, "rb") as file:
        return hash_stream(file, algorithm)


def hash_stream(file: Any, algorithm: str = "sha256") -> str:
    """Return the digest, in hex, of the rest of a file opened for reading bytes, on any file system, block by block."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    # Not `hashlib.file_digest`, which leaves the position of a file in memory where it was.
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def lock(path: Path, *, seconds: float = math.inf, held: Exception | None = None) -> Iterator[None]:
    """Hold the lock file `path` against all other threads and processes, once it is free.

    The system releases the lock of a killed process. The empty file stays behind: removing it while others
    wait for it would let two of them in. Raises `held` (by default a JobError) if the lock is not free after
    `seconds`, and JobError if the file system has no locks.
    """
    # A soft lock is a file that a killed process leaves behind. Any thread may release the lock.
    file_lock = filelock.FileLock(
        path, timeout=seconds if math.isfinite(seconds) else -1, thread_local=False, fallback_to_soft=False
    )
    try:
        acquired = file_lock.acquire()
    except filelock.Timeout:
        raise held or JobError(f"{path}: another process still holds this lock") from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        raise JobError(
            f"cannot lock {path}: {error.strerror}; use a file system that has locks (NFS 4, Lustre with -o flock, a "
            "local disk)"
        ) from None
    with acquired:
        yield


def cache_folder() -> Path:
    return Path(expand_home(os.environ.get("TOKENFREE_CACHE") or "~/.cache/tokenfree"))
