"""The folder of a run: who may write to it, its checkpoints, its result. Runs in stores are in object_store.py.

<run>/config.yaml     recipe, data path and manifest fingerprint, written before anything starts; and its attempts
<run>/checkpoints/    see train/runs/checkpoints.py
<run>/metrics.jsonl   events.jsonl   tensorboard/      see train/runs/metrics.py
<run>/result.json     written last: the run is complete
<run>/ray/            storage and logs of Ray, where it was used
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.common.local_files import lock, write_atomically
from tokenfree.preprocess.common.storage import Storage
from tokenfree.train.runs.checkpoints import Checkpoint, Warn, name, newest, prune, read, steps
from tokenfree.train.runs.metrics import append_event
from tokenfree.train.runs.run_config import RunConfig, no_run, open_run
from tokenfree.train.runs.run_files import CONFIG_NAME, EVENTS, EVENTS_NAME, RESULT, RESULT_NAME


class RunFolder:
    """A run in a folder that all workers reach; see `tokenfree.train.runs.run.Run` for what its methods promise."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = str(folder)

    def open(self, config: RunConfig[Any]) -> None:
        """See `open_run`.

        Raises:
            UserError: it is a run of another recipe or other data, or cannot be written.
        """
        open_run(self.folder, config)

    def write_config(self, config: RunConfig[Any]) -> None:
        """Put `config` in place of its own."""
        write_atomically(self.folder / CONFIG_NAME, config.text())

    def reopen(self, config: RunConfig[Any]) -> None:
        """Remove its result, then write its config: killed in between, it is an unfinished run as it was before."""
        (self.folder / RESULT_NAME).unlink(missing_ok=True)
        self.write_config(config)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[str | None]:
        """Held by a lock file. The workers need no proof of it: the lock that they take in `written` tells.

        Raises:
            UserError: another command trains this run.
        """
        with lock(self.folder / "lock", seconds=0, held=trained_by_another(self.name)):
            yield None

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """The folder is the run, so that it is only locked.

        Raises:
            JobError: another process still trains the run.
        """
        with held_by_worker(self.folder, self.name):
            yield

    def result(self) -> dict[str, Any] | None:
        """The content of result.json, None where there is none yet."""
        try:
            return RESULT.json(Storage.at(str(self.folder)), RESULT_NAME)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def events(self) -> list[dict[str, Any]]:
        """The lines of events.jsonl; none of a new run."""
        return EVENTS.json_lines(Storage.at(str(self.folder)), EVENTS_NAME)

    def add_event(self, event: str, *, step: int | None = None, **more: Any) -> dict[str, Any]:
        """Append a line to events.jsonl; returns it."""
        return append_event(self.folder / EVENTS_NAME, event, step=step, **more)

    def fetch(self) -> None:
        """The files are here: only see that it is a run.

        Raises:
            UserError: there is no run in the folder.
        """
        if not (self.folder / CONFIG_NAME).is_file():
            raise no_run(self.name)

    def steps(self) -> list[int]:
        """See `tokenfree.train.runs.checkpoints.steps`."""
        return steps(self.folder / "checkpoints")

    def newest(self, warn: Warn) -> Checkpoint | None:
        """See `tokenfree.train.runs.checkpoints.newest`."""
        return newest(self.folder / "checkpoints", warn)

    def here(self, checkpoint: Checkpoint) -> Checkpoint:
        """The same checkpoint: all machines reach the folder."""
        return checkpoint

    def at(self, step: int) -> Checkpoint:
        """See `tokenfree.train.runs.checkpoints.read`."""
        return read(self.folder / "checkpoints" / name(step))

    def saved(self, step: int, *, keep: int, best: int | None) -> None:
        """See `tokenfree.train.runs.checkpoints.prune`."""
        prune(self.folder / "checkpoints", step=step, keep=keep, best=best)

    def publish(self) -> None:
        """Nothing to do: others look into the same folder. (A store copies its files and sees that it is not lost.)"""

    def keep(self, source: Path, name: str) -> None:
        """Copy a file into the folder under `name`."""
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


@contextlib.contextmanager
def held_by_worker(folder: Path, name: str) -> Iterator[None]:
    """Hold `folder`, made where it is not there, for one worker of the run `name`.

    A worker of an earlier, killed command may live a moment longer than that command, and one on a machine that is cut
    off until it has noticed that, after 45 seconds at most: it is waited for.

    Raises:
        JobError: it does not end.
    """
    held = JobError(f"another process still trains {name}; end it and run the same command again")
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder / "lock.worker", seconds=120, held=held):
        yield


def trained_by_another(name: str) -> UserError:
    """What a command is told that comes to the run `name` while another trains it."""
    return UserError(f"{name} is being trained by another command; wait for it or give another --output")
