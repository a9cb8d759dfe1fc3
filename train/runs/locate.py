"""A run by its path or address, and the checkpoint that it is used with."""

from __future__ import annotations

from pathlib import Path

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.train.runs.checkpoints import Checkpoint, Warn
from tokenfree.train.runs.object_store import RunStore
from tokenfree.train.runs.run import Run
from tokenfree.train.runs.run_folder import RunFolder


def run_at(run: str | Path, owner: str | None = None) -> Run:
    """The run at a path or an address; `owner` is what `Run.claimed` gave, None for readers.

    Raises:
        UserError: there is no file system for such an address.
    """
    if "://" not in str(run):
        return RunFolder(Path(run).absolute())
    storage = Storage.at(str(run))
    return RunFolder(Path(storage.path(""))) if storage.is_local else RunStore(str(run), owner)


def best_checkpoint(run: str | Path) -> Checkpoint:
    """The checkpoint of a fine-tuning run that was the best on its development set; without one, or before the run has
    ended, the newest sound one.

    Raises:
        UserError: it has none.
        JobError: the best one is damaged.
    """
    place = run_at(run)
    best = (place.result() or {}).get("best_step")
    return newest_checkpoint(run) if best is None else place.at(best)


def newest_checkpoint(run: str | Path, warn: Warn | None = None) -> Checkpoint:
    """The newest sound checkpoint of the run at a path or an address, on this machine.

    `warn` is told of each damaged one that was passed over for it.

    Raises:
        UserError: it has none; the message names those that are damaged.
    """
    damaged: list[str] = []
    checkpoint = run_at(run).newest(damaged.append)
    if checkpoint is None:
        raise UserError(f"{run} has no sound checkpoint; " + ("; ".join(damaged) or "train it first"))
    if warn is not None:
        for warning in damaged:
            warn(warning)
    return checkpoint
