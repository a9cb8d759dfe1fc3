"""A run by its path or address, and the checkpoint that it is used with."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.train.runs.checkpoints import Checkpoint, name
from tokenfree.train.runs.object_store import RunStore
from tokenfree.train.runs.run import Run
from tokenfree.train.runs.run_folder import RunFolder

logger = logging.getLogger("tokenfree")


def run_at(run: str | Path, owner: str | None = None) -> Run:
    """The run at a path or an address; `owner` is what `Run.claimed` gave, None for readers.

    Raises:
        UserError: there is no file system for such an address.
    """
    if "://" not in str(run):
        return RunFolder(Path(run).absolute())
    storage = Storage.at(str(run))
    return RunFolder(Path(storage.path(""))) if storage.is_local else RunStore(str(run), owner)


def checkpoint_of(run: str | Path, step: int | None = None, *, best: bool = False) -> Checkpoint:
    """Return the checkpoint that the run at a path or an address is used with, on this machine.

    By default it is the last one of a run that has ended, or with `best` the best one of a fine-tuned run. Of a run
    that has not ended it is the newest sound one; a warning names each damaged one that is newer.

    Args:
        step: after which another checkpoint was made.

    Raises:
        UserError: there is no checkpoint, or none of `step`.
        JobError: the checkpoint is damaged.
    """
    place = run_at(run)
    steps, result = place.steps(), place.result() or {}
    if not steps:
        raise UserError(f"{run} has no checkpoint; train it first")
    if step is not None and step not in steps:
        raise UserError(f"{run} has no checkpoint of step {step}. Use one of these: {_listed(steps)}.")
    ended = result.get("best_step") if best else None
    wanted = next((each for each in (step, ended, result.get("steps")) if each is not None), None)
    damaged: list[str] = []
    if wanted is None:
        checkpoint = place.newest(damaged.append)
        if checkpoint is None:
            raise JobError(f"{run} has no sound checkpoint; {'; '.join(damaged)}")
        for message in damaged:
            logger.warning(message)
        return dataclasses.replace(checkpoint, damaged=tuple(damaged))
    try:
        return place.at(wanted)
    except JobError as error:
        others = [each for each in steps if each != wanted]
        if not others:
            raise JobError(f"{error}. {run} has no other; put a copy of it back.") from None
        raise JobError(
            f"{error}. Name another one of {run} with --step, or as --init-from {run}/checkpoints/{name(others[-1])}. "
            f"Its steps: {_listed(others)}."
        ) from None


def _listed(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps))
