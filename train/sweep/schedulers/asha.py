"""Asynchronous successive halving, in the form that stops trials and never waits (Li et al. 2020, arXiv 1810.05934)."""

from typing import Annotated, Literal

from pydantic import Field

from preprocess.settings import settings
from train.sweep.history import History, Record, Verdict
from train.sweep.schedulers.base import Rule, reached, rungs


@settings
class Config(Rule):
    """At the reports `grace`, `grace` * `reduction`, ... the best 1/`reduction` of those that came there go on."""

    name: Literal["asha"] = "asha"
    grace: Annotated[int, Field(ge=1)] = 1  # reports before the first decision
    reduction: Annotated[int, Field(ge=2)] = 3

    def verdict(self, history: History, trial: Record) -> Verdict:
        rung = reached(trial, rungs(self.grace, self.reduction, history.reports))
        if rung is None:
            return "go"
        own = trial.loss_at(rung)
        losses = [loss for other in history.trials.values() if (loss := other.loss_at(rung)) is not None]
        better = sum(own is not None and loss < own for loss in losses)
        return "go" if better < max(1, len(losses) // self.reduction) else "stop"
