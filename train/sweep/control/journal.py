"""The journal of a sweep: every event that its course depends on, a line each, in the order in which they happened."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from train.sweep.history import Event


class Journal:
    """Appends events to a file; they are on disk when `append` returns. The one process that runs the sweep writes it.

    `on_event` hears of every event, those that were read included.
    """

    def __init__(self, path: Path, on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event
        self._file = path.open("a+b")
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._file.truncate(len(whole))  # what a killed process had half written
        for line in whole.splitlines():
            on_event(json.loads(line))

    def append(self, event: Event) -> None:
        """Write one event."""
        self._file.write(json.dumps(event).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._on_event(event)

    def close(self) -> None:
        """No more events come."""
        self._file.close()
