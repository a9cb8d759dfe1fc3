"""Hyperband: brackets of successive halving that begin with many short or few long trials (Li et al. 2018)."""

import math
from typing import Annotated, Literal

from pydantic import Field

from preprocess.settings import settings
from train.sweep.history import History, Record, Verdict
from train.sweep.schedulers.base import Rule, reached


@settings
class Config(Rule):
    """Trials fill one bracket after another. At a rung they wait for the others of their bracket.

    With R reports a trial and s = floor(log R), there are brackets of ceil((s + 1) / (i + 1) * reduction^i) trials for
    i = s, ..., 0, whose first rung is at R / reduction^i. Logarithms are to the base `reduction`.
    """

    name: Literal["hyperband"] = "hyperband"
    reduction: Annotated[int, Field(ge=2)] = 3

    def verdict(self, history: History, trial: Record) -> Verdict:
        names = list(history.trials)
        members, level = self._bracket(names.index(trial.name), history)
        places = [math.ceil(history.reports / self.reduction ** (level - i)) for i in range(level)]
        rung = reached(trial, places)
        if rung is None:
            return "go"
        if members.stop > len(names):
            return "wait"  # some are not even proposed
        left = [history.trials[names[index]] for index in members]
        for place in [place for place in places if place <= rung]:
            losses = {member.name: _loss(member, place) for member in left}
            if any(loss is None for loss in losses.values()):
                return "wait"
            best = sorted(left, key=lambda member: (losses[member.name], member.name))
            left = best[: max(1, len(left) // self.reduction)]
        return "go" if trial.name in [member.name for member in left] else "stop"

    def _bracket(self, index: int, history: History) -> tuple[range, int]:
        """The indices of the trials in the bracket of trial `index`, and how many rungs it has."""
        most = int(math.log(history.reports) / math.log(self.reduction) + 1e-9)
        first = 0
        while True:
            for level in range(most, -1, -1):
                size = math.ceil((most + 1) / (level + 1) * self.reduction**level)
                if index < first + size:
                    return range(first, min(first + size, history.total)), level
                first += size


def _loss(trial: Record, place: int) -> float | None:
    """Infinite for a trial that failed before it came to `place`."""
    loss = trial.loss_at(place)
    return math.inf if loss is None and trial.ended else loss
