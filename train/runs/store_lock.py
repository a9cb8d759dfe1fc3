"""A lock on a run in an object store: an object that its holder writes anew every few seconds.

There are no locks in object stores, and the holder may be killed at any moment. A lock that nobody wrote anew for the
time of several beats, by the clock of the one who waits, is taken over; at once where its holder was on this machine
and is no more. The holder's workers look at it before they commit a checkpoint (see train/runs/object_store.py).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

from tokenfree.preprocess.common.storage import Storage
from tokenfree.train.machine.processes import start_of
from tokenfree.train.runs.store_retry import retry_store

NAME = "lock"
BEAT = 5.0  # seconds
BEATS_MISSED = 4


def read(storage: Storage) -> dict[str, Any] | None:
    """The content of the lock, None where there is none.

    Raises:
        JobError: the store could not be read for minutes.
    """
    return retry_store(storage, lambda: storage.read_json(NAME))


@contextlib.contextmanager
def hold(storage: Storage, held: Exception) -> Iterator[str]:
    """Hold the lock of the run in `storage`; yields the name of this holder.

    Raises:
        held: another holds it.
        JobError: the store could not be used for minutes.
    """
    owner = uuid.uuid4().hex
    _wait_until_free(storage, held)
    content = {"owner": owner, "host": socket.gethostname(), "pid": os.getpid(), "start": start_of(os.getpid())}
    beats = 0
    retry_store(storage, lambda: storage.write_json(NAME, {**content, "beats": beats}))
    if _owner(storage) != owner:  # of two that came at once, the later one writes last
        raise held
    ended = threading.Event()

    def beat() -> None:
        nonlocal beats
        while not ended.wait(BEAT):
            with contextlib.suppress(Exception):  # a store that is away for a while; the next beat tries again
                if _owner(storage) == owner:
                    beats += 1
                    storage.write_json(NAME, {**content, "beats": beats})

    thread = threading.Thread(target=beat, name="lock", daemon=True)
    thread.start()
    try:
        yield owner
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(Exception):
            if _owner(storage) == owner:
                storage.remove(NAME)


def _owner(storage: Storage) -> str | None:
    return (read(storage) or {}).get("owner")


def _wait_until_free(storage: Storage, held: Exception) -> None:
    found = read(storage)
    until = time.monotonic() + BEAT * BEATS_MISSED
    while found is not None and not _is_of_the_dead(found):
        if time.monotonic() >= until:
            return
        time.sleep(BEAT / 10)
        now = read(storage)
        if now is not None and now != found:
            raise held
        found = now


def _is_of_the_dead(lock: dict[str, Any]) -> bool:
    """Whether the holder was a process of this machine that has ended. Its start tells it from a later one."""
    return lock["host"] == socket.gethostname() and lock["start"] is not None and start_of(lock["pid"]) != lock["start"]
