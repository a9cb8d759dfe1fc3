"""Population based training (Jaderberg et al. 2017, arXiv 1711.09846), in generations.

All trials wait for each other, so that what comes out depends on no clock; a population larger than what has room runs
in turns.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from preprocess.settings import settings
from train.data import random
from train.sweep.history import History, Record, Verdict
from train.sweep.schedulers.base import Exploit, Rule, reached

if TYPE_CHECKING:
    from train.sweep.config import SweepRecipe

# What may change while a model trains: neither its shapes nor the order of its data.
_CHANGEABLE = ("train.learning_rate", "train.warmup", "train.clip_norm", "model.trunk.dropout")
_FACTORS = (0.8, 1.2)


@settings
class Config(Rule):
    """After every `interval` reports the worst trials take over weights and values of the best, and change some.

    Of the keys in the space, those that may change while a model trains get a new value: a neighbour of the donor's (a
    fifth less or more, the next one of a list), or one drawn anew with the probability `resample`. All other keys are
    the donor's.
    """

    name: Literal["pbt"] = "pbt"
    interval: Annotated[int, Field(ge=1)] = 1
    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25  # share of the trials that take over, and of their donors
    resample: Annotated[float, Field(ge=0, le=1)] = 0.25

    def check(self, sweep: "SweepRecipe") -> Iterable[str]:
        if not _changeable(sweep.space):
            yield (
                f"scheduler: pbt: the space has no key that can change while a model trains ({', '.join(_CHANGEABLE)}, "
                "train.optimizer.*); add one, or take another scheduler"
            )
        if sweep.seeds > 1:
            yield "scheduler: pbt: trials take over each other's weights, so seeds must be 1; raise trials instead"

    def verdict(self, history: History, trial: Record) -> Verdict:
        """Nobody goes on before all takeovers of the generation are done: donors must not train meanwhile."""
        place = reached(trial, self._places(history))
        if place is None:
            return "go"
        worst = self._worst(history, place)
        if worst is None or any(other.exploited < place and not other.ended for other in worst):
            return "wait"
        return "go"

    def exploits(self, history: History, sweep: "SweepRecipe") -> list[Exploit]:
        """What each of the worst trials of a whole generation takes over."""
        return [
            self._exploit(trial, self._generation(history, place) or [], place, sweep)
            for place in self._places(history)
            for trial in self._worst(history, place) or []
            if trial.exploited < place and trial.verdict == "wait"
        ]

    def _places(self, history: History) -> list[int]:
        return list(range(self.interval, history.reports, self.interval))

    def _generation(self, history: History, place: int) -> list[Record] | None:
        """The trials that came to `place`, best first; None while some are still to come there."""
        trials = [trial for trial in history.trials.values() if trial.loss_at(place) is not None]
        coming = any(trial.loss_at(place) is None and not trial.ended for trial in history.trials.values())
        if coming or len(history.trials) < history.total:
            return None
        return sorted(trials, key=lambda trial: (trial.loss_at(place) or 0.0, trial.name))

    def _worst(self, history: History, place: int) -> list[Record] | None:
        """The trials of the generation that take over; None before it is whole."""
        ranked = self._generation(history, place)
        return None if ranked is None else ranked[len(ranked) - self._count(ranked) :]

    def _count(self, ranked: list[Record]) -> int:
        """How many take over, and from how many."""
        return max(1, int(len(ranked) * self.quantile)) if len(ranked) > 1 else 0

    def _exploit(self, trial: Record, ranked: list[Record], place: int, sweep: "SweepRecipe") -> Exploit:
        keys = _changeable(sweep.space)
        draws = random.uniform(sweep.seed, f"pbt {place}", np.array([trial.setting]), 1 + 3 * len(keys))[0]
        donors = [other for other in ranked[: self._count(ranked)] if other.state != "failed"] or [trial]
        donor = donors[int(draws[0] * len(donors))]
        values = dict(donor.values)
        for key, (kind, way, quantile) in zip(keys, draws[1:].reshape(-1, 3).tolist(), strict=True):
            if key in values:
                knob = sweep.space[key]
                anew = kind < self.resample
                values[key] = knob.value(quantile) if anew else knob.near(values[key], _FACTORS[int(way * 2)])
        return Exploit(trial.name, donor.name, values, place)


def _changeable(space: Any) -> list[str]:
    optimizer = "train.optimizer."
    return [
        key for key in sorted(space) if key in _CHANGEABLE or (key.startswith(optimizer) and key != f"{optimizer}name")
    ]
