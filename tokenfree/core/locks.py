"""The lock of an output directory: a file `_lock` on a disk (`claimed`), numbered objects in a store (`hold`).

    _lock/00000007    the newest number names the holder of the lock, or marks it as free

Numbers only grow. The object of a number is written on the condition that it does not exist (If-None-Match),
so only one of several writers succeeds. The writer of the newest number holds the lock, so there are never
two holders.

The holder rewrites its object every few seconds. A waiting command takes the lock over with the next number
in two cases: the holder missed several beats, or its process was on this machine and has ended. Beats are
timed by the clock of the waiting command; clocks of two machines are never compared.

A former holder that is still alive finds the newer number before its next commit (`check`, `HeldStorage`). A
commit that it had checked just before may still be under way, so the new holder waits a while before it
writes.
"""

import contextlib
import errno
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tokenfree.core.errors import TakenOverError, UserError
from tokenfree.core.files import lock
from tokenfree.core.storage import Storage, retry_store

LOCK = "_lock"
BEAT = 5.0  # seconds
BEATS_MISSED = 4
GRACE = 5.0  # seconds between taking over a lock and the first write
# The store does not support conditions.
UNKNOWN = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_FREE = "free"


@contextlib.contextmanager
def claimed(storage: Storage) -> Iterator[str | None]:
    """Hold a directory.

    Yield the number of a store's lock, or None on a disk. Raises UserError if it is in use.
    """
    held = UserError(f"{storage.url}: another command writes into it. Wait for it or give another output")
    if not storage.is_local:
        with hold(storage, held) as number:
            yield number
        return
    try:
        with exclusive(Path(storage.path(LOCK)), held):
            yield None
    finally:
        storage.remove_if_empty()


@contextlib.contextmanager
def exclusive(path: Path, held: UserError) -> Iterator[None]:
    """Hold the lock file `path`, which exists only meanwhile. Raises `held` if another command holds it.

    Raises UserError if its folder is not writable.
    """
    with contextlib.ExitStack() as stack:
        with Storage.at(str(path.parent)).explained():
            while True:
                os.makedirs(path.parent, exist_ok=True)
                # Another command has just ended and removed the directory.
                with contextlib.suppress(FileNotFoundError):
                    stack.enter_context(lock(path, seconds=0, held=held))
                    break
        try:
            yield
        finally:
            # While held: a waiting command then finds it gone and creates another.
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def hold(storage: Storage, held: Exception) -> Iterator[str]:
    """Hold the lock of the directory `storage`. Yield the number under which it is held, for `check`.

    Raises `held` if another command holds the lock, UserError if the store cannot exclude a second command,
    and JobError if the store could not be used for minutes.
    """
    _refuse_without_conditions(storage)
    content = {"owner": uuid.uuid4().hex, "host": socket.gethostname(), "place": _place(), "pid": os.getpid()}
    number, taken_over = _acquire(storage, content, held)
    ended = threading.Event()
    thread = threading.Thread(target=_beat, args=(storage, number, content, ended), name="lock", daemon=True)
    thread.start()
    try:
        if taken_over:
            time.sleep(GRACE)
            check(storage, _name(number))
        yield _name(number)
    finally:
        ended.set()
        thread.join()
        # A lock that is not released becomes free after missed beats.
        with contextlib.suppress(Exception):
            _create(storage, number + 1, {**content, "state": _FREE})
            _remove_up_to(storage, number)


def check(storage: Storage, number: str) -> None:
    """Raise TakenOverError if the lock is no longer held under `number`, JobError if the store is unavailable."""
    if retry_store(storage, lambda: _numbers(storage))[-1:] != [int(number)]:
        _, content = _newest(storage)
        raise TakenOverError(
            f"{storage.url} was taken over by another command on {content.get('host', 'another machine')}"
        )


@dataclass(frozen=True)
class HeldStorage(Storage):
    """A directory in a store whose lock is held under `number`. The lock is checked before each commit."""

    number: str

    def check(self) -> None:
        check(self, self.number)


def _acquire(storage: Storage, content: Mapping[str, Any], held: Exception) -> tuple[int, bool]:
    """Return the number under which the lock is now held, and True if its last holder had not released it."""
    while True:
        newest, holder = _newest(storage)
        taken_over = bool(newest) and holder.get("state") != _FREE
        if taken_over and not _has_ended(holder) and not _is_silent(storage, newest, holder, held):
            # It was released.
            continue
        if not _create(storage, newest + 1, content) or _newest(storage)[0] != newest + 1:
            # Another command was faster.
            raise held
        _remove_up_to(storage, newest)
        return newest + 1, taken_over


def _is_silent(storage: Storage, newest: int, holder: Mapping[str, Any], held: Exception) -> bool:
    """Watch a holder for several beats. Return True if it missed them all, False if it releases the lock."""
    began = time.monotonic()
    while (looked := time.monotonic()) - began < BEAT * BEATS_MISSED:
        time.sleep(BEAT / 10)
        now = _newest(storage)
        # The store was unavailable, perhaps for the holder too.
        if time.monotonic() - looked > BEAT:
            began = time.monotonic()
        if now[1].get("state") == _FREE:
            return False
        if now != (newest, holder):
            raise held
    return True


def _beat(storage: Storage, number: int, content: Mapping[str, Any], ended: threading.Event) -> None:
    beats = 0
    while not ended.wait(BEAT):
        # The store may be unavailable for a while; the next beat tries again.
        with contextlib.suppress(Exception):
            if _newest(storage)[0] != number:
                return
            beats += 1
            storage.write_json(f"{LOCK}/{_name(number)}", {**content, "beats": beats})


def _newest(storage: Storage) -> tuple[int, dict[str, Any]]:
    def read() -> tuple[int, dict[str, Any]]:
        numbers = _numbers(storage)
        if not numbers:
            return 0, {}
        content = storage.read_json(f"{LOCK}/{_name(numbers[-1])}")
        return numbers[-1], content if isinstance(content, dict) else {}

    return retry_store(storage, read)


def _numbers(storage: Storage) -> list[int]:
    return [int(name) for name in storage.names(LOCK) if name.isdigit()]


def _name(number: int) -> str:
    return f"{number:08d}"


def _create(storage: Storage, number: int, content: Mapping[str, Any]) -> bool:
    def attempt() -> bool:
        name = f"{LOCK}/{_name(number)}"
        try:
            storage.create(name, json.dumps(content).encode())
        except OSError as error:  # refused, or the response to a success was lost: the content tells
            stored = storage.read_json(name)
            # another's, removed since.
            if stored is None and not isinstance(error, FileExistsError):
                raise
            return stored == content
        return True

    return retry_store(storage, attempt)


def _remove_up_to(storage: Storage, number: int) -> None:
    for old in _numbers(storage):
        if old <= number:
            storage.remove(f"{LOCK}/{_name(old)}")


def _refuse_without_conditions(storage: Storage) -> None:
    name = f"{LOCK}/try-{uuid.uuid4().hex}"

    def attempt() -> bool:
        try:
            storage.create(name, b"first")
            # Each store refuses in its own words: the content tells.
            with contextlib.suppress(OSError):
                storage.create(name, b"second")
        except OSError as error:
            if error.errno not in UNKNOWN:
                raise
            return False
        return storage.read_bytes(name) == b"first"

    keeps = storage.creates and retry_store(storage, attempt)
    if storage.creates:
        storage.remove(name)
    if not keeps:
        raise UserError(
            f"{storage.url}: two commands could write here at once, for this store cannot refuse to write over an "
            "object that exists (If-None-Match); use S3, GCS, Azure or a path"
        )


def _place() -> str | None:
    """Return an id of this machine, boot and container, within which process ids are unique, or None if unknown."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _has_ended(content: Mapping[str, Any]) -> bool:
    if content.get("place") is None or content["place"] != _place():
        return False
    try:
        return psutil.Process(content["pid"]).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
