"""The median stopping rule."""

import statistics
from typing import Annotated, Literal

from pydantic import Field

from tokenfree.preprocess.common.settings import settings
from tokenfree.train.sweep.control.history import History, Report, TrialState, Verdict
from tokenfree.train.sweep.control.slots import Scheduler


@settings
class Config(Scheduler):
    """A trial stops whose best loss is above the median of the others' mean losses up to the same report.

    Golovin et al. 2017, "Google Vizier: A Service for Black-Box Optimization", section 3.2.2. Here every other trial
    that came as far counts; in the paper only completed ones do.

    Attributes:
        name: `median_stopping`.
        grace: the number of the report that is the first at which a trial may stop.
        min_trials: how many others must have come as far; with fewer nothing is decided.
    """

    name: Literal["median_stopping"] = "median_stopping"
    grace: Annotated[int, Field(ge=1)] = 1
    min_trials: Annotated[int, Field(ge=1)] = 3

    def least_reports(self, reports: int) -> int:
        """Those up to `grace`."""
        return min(self.grace, reports)

    def verdict(self, history: History, trial: TrialState, report: Report) -> Verdict:
        """`stop` where the best loss of the trial is strictly above the median, else `go`."""
        number = trial.report_number
        if number < self.grace:
            return "go"
        means = [_mean(other, number) for other in history.trials.values() if other.name != trial.name]
        known = [mean for mean in means if mean is not None]
        if len(known) < self.min_trials:
            return "go"
        return "stop" if min(_losses(trial, number)) > statistics.median(known) else "go"


def _mean(trial: TrialState, report_number: int) -> float | None:
    """The mean of its losses up to that report; None where it did not come there."""
    losses = _losses(trial, report_number)
    return statistics.fmean(losses) if losses and trial.report_number >= report_number else None


def _losses(trial: TrialState, report_number: int) -> list[float]:
    """Its losses up to that report, infinite where they are no numbers."""
    numbers = [report["report"] for report in trial.reports if report["report"] <= report_number]
    return [loss for number in numbers if (loss := trial.loss_at(number)) is not None]
