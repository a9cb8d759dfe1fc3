"""Fair comparison of trials: at the same amount of the same unit, and in the mean over the seeds of a setting."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenfree.train.sweep.results.trial_result import TrialResult, is_number
from tokenfree.train.sweep.space.targets import LOSS, Target


@dataclass(frozen=True)
class MeanInterval:
    """A mean over `count` values, and the half width of its 95% interval (`half`); None for a single value."""

    mean: float
    half: float | None
    count: int


@dataclass(frozen=True)
class Setting:
    """The trials that have the same values, one a seed; `index` is the number of the setting."""

    index: int
    values: Mapping[str, Any]
    trials: tuple[TrialResult, ...]

    @property
    def name(self) -> str:
        """The name of its only trial, or `setting_003`."""
        return self.trials[0].name if len(self.trials) == 1 else f"setting_{self.index:03d}"

    def reached(self, metric: str, amount: float, unit: str = "step") -> list[tuple[TrialResult, float]]:
        """The trials that got to `amount` of `unit` and did not fail, with their `metric` there."""
        values = [(trial, trial.value_at(metric, amount, unit)) for trial in self.trials if trial.state != "failed"]
        return [(trial, value) for trial, value in values if value is not None]

    def interval(self, metric: str, amount: float, unit: str = "step") -> MeanInterval | None:
        """Mean and interval of `metric` over the seeds that got to `amount` of `unit`; None if none did."""
        return mean_interval([value for _, value in self.reached(metric, amount, unit)])


@dataclass(frozen=True)
class Ranked:
    """A setting with its mean of the target over seeds."""

    setting: Setting
    interval: MeanInterval


def settings(trials: Iterable[TrialResult]) -> list[Setting]:
    """Trials grouped by setting and values (a trial may take over those of a better one), in order of the first."""
    groups: dict[tuple[int, str], list[TrialResult]] = {}
    for trial in trials:
        groups.setdefault((trial.setting, json.dumps(trial.values, sort_keys=True)), []).append(trial)
    return [Setting(group[0].setting, group[0].values, tuple(group)) for group in groups.values()]


def full_amount(trials: Iterable[TrialResult], unit: str = "step") -> float | None:
    """The largest amount of `unit` that every finished trial used; without a finished one, the most that any used.

    With a budget in steps all finished trials end at the same one. With a budget in seconds each ends a little after
    it, and is compared where the first of them ended.
    """
    ended = [(trial.state, trial.last.get(unit)) for trial in trials if trial.state != "failed"]
    finished = [float(amount) for state, amount in ended if state == "finished" and is_number(amount)]
    if finished:
        return min(finished)
    return max((float(amount) for _, amount in ended if is_number(amount)), default=None)


def common_amount(trials: Iterable[TrialResult], unit: str = "step") -> float | None:
    """The largest amount of `unit` that every trial got to before it ended; failed and running ones are not asked.

    What is measured there was not chosen by the scheduler, unlike what the trials that it let go on came to.
    """
    amounts = [trial.last.get(unit) for trial in trials if trial.state in ("finished", "stopped")]
    return min((float(amount) for amount in amounts if is_number(amount)), default=None)


def rank(
    trials: Iterable[TrialResult], *, target: Target = LOSS, unit: str = "step", amount: float | None = None
) -> list[Ranked]:
    """Settings with a value at `amount` (by default `full_amount`), best first by their mean over seeds.

    Those with the most seeds stand before all with fewer: the seeds that a scheduler let go on are its luckier ones.
    """
    trials = list(trials)
    amount = full_amount(trials, unit) if amount is None else amount
    if amount is None:
        return []
    ranked = [
        Ranked(setting, found)
        for setting in settings(trials)
        if (found := setting.interval(target.metric, amount, unit)) is not None
    ]
    return sorted(ranked, key=lambda item: (-item.interval.count, target.cost(item.interval.mean), item.setting.name))


def best(trials: Iterable[TrialResult], *, target: Target = LOSS, unit: str = "step") -> TrialResult | None:
    """The first trial of the setting with the best mean over seeds; None if no trial came to anything.

    A trial that was stopped early is not compared with one that went on: its loss belongs to fewer steps.
    """
    trials = list(trials)
    amount = full_amount(trials, unit)
    ranked = rank(trials, target=target, unit=unit, amount=amount)
    if not ranked or amount is None:
        return None
    return ranked[0].setting.reached(target.metric, amount, unit)[0][0]


def front(
    items: Sequence[Ranked],
    targets: Sequence[Target],
    amount: float,
    unit: str = "step",
    *,
    known: Mapping[str, Mapping[str, float | None]] | None = None,
) -> list[Ranked]:
    """The settings that no other one equals or beats in every target and beats in one, in the order of `items`.

    Only those with the most seeds are asked: the seeds that a scheduler let go on are its luckier ones.

    Args:
        items: settings that got to `amount` of `unit`, where their targets are compared.
        targets: all of which a setting must have.
        amount: of `unit`.
        unit: a field of the reports.
        known: of a metric, the value of each trial by its name, in place of what it reported itself.
    """
    known = known or {}
    costs, kept = [], []
    most = max((item.interval.count for item in items), default=0)
    for item in items:
        found: list[float | None] = []
        for target in targets:
            if target.metric in known:
                found.append(known[target.metric].get(item.setting.trials[0].name))
            else:
                interval = item.setting.interval(target.metric, amount, unit)
                found.append(None if interval is None else interval.mean)
        values = [target.cost(value) for target, value in zip(targets, found, strict=True) if value is not None]
        if item.interval.count == most and len(values) == len(targets):
            kept.append(item)
            costs.append(values)
    return [item for item, on in zip(kept, pareto(costs), strict=True) if on]


def pareto(costs: Sequence[Sequence[float]]) -> list[bool]:
    """Which rows of `costs` [points, targets] are not dominated; less is better in every column."""
    if not costs:
        return []
    table = np.asarray(costs, dtype=float)
    no_worse = (table[:, None] <= table[None]).all(-1)
    better = (table[:, None] < table[None]).any(-1)
    return np.logical_not(np.any(no_worse & better, axis=0)).tolist()


def mean_interval(values: Sequence[float], level: float = 0.95) -> MeanInterval | None:
    """Mean of independent values, and the interval that holds it at `level` by Student's t; None without any."""
    if not values:
        return None
    mean, count = float(np.mean(values)), len(values)
    if count == 1:
        return MeanInterval(mean, None, 1)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    return MeanInterval(mean, t_quantile(level, count - 1) * error, count)


def t_quantile(level: float, freedom: int) -> float:
    """The t such that Student's distribution with `freedom` degrees holds `level` of its mass in [-t, t]."""
    low, high = 0.0, 1.0
    while _t_mass(high, freedom) < level:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_mass(middle, freedom) < level else (low, middle)
    return high


def _t_mass(t: float, freedom: int) -> float:
    """The mass in [-t, t], by the finite series of Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for index in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (index - 1) / index
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
