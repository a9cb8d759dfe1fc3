"""Stores that fail now and then, or are away for minutes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.common.retry import retry
from tokenfree.preprocess.common.storage import Storage

T = TypeVar("T")
SECONDS = 300.0  # for which something that fails is tried again
PAUSE, LONGEST_PAUSE = 0.2, 30.0


def retry_store(storage: Storage, act: Callable[[], T]) -> T:
    """Do what uses `storage`; what fails is tried again, ever more slowly, for as long as `SECONDS`.

    Raises:
        FileNotFoundError: as `act` does.
        UserError: the store says that this will not do.
        JobError: the store could not be used for so long.
    """

    def attempt() -> T:
        with storage.explained():
            return act()

    try:  # fsspec's file systems raise errors of many libraries
        return retry(attempt, again=_may_pass, pause=PAUSE, longest_pause=LONGEST_PAUSE, seconds=SECONDS)
    except Exception as error:
        if not _may_pass(error):
            raise
        raise JobError(
            f"{storage.url} could not be used for {SECONDS:.0f} seconds ({error}); run the same command again "
            "when the store is back: it goes on from what it last committed"
        ) from error


def _may_pass(error: Exception) -> bool:
    return not isinstance(error, (UserError, FileNotFoundError))
