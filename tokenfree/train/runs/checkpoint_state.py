"""What a checkpoint says beside its tensors, and the one place where that becomes state.json and comes from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import with_config
from typing_extensions import TypedDict

from tokenfree.preprocess.common.stored.stored_files import OPEN, checked

_PROGRESS = "tally"  # the key of `CheckpointState.progress` in state.json


@dataclasses.dataclass(frozen=True)
class RunProgress:
    """How far a run has come, over all its starts; what result.json is made of."""

    loss: float = float("nan")  # of the last step, nats per target
    characters: int = 0  # trained on, special ones and padding left out
    seconds: float = 0.0  # in steps, validations and checkpoints left out
    validation: Mapping[str, float] | None = None  # the last one, by the names of its line in metrics.jsonl
    validated_at: int = -1  # its step; -1: none yet
    best_step: int | None = None  # the step of the best validation
    best_loss: float = float("inf")  # of that: what validations are compared by, such as nats per target; low is good

    def after_step(self, line: Mapping[str, float]) -> RunProgress:
        """The progress with a step, by its line of metrics."""
        return dataclasses.replace(
            self,
            loss=line["loss"],
            characters=self.characters + int(line["characters"]),
            seconds=self.seconds + line["seconds"],
        )

    def after_validation(self, step: int, validation: Mapping[str, float], badness: float) -> RunProgress:
        """The progress with the validation after `step`; the first of those with the lowest `badness` is the best."""
        progress = dataclasses.replace(self, validation=validation, validated_at=step)
        if badness < self.best_loss:
            return dataclasses.replace(progress, best_step=step, best_loss=badness)
        return progress


class _Used(TypedDict):
    train_seconds: float
    characters: int
    flops: float


@with_config(OPEN)
class _Report(TypedDict):
    report: int


class TrialProgress(TypedDict):
    """How far a trial of a sweep has come, see `tokenfree.train.sweep.trials.trial_session`."""

    steps: int  # that its budget is worth
    used: _Used  # since its beginning, over all workers
    report: _Report  # the last one


@dataclasses.dataclass(frozen=True)
class CheckpointState:
    """What a checkpoint says beside its tensors. Fields with a default are missing in some checkpoints."""

    step: int  # optimizer steps done
    seed: int  # train.seed
    recipe: str  # fingerprint of the recipe
    manifest: str  # fingerprint of the data; "" where weights were imported
    vocabulary: str | None  # SHA-256 of the vocabulary; None: the data have none
    loader: Mapping[str, str | int | float]  # what decides the batches, see `Loader.fingerprint`
    world_size: int  # workers that wrote it
    left_out: tuple[int, ...] = ()  # numbers of the batches that are not trained on, ascending
    recent_losses: tuple[float, ...] = ()  # against which the next loss is judged, the oldest first, nats per target
    progress: RunProgress | None = None  # of a run
    trial: TrialProgress | None = None  # of a sweep's trial

    def to_mapping(self) -> dict[str, Any]:
        """The content of state.json but for the hashes of files; what is None for want of a run or trial is not in."""
        mapping = dataclasses.asdict(self)
        progress, trial = mapping.pop("progress"), mapping.pop("trial")
        mapping |= {"left_out": list(self.left_out), "recent_losses": list(self.recent_losses)}
        return mapping | ({_PROGRESS: progress} if progress else {}) | ({"trial": trial} if trial is not None else {})

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> CheckpointState:
        """The state that `to_mapping` gave here or in another version: unknown keys are passed over, new ones default.

        Raises:
            ValueError: a key is missing that every checkpoint has, or is of another type; the message names it.
        """
        own = {**mapping, "progress": mapping.get(_PROGRESS)}
        needed = [field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING]
        missing = [name for name in needed if name not in own]
        if missing:
            raise ValueError(f"lacks {', '.join(missing)}")
        return checked(cls, own)
