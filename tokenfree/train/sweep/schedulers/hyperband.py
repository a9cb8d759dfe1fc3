"""Hyperband: brackets of successive halving that begin with many short or few long trials."""

import math
from typing import Annotated, Literal

from pydantic import Field

from tokenfree.core.settings import settings
from tokenfree.train.sweep.control.history import History, Report, TrialState, Verdict
from tokenfree.train.sweep.control.slots import Scheduler
from tokenfree.train.sweep.schedulers.base import reached


@settings
class Config(Scheduler):
    """Trials fill one bracket after another. At a rung they wait for the others of their bracket.

    Li et al. 2018, "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", arXiv 1603.06560,
    Algorithm 1. With R reports a trial and s_max = floor(log R), there are brackets of
    ceil((s_max + 1) / (s + 1) * reduction^s) trials for s = s_max, ..., 0, whose first rung is at R / reduction^s.
    Logarithms are to the base `reduction`. A new round of brackets begins where there are more trials.

    Attributes:
        name: `hyperband`.
        reduction: the best 1/`reduction` of a bracket go on from each rung; eta of the paper.
    """

    name: Literal["hyperband"] = "hyperband"
    reduction: Annotated[int, Field(ge=2)] = 3

    def least_reports(self, reports: int) -> int:
        """Those up to the first rung of the bracket with the most trials."""
        return math.ceil(reports / self.reduction ** self._most(reports))

    def verdict(self, history: History, trial: TrialState, report: Report) -> Verdict:
        """`wait` until the whole bracket came to the rung, then `go` for its best and `stop` for the others."""
        names = list(history.trials)
        members, bracket = self._bracket(names.index(trial.name), history)
        rungs = [math.ceil(history.reports / self.reduction ** (bracket - i)) for i in range(bracket)]
        own = reached(trial, rungs)
        if own is None:
            return "go"
        if members.stop > len(names):
            return "wait"  # some are not even proposed
        left = [history.trials[names[index]] for index in members]
        for rung in [rung for rung in rungs if rung <= own]:
            losses = {member.name: _loss(member, rung) for member in left}
            if any(loss is None for loss in losses.values()):
                return "wait"
            best = sorted(left, key=lambda member: (losses[member.name], member.name))
            left = best[: max(1, len(left) // self.reduction)]
        return "go" if trial.name in [member.name for member in left] else "stop"

    def _bracket(self, index: int, history: History) -> tuple[range, int]:
        """The indices of the trials in the bracket of trial `index`, and how many rungs it has."""
        most = self._most(history.reports)
        first = 0
        while True:
            for bracket in range(most, -1, -1):
                size = math.ceil((most + 1) / (bracket + 1) * self.reduction**bracket)
                if index < first + size:
                    return range(first, min(first + size, history.total)), bracket
                first += size

    def _most(self, reports: int) -> int:
        """The most rungs of a bracket: s_max."""
        return int(math.log(reports) / math.log(self.reduction) + 1e-9)


def _loss(trial: TrialState, rung: int) -> float | None:
    """Infinite for a trial that failed before it came to `rung`."""
    loss = trial.loss_at(rung)
    return math.inf if loss is None and trial.ended else loss
