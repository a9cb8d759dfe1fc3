"""Asynchronous successive halving, in the form that stops trials and never waits."""

from typing import Annotated, Literal

from pydantic import Field

from tokenfree.preprocess.common.settings import settings
from tokenfree.train.sweep.control.history import History, Report, TrialState, Verdict
from tokenfree.train.sweep.control.slots import Scheduler
from tokenfree.train.sweep.schedulers.base import reached, rungs


@settings
class Config(Scheduler):
    """At the rungs, which are certain reports, the best of the trials that came there go on and the others stop.

    Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", arXiv 1810.05934, Algorithm 2, with one
    change: a trial is judged when it comes to a rung, by what is known then, and goes straight on or ends. The paper's
    trials pause at a rung until they are among the best 1/`reduction` there.

    Attributes:
        name: `asha`.
        grace: the number of the report that is the first rung; r of the paper.
        reduction: each rung is at so many times the report of the one before, and the best 1/`reduction` of the trials
            go on from it; eta of the paper.
    """

    name: Literal["asha"] = "asha"
    grace: Annotated[int, Field(ge=1)] = 1
    reduction: Annotated[int, Field(ge=2)] = 3

    def least_reports(self, reports: int) -> int:
        """Those up to `grace`."""
        return min(self.grace, reports)

    def verdict(self, history: History, trial: TrialState, report: Report) -> Verdict:
        """`go` for a trial between rungs, or with fewer better ones at its rung than have room; `stop` otherwise."""
        rung = reached(trial, rungs(self.grace, self.reduction, history.reports))
        if rung is None:
            return "go"
        own = trial.loss_at(rung)
        losses = [loss for other in history.trials.values() if (loss := other.loss_at(rung)) is not None]
        better = sum(own is not None and loss < own for loss in losses)
        return "go" if better < max(1, len(losses) // self.reduction) else "stop"
