"""A directory on a disk or in an object store, in which every visible file is complete, even after a kill.

Local files are written under `_tmp/`, hashed, then renamed. Object stores receive the finished object in one
put.
"""

import contextlib
import errno
import functools
import json
import math
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import TEMPORARY, AnyPath, expand_home, hash_file, is_utf8, sync
from tokenfree.core.machine import install_command

_PROCESS_FOLDERS = ("/dev/", "/proc/")  # their content differs from process to process


def check_address(address: str, source: str = "") -> None:
    """Raise UserError for an address that is not UTF-8 or that fsspec would interpret differently (`::`)."""
    place = ": ".join(filter(None, (source, address)))
    if not is_utf8(address):
        raise UserError(f"{place}: this path is not UTF-8; rename it")
    if "::" in address:
        raise UserError(
            f"{place}: '::' in a path would stand for a chain of file systems; rename it, or copy it first"
        )


def check_is_stored(path: str, source: str = "") -> None:
    """Raise UserError for a pipe, a socket or a device like /dev/stdin, because inputs are read more than once."""
    is_stored = os.path.isfile(path) or os.path.isdir(path)
    if os.path.exists(path) and not (is_stored and not os.path.abspath(path).startswith(_PROCESS_FOLDERS)):
        place = ": ".join(filter(None, (source, path)))
        raise UserError(f"{place}: is not a file, but a pipe, socket or device; save it as a file first")


T = TypeVar("T")


def retry(
    act: Callable[[], T],
    *,
    again: Callable[[Exception], bool],
    pause: float,
    longest_pause: float = math.inf,
    attempts: int | None = None,
    seconds: float = math.inf,
    progressed: Callable[[], bool] = lambda: False,
    notice: Callable[[Exception, float], None] = lambda error, wait: None,
) -> T:
    """Return what `act` returns as soon as an attempt succeeds, or raise the error of the last attempt.

    Args:
        again: Returns True if an error may be temporary. Other errors are raised at once.
        pause: Seconds before the second attempt, doubled for each attempt after it.
        longest_pause: Maximum of growing pauses, in seconds.
        attempts: Maximum number of consecutive failures; None for any number.
        seconds: No attempt begins later than this after the first one.
        progressed: Returns True if a failed attempt still made progress. Failures are then counted from one
            again.
        notice: Receives each error and the seconds until the next attempt.
    """
    until, failures = time.monotonic() + seconds, 0
    while True:
        try:
            return act()
        except Exception as error:
            if not again(error):
                raise
            failures = 1 if progressed() else failures + 1
            wait = min(pause * 2 ** (failures - 1), longest_pause)
            if failures == attempts or time.monotonic() + wait > until:
                raise
            notice(error, wait)
            time.sleep(wait)


# File systems whose `mode="create"` is one conditional request. On others, fsspec looks first and then
# writes.
CREATING_PROTOCOLS = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"}
# File systems that cache listings, which all threads of a process share. A thread could cache a listing while
# another writes, and the other would then miss its own file.
LISTING_PROTOCOLS = CREATING_PROTOCOLS - {"memory"}
PUT_ATTEMPTS, PUT_PAUSE = 3, 0.4  # in addition to the retries of each fsspec implementation; seconds
DENIED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.EISDIR)


@dataclass
class NewFile:
    """A file that is written at the local `path`. Its size and SHA-256 are set once it is committed."""

    path: str
    size: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class Storage:
    """The directory `url`. Names of files are relative to it, with `/`. Cheap to create and to pickle.

    Methods that write raise UserError if the directory is not writable or is full. Methods that read a file
    raise FileNotFoundError if there is none.
    """

    url: str

    @classmethod
    def at(cls, url: AnyPath) -> Self:
        """Return the directory `url` in its absolute form.

        Raises UserError if its address or protocol is unusable.
        """
        url = expand_home(url)
        check_address(url)
        try:
            fs, root = _file_system(url)
        except ImportError as error:
            raise UserError(f"{url}: {missing_package(error)}") from None
        except ValueError as error:
            raise UserError(
                f"{url}: no file system for this address ({error}); use a path or a known protocol"
            ) from None
        absolute = root if isinstance(fs, LocalFileSystem) else str(fs.unstrip_protocol(root))
        check_address(absolute)
        return cls(absolute)

    @functools.cached_property
    def _location(self) -> tuple[Any, str]:
        fs, root = _file_system(self.url)
        return fs, root.rstrip("/")

    @property
    def fs(self) -> Any:
        return self._location[0]

    @property
    def is_local(self) -> bool:
        """True if files can be renamed and memory-mapped."""
        return isinstance(self.fs, LocalFileSystem)

    @property
    def is_shared(self) -> bool:
        """True if other processes see what this one writes."""
        return "memory" not in _protocols(self.fs)

    @property
    def creates(self) -> bool:
        """True if `create` may be used: the store itself can write on the condition that the file does not exist."""
        return bool(_protocols(self.fs) & CREATING_PROTOCOLS)

    def path(self, name: str) -> str:
        return f"{self._location[1]}/{name}" if name else self._location[1]

    def size(self, name: str) -> int | None:
        """Return the bytes of a file, or None if there is none."""
        try:
            info = self.fs.info(self.path(name))
        except FileNotFoundError:
            return None
        return info["size"] if info["type"] == "file" else None

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names in `folder`, or [] if it does not exist.

        Raises UserError if it is a file.
        """
        # Other workers write too.
        self.fs.invalidate_cache()
        try:
            entries = self.fs.ls(self.path(folder), detail=False)
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise UserError(
                f"{self.url}: a file stands where a directory is needed; give another one"
            ) from None
        here = self.path(folder).rstrip("/")
        return sorted(
            {entry.rstrip("/").rsplit("/", 1)[-1] for entry in entries if entry.rstrip("/") != here}
        )

    def find(self) -> list[str]:
        """Return the names of all files, including those in folders, sorted."""
        self.fs.invalidate_cache()
        here = len(self.path("")) + 1
        return sorted(path[here:] for path in self.fs.find(self.path("")))

    def read_bytes(self, name: str) -> bytes:
        return bytes(self.fs.cat_file(self.path(name)))

    def read_json(self, name: str) -> Any:
        """Return the content of a JSON file, or None if it is missing or damaged, so that it is written again."""
        try:
            return json.loads(self.read_bytes(name))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError):
            return None

    def read_ranges(self, ranges: list[tuple[str, int, int]]) -> list[pa.Buffer]:
        """Return the bytes [start, end) of each (name, start, end), in order.

        Local files are mapped, not fetched.
        """
        if self.is_local:
            return [_map(self.path(name)).slice(start, end - start) for name, start, end in ranges]
        paths = [self.path(name) for name, _, _ in ranges]
        starts, ends = [start for _, start, _ in ranges], [end for _, _, end in ranges]
        return [
            pa.py_buffer(bytes(part)) for part in self.fs.cat_ranges(paths, starts, ends, on_error="raise")
        ]

    def open(self, name: str) -> Any:
        return self.fs.open(self.path(name), "rb")

    def check(self) -> None:
        """Raise an error if nothing may be written here any more. Called before each commit."""

    @contextlib.contextmanager
    def new_file(self, name: str) -> Iterator[NewFile]:
        """Yield a path to write to, then commit the file under `name`. An error leaves nothing behind."""
        with self.explained():
            if self.is_local:
                # Before the folder is created.
                self.check()
                folder = self.path(TEMPORARY)
                os.makedirs(folder, exist_ok=True)
            else:
                folder = tempfile.mkdtemp(prefix="tokenfree-")
            new = NewFile(f"{folder}/{uuid.uuid4().hex}")
            try:
                yield new
                new.size, new.sha256 = os.path.getsize(new.path), hash_file(new.path)
                self._commit(new.path, name)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(new.path)
                if not self.is_local:
                    shutil.rmtree(folder, ignore_errors=True)

    def write_bytes(self, name: str, data: bytes) -> NewFile:
        with self.new_file(name) as new:
            Path(new.path).write_bytes(data)
        return new

    def create(self, name: str, data: bytes) -> None:
        """Write a small file unless it exists.

        Of several writers, one succeeds; the others raise an OSError.
        """
        self.fs.pipe_file(self.path(name), data, mode="create")

    def put(self, source: str, name: str) -> None:
        """Commit a copy of the local file `source`. Not for local directories."""
        with self.explained():
            self._commit(source, name)

    def get(self, name: str, target: str) -> None:
        self.fs.get_file(self.path(name), target)

    def write_json(self, name: str, value: Any) -> NewFile:
        """Commit `value` as JSON whose bytes depend only on `value`, and return their size and SHA-256."""
        return self.write_bytes(
            name, (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
        )

    def remove(self, *names: str) -> None:
        """Remove a file, or a folder with its content, if it exists, or several that exist."""
        with self.explained(), contextlib.suppress(FileNotFoundError):
            self.fs.rm([self.path(name) for name in names], recursive=True)
        self.fs.invalidate_cache()

    def remove_if_empty(self) -> None:
        if self.is_local and not self.names():
            with contextlib.suppress(OSError):
                os.rmdir(self.path(""))

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raise UserError for errors of a directory that is not writable. Other errors pass unchanged."""
        try:
            yield
        except OSError as error:
            missing_bucket = not self.is_local and isinstance(error, FileNotFoundError)
            if (
                error.errno in DENIED
                or missing_bucket
                or isinstance(error, (PermissionError, FileExistsError))
            ):
                reason = error.strerror or str(error)
                raise UserError(
                    f"{self.url}: cannot write here ({reason}); free space, change its rights or give another directory"
                ) from error
            raise

    def _commit(self, source: str, name: str) -> None:
        self.check()
        target = self.path(name)
        if self.is_local:
            # Before the final name is visible.
            sync(source)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(source, target)
        else:
            retry(
                lambda: self.fs.put_file(source, target),
                again=_may_pass,
                pause=PUT_PAUSE,
                attempts=PUT_ATTEMPTS,
            )


def _map(path: str) -> pa.Buffer:
    with pa.memory_map(path) as file:
        return file.read_buffer(file.size())


def _file_system(url: str) -> tuple[Any, str]:
    without = {"use_listings_cache": False} if url.partition("://")[0] in LISTING_PROTOCOLS else {}
    fs, root = fsspec.core.url_to_fs(url, **without)
    return fs, root


def missing_package(error: ImportError) -> str:
    extra = "s3" if "s3fs" in str(error) else "gcs" if "gcsfs" in str(error) else None
    return f"{error}: {install_command(extra)}" if extra else str(error)


def _protocols(fs: Any) -> set[str]:
    return {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)


def _may_pass(error: Exception) -> bool:
    refused = isinstance(error, (PermissionError, FileNotFoundError))
    return isinstance(error, OSError) and not refused and error.errno not in DENIED


SECONDS = 300.0  # how long failures are retried
PAUSE, LONGEST_PAUSE = 0.2, 30.0


def retry_store(storage: Storage, act: Callable[[], T]) -> T:
    """Return `act()`, retried for `SECONDS`.

    Raises UserError if the store is unusable, JobError if unavailable.
    """

    def attempt() -> T:
        with storage.explained():
            return act()

    # fsspec's file systems raise errors of many libraries.
    try:
        return retry(
            attempt, again=_store_may_recover, pause=PAUSE, longest_pause=LONGEST_PAUSE, seconds=SECONDS
        )
    except Exception as error:
        if not _store_may_recover(error):
            raise
        raise JobError(
            f"{storage.url} could not be used for {SECONDS:.0f} seconds ({error}); run the same command again "
            "when the store is back: it resumes from its last commit"
        ) from error


def _store_may_recover(error: Exception) -> bool:
    return not isinstance(error, (UserError, FileNotFoundError))
