"""Numbers of a run for TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

_FLUSH_INTERVAL = 10.0  # seconds


class ScalarWriter:
    """Appends numbers to an event file of its own in `folder`; what others there have of later steps is taken back.

    It writes by itself: the thread of tensorboardX's SummaryWriter ends in a traceback where the disk is full.

    Args:
        folder: made where it is not there.
        step: after which numbers come.
    """

    def __init__(self, folder: Path, *, step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._events = EventsWriter(str(folder / "events"))
        self._events.write_event(Event(step=step + 1, file_version="brain.Event:2"))
        self._events.write_event(Event(step=step + 1, session_log=SessionLog(status=SessionLog.START)))
        self._flushed_at = float("-inf")

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Write the values of a step by their names."""
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._events.write_event(Event(wall_time=time.time(), step=step, summary=summary))
        if time.monotonic() - self._flushed_at > _FLUSH_INTERVAL:
            self._flushed_at = time.monotonic()
            self._events.flush()

    def close(self) -> None:
        """Write what is left."""
        self._events.close()
