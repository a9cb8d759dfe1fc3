"""The median stopping rule."""

import statistics
from typing import Annotated, Literal

from pydantic import Field

from tokenfree.core.settings import settings
from tokenfree.train.sweep.control.history import History, Report, TrialState, Verdict
from tokenfree.train.sweep.control.slots import Scheduler
from tokenfree.train.sweep.schedulers.base import earlier, is_coming


@settings
class Config(Scheduler):
    """A trial stops whose best loss is above the median of the mean losses of those before it, up to the same report.

    Golovin et al. 2017, "Google Vizier: A Service for Black-Box Optimization", section 3.2.2. Here every trial counts
    that was proposed before and came as far; in the paper only completed ones do. It waits for those of them that are
    still to come as far, so that which trials stop does not depend on speed or on kills.

    Attributes:
        name: `median_stopping`.
        grace: the number of the report that is the first at which a trial may stop.
        min_trials: how many earlier ones must have come as far; with fewer nothing is decided.
    """

    name: Literal["median_stopping"] = "median_stopping"
    grace: Annotated[int, Field(ge=1)] = 1
    min_trials: Annotated[int, Field(ge=1)] = 3

    def least_reports(self, reports: int) -> int:
        """Those up to `grace`."""
        return min(self.grace, reports)

    def verdict(self, history: History, trial: TrialState, report: Report) -> Verdict:
        """`stop` where the best loss is strictly above the median, else `go`; `wait` for earlier trials."""
        number = trial.report_number
        if number < self.grace:
            return "go"
        others = earlier(history, trial)
        known = [mean for other in others if (mean := _mean(other, number)) is not None]
        coming = sum(is_coming(other, number) for other in others)
        if len(known) + coming < self.min_trials:
            return "go"
        if coming:
            return "wait"
        return "stop" if min(_losses(trial, number)) > statistics.median(known) else "go"


def _mean(trial: TrialState, report_number: int) -> float | None:
    """The mean of its losses up to that report; None where it did not come there."""
    losses = _losses(trial, report_number)
    return statistics.fmean(losses) if losses and trial.report_number >= report_number else None


def _losses(trial: TrialState, report_number: int) -> list[float]:
    """Its losses up to that report, infinite where they are no numbers."""
    numbers = [report["report"] for report in trial.reports if report["report"] <= report_number]
    return [loss for number in numbers if (loss := trial.loss_at(number)) is not None]
