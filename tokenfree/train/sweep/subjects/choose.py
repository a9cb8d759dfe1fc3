"""The subject of a sweep, by its recipe and what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenfree.core.errors import UserError
from tokenfree.train.data.mixture import Data, absolute
from tokenfree.train.loop.finetuning import TaskFiles
from tokenfree.train.sweep.space.recipe import TASK, SweepRecipe
from tokenfree.train.sweep.space.targets import Target
from tokenfree.train.sweep.subjects.base import Subject
from tokenfree.train.sweep.subjects.finetuning import FinetuningSubject, TaskInput, open_files
from tokenfree.train.sweep.subjects.pretraining import PretrainingSubject


def open_subject(sweep: SweepRecipe, data: Data | TaskInput, run: str) -> tuple[SweepRecipe, Subject]:
    """What the sweep trains on `data`, and the sweep with recipes that are complete.

    Args:
        sweep: of pretraining or of a task.
        data: a data directory or several, or the files of a task.
        run: the folder of the sweep.

    Raises:
        UserError: what is wrong with a recipe or the data; or they are of different kinds.
    """
    is_task = TASK in sweep.base
    if is_task and isinstance(data, Data):
        raise UserError("--data is for sweeps of pretraining; this recipe is fine-tuned: give --train and --dev")
    if isinstance(data, Data):
        return sweep, PretrainingSubject(absolute(data))
    if not is_task:
        raise UserError(
            "--train and --dev are for sweeps of fine-tuning; this recipe is one of pretraining: give --data"
        )
    return open_files(sweep, data, run)


def subject_of(recipe: Mapping[str, Any], parts: Any) -> Subject:
    """The subject of a trial with this recipe, of its `parts`."""
    if TASK not in recipe:
        return PretrainingSubject(parts)
    fields = {**parts, "files": TaskFiles(**parts["files"]), "target": Target(**parts["target"])}
    return FinetuningSubject(**fields)
