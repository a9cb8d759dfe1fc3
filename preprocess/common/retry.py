"""Stores that fail now and then, or are away for minutes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from preprocess.errors import JobError, UserError
from preprocess.storage import Storage

T = TypeVar("T")
SECONDS = 300.0  # for which something that fails is tried again


def patiently(storage: Storage, act: Callable[[], T]) -> T:
    """Do what uses `storage`; what fails is tried again, ever more slowly, for as long as `SECONDS`.

    Raises:
        FileNotFoundError: as `act` does.
        UserError: the store says that this will not do.
        JobError: the store could not be used for so long.
    """
    until, pause = time.monotonic() + SECONDS, 0.2
    while True:
        try:
            with storage.explained():
                return act()
        except (UserError, FileNotFoundError):
            raise
        except Exception as error:  # fsspec's file systems raise errors of many libraries
            if time.monotonic() + pause > until:
                raise JobError(
                    f"{storage.url} could not be used for {SECONDS:.0f} seconds ({error}); run the same command again "
                    "when the store is back: it goes on from the last good checkpoint"
                ) from error
            time.sleep(pause)
            pause = min(2 * pause, 30.0)
