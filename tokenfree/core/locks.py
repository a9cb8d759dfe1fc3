"""The lock of an output directory: a file `_lock` on a disk (`claimed`), numbered objects in a store (`hold`).

    _lock/00000007    the newest of its numbers says who holds the lock, or that it is free

Numbers only grow, and the object of a number is written on the condition that there is none (If-None-Match): of all who
try, one succeeds. Whoever wrote the newest number holds the lock, so there are never two. The holder writes its object
anew every few seconds. One that has been silent for the time of several such beats, by the clock of the one who waits,
is taken over by the next number, and so is one whose process was on this machine and is no more. Clocks of two machines
are never compared. The former holder, if it lives after all, finds the newer number before its next commit (`check`,
`HeldStorage`). A commit before which it had just looked may still be on its way: whoever took over waits a while first.
"""

from __future__ import annotations

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
GRACE = 5.0  # seconds from taking a lock over to the first write under it
UNKNOWN = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)  # the store knows no conditions
_FREE = "free"


@contextlib.contextmanager
def claimed(storage: Storage) -> Iterator[str | None]:
    """Hold a directory against other commands; yields the number of the lock of a store, None on a disk.

    Raises:
        UserError: another command writes into it, or it cannot be written to.
    """
    held = UserError(f"{storage.url}: another command writes into it. Wait for it or give another output")
    if not storage.is_local:
        with hold(storage, held) as number:
            yield number
        return
    path = Path(storage.path(LOCK))
    with contextlib.ExitStack() as stack:
        with storage.explained():
            _enter(stack, path, held)
        try:
            yield None
        finally:
            path.unlink(missing_ok=True)  # while it is held: who waited for it finds that it is gone, and makes another
            storage.remove_if_empty()


def _enter(stack: contextlib.ExitStack, path: Path, held: UserError) -> None:
    while True:
        os.makedirs(path.parent, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another has just ended, and removed the directory
            stack.enter_context(lock(path, seconds=0, held=held))
            return


@contextlib.contextmanager
def hold(storage: Storage, held: Exception) -> Iterator[str]:
    """Hold the lock of the directory `storage`; yields the number under which it is held, for `check`.

    Raises:
        held: another holds it.
        UserError: the store cannot keep a second one out.
        JobError: the store could not be used for minutes.
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
        with contextlib.suppress(Exception):  # a lock that is not given back becomes free by its silence
            _create(storage, number + 1, {**content, "state": _FREE})
            _remove_up_to(storage, number)


def check(storage: Storage, number: str) -> None:
    """See that the lock is still held under `number`.

    Raises:
        TakenOverError: another command took it over.
        JobError: the store could not be used for minutes.
    """
    if retry_store(storage, lambda: _numbers(storage))[-1:] != [int(number)]:
        _, content = _newest(storage)
        raise TakenOverError(
            f"{storage.url} was taken over by another command on {content.get('host', 'another machine')}"
        )


@dataclass(frozen=True)
class HeldStorage(Storage):
    """A directory in a store for one who holds its lock under `number`, and looks at it before each commit."""

    number: str

    def check(self) -> None:
        """See that the lock is still held; see `check`."""
        check(self, self.number)

    def _commit(self, source: str, name: str) -> None:
        self.check()
        super()._commit(source, name)


def _acquire(storage: Storage, content: Mapping[str, Any], held: Exception) -> tuple[int, bool]:
    """The number under which the lock is held now, and whether it was taken from one who had not given it back."""
    while True:
        newest, found = _newest(storage)
        taken_over = bool(newest) and found.get("state") != _FREE
        if taken_over and not _is_of_the_dead(found) and not _is_silent(storage, newest, found, held):
            continue  # it was given back
        if not _create(storage, newest + 1, content) or _newest(storage)[0] != newest + 1:
            raise held  # another was quicker
        _remove_up_to(storage, newest)
        return newest + 1, taken_over


def _is_silent(storage: Storage, newest: int, found: Mapping[str, Any], held: Exception) -> bool:
    """Watch a holder for the time of several beats: True where it has none, False once the lock is given back.

    Raises:
        held: it lives.
    """
    began = time.monotonic()
    while (looked := time.monotonic()) - began < BEAT * BEATS_MISSED:
        time.sleep(BEAT / 10)
        now = _newest(storage)
        if time.monotonic() - looked > BEAT:  # the store was away, and perhaps for the holder too
            began = time.monotonic()
        if now[1].get("state") == _FREE:
            return False
        if now != (newest, found):
            raise held
    return True


def _beat(storage: Storage, number: int, content: Mapping[str, Any], ended: threading.Event) -> None:
    beats = 0
    while not ended.wait(BEAT):
        with contextlib.suppress(Exception):  # a store that is away for a while; the next beat tries again
            if _newest(storage)[0] != number:
                return
            beats += 1
            storage.write_json(f"{LOCK}/{_name(number)}", {**content, "beats": beats})


def _newest(storage: Storage) -> tuple[int, dict[str, Any]]:
    """The newest number and what is written under it; 0 where the lock was never held."""

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
    """Write the object of a number that has none; False where another did."""

    def attempt() -> bool:
        name = f"{LOCK}/{_name(number)}"
        try:
            storage.create(name, json.dumps(content).encode())
        except OSError as error:  # refused, or the answer to an attempt that succeeded was lost: what is there tells
            found = storage.read_json(name)
            if found is None and not isinstance(error, FileExistsError):  # of another, who has removed it since
                raise
            return found == content
        return True

    return retry_store(storage, attempt)


def _remove_up_to(storage: Storage, number: int) -> None:
    """Remove numbers that are not the newest."""
    for old in _numbers(storage):
        if old <= number:
            storage.remove(f"{LOCK}/{_name(old)}")


def _refuse_without_conditions(storage: Storage) -> None:
    """Try whether the store writes an object on the condition that there is none.

    Raises:
        UserError: it does not.
    """
    name = f"{LOCK}/try-{uuid.uuid4().hex}"

    def attempt() -> bool:
        try:
            storage.create(name, b"first")
            with contextlib.suppress(OSError):  # each store refuses in words of its own: what is there tells
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
    """What tells process ids of this machine, boot and container from others; None where it cannot be known."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _is_of_the_dead(content: Mapping[str, Any]) -> bool:
    """Whether the holder was a process of this machine that has ended. Another process may have its id by now: then
    the holder is silent."""
    if content.get("place") is None or content["place"] != _place():
        return False
    try:
        return psutil.Process(content["pid"]).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
