"""Asynchronous successive halving, in the form that stops trials; what it decides depends on no clock."""

from typing import Annotated, Literal

from pydantic import Field

from tokenfree.core.settings import settings
from tokenfree.train.sweep.control.history import History, Report, TrialState, Verdict
from tokenfree.train.sweep.control.slots import Scheduler
from tokenfree.train.sweep.schedulers.base import earlier, is_coming, reached, rungs


@settings
class Config(Scheduler):
    """At the rungs, which are certain reports, the best of the trials that came there go on and the others stop.

    Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning", arXiv 1810.05934, Algorithm 2, with two
    changes. A trial is judged once and goes on or ends; the paper's trials pause at a rung until they are among the
    best 1/`reduction` there. And it is judged against the trials that were proposed before it, not against those that
    came there before it, so that which trials stop does not depend on speed or on kills: it waits for an earlier trial
    where that one's loss can still decide, while another trial trains in its place.

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
        """`go` for a trial between rungs, or with fewer better ones at its rung than have room; `stop` with more.

        `wait` while trials that are still to come there can turn one into the other.
        """
        rung = reached(trial, rungs(self.grace, self.reduction, history.reports))
        if rung is None:
            return "go"
        own = trial.loss_at(rung)
        others = earlier(history, trial)
        losses = [loss for other in others if (loss := other.loss_at(rung)) is not None]
        better = sum(own is not None and loss < own for loss in losses)
        coming = sum(is_coming(other, rung) for other in others)
        room = max(1, (len(losses) + coming + 1) // self.reduction)  # if all of them come
        if better >= room:  # also if all of them are worse
            return "stop"
        return "go" if better + coming < room else "wait"
