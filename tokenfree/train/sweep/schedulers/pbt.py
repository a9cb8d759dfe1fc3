"""Population based training, in generations.

All trials wait for each other, so that what comes out depends on no clock; a population larger than what has room runs
in turns.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from tokenfree.core.settings import settings
from tokenfree.train.batches import counter_random as random
from tokenfree.train.sweep.control.history import Exploit, History, Report, TrialState, Verdict
from tokenfree.train.sweep.control.slots import Scheduler
from tokenfree.train.sweep.schedulers.base import reached
from tokenfree.train.sweep.space.knobs import Space
from tokenfree.train.sweep.space.recipe import SweepRecipe

# What may change while a model trains: neither its shapes nor the order of its data.
_CHANGEABLE = ("train.learning_rate", "train.warmup", "train.clip_norm", "model.trunk.dropout")
_FACTORS = (0.8, 1.2)


@settings
class Config(Scheduler):
    """After every `interval` reports the worst trials take over weights and values of the best, and change some.

    Jaderberg et al. 2017, "Population Based Training of Neural Networks", arXiv 1711.09846: exploit by truncation
    selection, explore by perturbing or resampling (section 4). Of the keys in the space, those that may change while a
    model trains get a new value: a neighbour of the donor's (a fifth less or more, the next one of a list), or one
    drawn anew. All other keys are the donor's.

    Attributes:
        name: `pbt`.
        interval: reports from one generation to the next.
        quantile: the share of the trials that take over, and as large a one of their donors.
        resample: the probability that a value is drawn anew instead of changed.
    """

    name: Literal["pbt"] = "pbt"
    interval: Annotated[int, Field(ge=1)] = 1
    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    resample: Annotated[float, Field(ge=0, le=1)] = 0.25

    def problems(self, sweep: SweepRecipe) -> Iterable[str]:
        """The space has nothing that can change, or settings have several seeds."""
        if not _changeable(sweep.space):
            yield (
                f"scheduler: pbt: the space has no key that can change while a model trains ({', '.join(_CHANGEABLE)}, "
                "train.optimizer.*); add one, or take another scheduler"
            )
        if sweep.seeds > 1:
            yield "scheduler: pbt: trials take over each other's weights, so seeds must be 1; raise trials instead"

    def stops_early(self) -> bool:
        """No: all trials use their whole budgets."""
        return False

    def verdict(self, history: History, trial: TrialState, report: Report) -> Verdict:
        """`wait` until the generation is whole, then `exploit` for the worst, and `go` when all of these have done it.

        Nobody goes on before: donors must not train meanwhile.
        """
        generation = reached(trial, range(self.interval, history.reports, self.interval))
        if generation is None:
            return "go"
        ranked = _ranked(history, generation)
        if ranked is None:
            return "wait"
        worst = ranked[len(ranked) - self._count(ranked) :]
        late = [other.name for other in worst if other.exploited < generation and not other.ended]
        if trial.name in late:
            return "exploit"
        return "wait" if late else "go"

    def exploit(self, sweep: SweepRecipe, history: History, trial: TrialState) -> Exploit:
        """The donor is drawn among the best of the generation that did not fail, the new values around its own."""
        generation = reached(trial, range(self.interval, history.reports, self.interval))
        assert generation is not None, "only a trial at the end of a generation takes over another"
        ranked = _ranked(history, generation) or []
        keys = _changeable(sweep.space)
        draws = random.uniform(sweep.seed, f"pbt {generation}", np.array([trial.setting]), 1 + 3 * len(keys))[0]
        donors = [other for other in ranked[: self._count(ranked)] if other.state != "failed"] or [trial]
        donor = donors[int(draws[0] * len(donors))]
        values = dict(donor.values)
        for key, (kind, way, quantile) in zip(keys, draws[1:].reshape(-1, 3).tolist(), strict=True):
            if key in values:
                knob = sweep.space[key]
                anew = kind < self.resample
                values[key] = knob.value(quantile) if anew else knob.near(values[key], _FACTORS[int(way * 2)])
        return Exploit(trial.name, donor.name, values, generation)

    def _count(self, ranked: Sequence[TrialState]) -> int:
        """How many take over, and from how many."""
        return max(1, int(len(ranked) * self.quantile)) if len(ranked) > 1 else 0


def _ranked(history: History, generation: int) -> list[TrialState] | None:
    """The trials that came to this report, best first; None while some are still to come there."""
    losses = {trial.name: trial.loss_at(generation) for trial in history.trials.values()}
    coming = any(losses[trial.name] is None and not trial.ended for trial in history.trials.values())
    if coming or not history.all_proposed:
        return None
    trials = [trial for trial in history.trials.values() if losses[trial.name] is not None]
    return sorted(trials, key=lambda trial: (losses[trial.name], trial.name))


def _changeable(space: Space) -> list[str]:
    optimizer = "train.optimizer."
    return [
        key for key in sorted(space) if key in _CHANGEABLE or (key.startswith(optimizer) and key != f"{optimizer}name")
    ]
