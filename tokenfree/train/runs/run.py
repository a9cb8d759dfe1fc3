"""What a run is to those who train and read it, wherever it is kept: in a folder or in an object store."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from tokenfree.train.runs.checkpoints import Checkpoint, Warn
from tokenfree.train.runs.run_config import RunConfig


class Run(Protocol):
    """A run and what is done with it as training goes on."""

    folder: Path  # where the worker of rank 0 reads and writes
    name: str  # its path or address

    def open(self, config: RunConfig[Any]) -> None:
        """Make a new run, or see that the existing one is of the same recipe and data; see `open_run`.

        Raises:
            UserError: it is of others, or cannot be written.
        """
        ...

    def write_config(self, config: RunConfig[Any]) -> None:
        """For the command that has it claimed: put `config` in place of its own.

        Raises:
            JobError: the run was taken over by another command.
        """
        ...

    def reopen(self, config: RunConfig[Any]) -> None:
        """For the command that has it claimed: make it a run of `config`, and one that is not complete.

        Raises:
            UserError: it cannot be written.
        """
        ...

    def claimed(self) -> AbstractContextManager[str | None]:
        """Held against other commands; gives the owner that workers need to write to it (see `run_at`).

        Raises:
            UserError: another command trains this run.
        """
        ...

    def written(self) -> AbstractContextManager[None]:
        """For the worker of rank 0: in the block `folder` holds the run and is this worker's alone; after a block that
        raised nothing, what the folder holds is the run.

        Raises:
            JobError: another process still writes to the folder.
        """
        ...

    def result(self) -> dict[str, Any] | None:
        """The result of a complete run, else None.

        Raises:
            UserError: its file is damaged.
        """
        ...

    def events(self) -> list[dict[str, Any]]:
        """The lines of events.jsonl; none of a new run.

        Raises:
            UserError: a line of it is damaged.
        """
        ...

    def add_event(self, event: str, *, step: int | None = None, **more: Any) -> dict[str, Any]:
        """Append a line to events.jsonl while no worker lives; returns it."""
        ...

    def fetch(self) -> None:
        """Have the small files of an existing run in `folder`.

        Raises:
            UserError: there is no run.
        """
        ...

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, ascending; damaged ones included."""
        ...

    def newest(self, warn: Warn) -> Checkpoint | None:
        """The newest sound checkpoint, on this machine; `warn` is told of each damaged one passed over."""
        ...

    def here(self, checkpoint: Checkpoint) -> Checkpoint:
        """A checkpoint that the worker of rank 0 has, for a worker on this machine.

        Raises:
            JobError: it is damaged.
        """
        ...

    def at(self, step: int) -> Checkpoint:
        """The checkpoint of a step, on this machine.

        Raises:
            JobError: it is damaged, or there is none.
        """
        ...

    def saved(self, step: int, *, keep: int, best: int | None) -> None:
        """The checkpoint of `step` stands in `folder`: make it the run's, and remove old ones, see `prune`.

        Raises:
            JobError: the run was taken over by another command.
        """
        ...

    def publish(self) -> None:
        """Something happened that others are to see before the next checkpoint.

        Raises:
            JobError: the run was taken over by another command.
        """
        ...

    def keep(self, source: Path, name: str) -> None:
        """Copy a file of this machine into the run under `name`."""
        ...
