"""A function that speaks to Ray, in a process of its own, which the command outlives.

Ray ends a process that is connected to it, without a word, when the raylet of its node or one that holds its objects is
gone.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tokenfree.preprocess.common.errors import JobError, StoppedError
from tokenfree.train.loop.stopping import Stop, stop_on_signals
from tokenfree.train.machine.child import Child, ChildEnded

_INTERVAL = 0.2  # seconds between two looks at whether it is to stop
_SETTLE_SECONDS = 5.0  # in which the end of a raylet shows that ends in order


class LostPart(NamedTuple):
    """A part of Ray that is gone, in words, and who starts it again."""

    words: str
    is_ours: bool  # this command does

    def final(self, where: str) -> JobError:
        """What is said where it is not started again; `where` the same command would go on."""
        remedy = "look for a lack of memory" if self.is_ours else "start it"
        return JobError(f"{self.words}; {remedy}, and run the same command again: it goes on {where}")


class RayChild:
    """Calls of a function that is connected to Ray, each in a process of its own.

    The function gets a `Link` and arguments, sends its `Session`, pickled, once it has one, and then whatever it likes.
    It returns what of Ray was lost, in words, none of them where that cannot be told; None: it came to its end.

    Args:
        function: its name, as module:function; Ray is imported there only, in seconds.
        take: gets what it sends after the session.
        keep: gets a file with its standard error, where Ray writes dozens of lines, if it ended before its time.
        stops: whether SIGINT and SIGTERM are handed on to it, as the reason to stop, once it has its session.
    """

    def __init__(
        self, function: str, *, take: Callable[[Any], None], keep: Callable[[Path], object], stops: bool
    ) -> None:
        self._function, self._take, self._keep, self._stops = function, take, keep, stops
        self._environment = _environment()
        self.is_local = "RAY_ADDRESS" not in self._environment

    def call(self, *arguments: Any) -> LostPart | None:
        """One life of the process; None: the function came to its end.

        Raises:
            JobError: it was stopped by a signal, or Ray could not be started; or what the function raises.
        """
        session: bytes | None = None
        stop: Stop | None = None
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".txt"))
            child = stack.enter_context(Child(self._function, *arguments, environment=self._environment, errors=errors))
            for message in child.messages(_INTERVAL):
                if message is not None and session is None:  # before that, a signal ends all at once
                    session, stop = message, stack.enter_context(stop_on_signals()) if self._stops else None
                elif message is not None:
                    self._take(message)
                if stop:
                    child.send(stop.reason)
            try:
                words = child.result()
            except ChildEnded:
                words = ""
            if words is not None and stop:
                raise StoppedError(f"stopped by {stop.reason}; the same command goes on from the newest checkpoint")
            if words == "":
                with contextlib.suppress(OSError, JobError):  # the disk is full, or the store fails: told elsewhere
                    self._keep(Path(errors.name))
        if words is None:
            return None
        if session is None:
            raise JobError("Ray ended the process that was to connect to it; run the same command again")
        return LostPart(words, is_ours=self.is_local) if words else _what_was_lost(session, is_local=self.is_local)


def _what_was_lost(session: bytes, *, is_local: bool) -> LostPart:
    """Where Ray ended our process, which is all that it says of a loss."""
    if is_local:
        return LostPart("the Ray node of this machine (its raylet, or an agent that it needs) was lost", is_ours=True)
    until = time.monotonic() + _SETTLE_SECONDS
    try:
        while time.monotonic() < until:
            pickle.loads(session).check()
            time.sleep(_INTERVAL)
    except JobError as error:
        return LostPart(str(error), is_ours=False)
    return LostPart("Ray ended the process connected to its cluster, as it does at the loss of a node", is_ours=True)


def _environment() -> dict[str, str]:
    """That of this process, with the address of the Ray cluster that it is connected to, if it is to one."""
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return dict(os.environ)
    return {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
