"""The median stopping rule (Golovin et al. 2017, "Google Vizier", section 3.2.2)."""

import statistics
from typing import Annotated, Literal

from pydantic import Field

from preprocess.settings import settings
from train.sweep.history import History, Record, Verdict
from train.sweep.schedulers.base import Rule


@settings
class Config(Rule):
    """A trial stops whose best loss is above the median of the others' mean losses up to the same report."""

    name: Literal["median_stopping"] = "median_stopping"
    grace: Annotated[int, Field(ge=1)] = 1  # reports before the first decision
    min_trials: Annotated[int, Field(ge=1)] = 3  # others that came as far, without which nothing is decided

    def verdict(self, history: History, trial: Record) -> Verdict:
        place = trial.place
        if place < self.grace:
            return "go"
        means = [_mean(other, place) for other in history.trials.values() if other is not trial]
        known = [mean for mean in means if mean is not None]
        if len(known) < self.min_trials:
            return "go"
        best = min(loss for report in trial.reports if (loss := trial.loss_at(report["report"])) is not None)
        return "stop" if best > statistics.median(known) else "go"


def _mean(trial: Record, place: int) -> float | None:
    """The mean of its losses up to the report `place`; None where it did not come there."""
    if trial.loss_at(place) is None:
        return None
    losses = [trial.loss_at(report["report"]) for report in trial.reports if report["report"] <= place]
    numbers = [loss for loss in losses if loss is not None]
    return statistics.fmean(numbers) if numbers else None
