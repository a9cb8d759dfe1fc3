"""Where the command and the worker of rank 0 meet under Ray: lines of progress one way, the wish to stop the other."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tokenfree.train.loop.stopping import Stop
from tokenfree.train.runs.metrics import Line, OnLine

_INTERVAL = 0.2  # seconds between two calls
_TIMEOUT = 20.0  # seconds for an answer, which without its head Ray may never give


class Channel:
    """An actor on the machine of the command. Calls return at once."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._asked: tuple[str, bool] | None = None

    def post(self, lines: list[Line]) -> tuple[str, bool] | None:
        """Add lines of metrics or events; returns the arguments of `Stop.ask` if training is to stop."""
        self._lines += lines
        asked = self._asked
        if asked is not None and asked[1]:
            self._asked = None  # the workers that are started again are not to stop again
        return asked

    def take(self) -> list[Line]:
        """The lines that were added since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def ask_to_stop(self, reason: str, goes_on: bool) -> None:
        """Have training stopped; a wish to end the run is not replaced by one that lets it go on."""
        if self._asked is None or not goes_on:
            self._asked = (reason, goes_on)


def make_channel() -> Any:
    """The handle of a `Channel` on this node."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor_class: Any = ray.remote(num_cpus=0)(Channel)
    return actor_class.options(scheduling_strategy=here).remote()


@contextlib.contextmanager
def forward_lines(channel: Any, progress: OnLine | None, stop: Stop) -> Iterator[None]:
    """In the command: hand the lines that come to `progress`, and a `stop` to the workers."""
    with _repeated(lambda: _forward(channel, progress, stop)):
        yield


@contextlib.contextmanager
def connect_worker(channel: Any, stop: Stop) -> Iterator[OnLine]:
    """In the worker of rank 0: yields what takes lines for the command; asks `stop` when an end is wanted."""
    waiting: list[Line] = []

    def post() -> None:
        lines = waiting.copy()
        asked = ray.get(channel.post.remote(lines), timeout=_TIMEOUT)
        del waiting[: len(lines)]
        if asked is not None:
            stop.ask(asked[0], goes_on=asked[1])

    with _repeated(post):
        yield waiting.append


def _forward(channel: Any, progress: OnLine | None, stop: Stop) -> None:
    if stop:
        channel.ask_to_stop.remote(stop.reason, False)
    for line in ray.get(channel.take.remote(), timeout=_TIMEOUT):
        if progress is not None:
            progress(line)


@contextlib.contextmanager
def _repeated(act: Callable[[], None]) -> Iterator[None]:
    """Do `act` over and over in a thread while the block lasts, and once after it."""
    ended = threading.Event()

    def run() -> None:
        while True:
            last = ended.wait(_INTERVAL)
            with contextlib.suppress(RayError):  # the cluster is going down
                act()
            if last:
                return

    thread = threading.Thread(target=run, name="channel", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
