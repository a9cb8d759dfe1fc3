"""The journal of a sweep: every event a line, in the order in which they happened; see history.py for the events.

It is the one truth of a sweep: what a killed one goes on from, and what its table, its files and its page are made of.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import whole_lines
from tokenfree.train.sweep.control.history import Event, History
from tokenfree.train.sweep.control.sweep_files import EVENT_LINE
from tokenfree.train.sweep.space.targets import LOSS, Target

JOURNAL = "journal.jsonl"


class Journal:
    """Appends events to the file `path`. The one process that runs the sweep writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    def open(self) -> list[Event]:
        """Open the file for events to come, and return those that it holds; what a kill left half written is cut.

        Raises:
            UserError: a whole line of it is damaged.
        """
        file = self._file = self.path.open("a+b")
        file.seek(0)
        lines = list(whole_lines(file))
        file.truncate(sum(map(len, lines)))
        return EVENT_LINE.from_json_lines(lines, str(self.path))

    def append(self, event: Event) -> None:
        """Write one event; it is on disk when this returns."""
        assert self._file is not None, "a journal is opened before events are appended"
        self._file.write(json.dumps(event).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """No more events come."""
        if self._file is not None:
            self._file.close()


def read_history(folder: Path, *, seeds: int, reports: int, target: Target = LOSS) -> History:
    """What is known of the sweep in `folder`, whether it runs, was killed or has ended; nothing where it has not begun.

    `seeds` (trials of a setting), `reports` (of a trial) and `target` (what says how good it is) are those of its
    recipe.

    Raises:
        UserError: the journal is damaged.
    """
    events = EVENT_LINE.json_lines(Storage.at(str(folder)), JOURNAL)
    return replayed(History(seeds, reports, target), events, folder / JOURNAL)


def replayed(history: History, events: Iterable[Event], path: Path) -> History:
    """What is known after the events of the journal at `path`.

    Raises:
        UserError: one tells of a trial that none before it proposed.
    """
    for number, event in enumerate(events, 1):
        if "trial" in event and event["trial"] not in history.trials:
            raise EVENT_LINE.damaged(f"{path}: line {number}", f"no line before it proposes {event['trial']!r}")
        history = history.after(event)
    return history
