"""Results of a sweep: fair comparisons of trials, costs, effects of hyperparameters, and the tables in its folder."""

import contextlib
import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml

from tokenfree.core.storage import Storage
from tokenfree.train.intervals import MeanInterval, mean_interval
from tokenfree.train.sweep.history import TABLE, Report, TrialState, by_setting, is_number
from tokenfree.train.sweep.recipe import LOSS, SPEED, Metric, SweepRecipe

ONE_SEED = "one seed per setting: differences between settings may be chance"
BEST = "best.yaml"  # a recipe
SKIPPED, TRIALS = "skipped.json", "trials.jsonl"
# Files of results, in the order in which they are written.
RESULTS = (BEST, SKIPPED, TRIALS, TABLE)
METRICS = (
    "step",
    "validation_loss",
    "validation_accuracy",
    "characters_per_second",
    "train_seconds",
    "parameters",
)
# Fields of a report that are not columns of the table.
_NO_METRICS = frozenset({"report", "seed", "machine"})
# Fields of a trial in trials.jsonl.
_LINE = ("name", "values", "state", "reports", "error", "setting", "seed")
_MIN_SETTINGS = 3  # minimum number of settings for a Pareto front
# A hyperparameter with more different numbers is divided into BINS with about the same number of trials.
LEVELS = 8
BINS = 4
# States of trials, in the order of the counts.
STATES = ("finished", "stopped", "failed", "running", "waiting")


def hyperparameters(trials: Sequence[TrialState]) -> list[str]:
    """Return the dotted keys that the trials set. Only some trials set a key with a condition."""
    return sorted({key for trial in trials for key in trial.values})


def short_names(keys: Sequence[str]) -> list[str]:
    """Return the shortest endings of dotted keys that distinguish them: `alpha`, `attention.name`."""
    names = []
    for key in keys:
        parts = key.split(".")
        lengths = range(1 + (parts[-1] == "name"), len(parts) + 1)
        ends = (".".join(parts[-length:]) for length in lengths)
        unique = (end for end in ends if sum(f".{other}".endswith(f".{end}") for other in keys) == 1)
        names.append(next(unique, key))
    return names


def format_value(value: Any) -> str:
    """Return a value in readable form: `0.001`, `full`, `{"name": "full"}`; an empty text if it is absent."""
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, float):
        return json.dumps(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"


@dataclass(frozen=True)
class Setting:
    """The trials with the same values, one per seed. `index` is the number of the setting."""

    index: int
    values: Mapping[str, Any]
    trials: tuple[TrialState, ...]

    @property
    def name(self) -> str:
        """Name of its only trial, or `setting_003`."""
        return self.trials[0].name if len(self.trials) == 1 else f"setting_{self.index:03d}"

    def reached(self, metric: str, amount: float, unit: str = "step") -> list[tuple[TrialState, float]]:
        """Return the trials that reached `amount` of `unit` and did not fail, with their `metric` at that point."""
        values = [
            (trial, trial.value_at(metric, amount, unit)) for trial in self.trials if trial.state != "failed"
        ]
        return [(trial, value) for trial, value in values if value is not None]

    def interval(self, metric: str, amount: float, unit: str = "step") -> MeanInterval | None:
        """Return mean and interval of `metric` over the seeds that reached `amount` of `unit`, or None if none did."""
        return mean_interval([value for _, value in self.reached(metric, amount, unit)])

    @property
    def flops(self) -> float | None:
        """Floating-point operations per character, forward and backward, to two digits; None if unknown."""
        return self._mean(lambda last: last["flops"] / last["characters"])

    @property
    def speed(self) -> float | None:
        """Characters per second of training, to two digits, as a smaller difference says nothing; None if unknown."""
        return self._mean(lambda last: last[SPEED.metric])

    def _mean(self, cost: Callable[[Report], float]) -> float | None:
        costs = []
        for trial in self.trials:
            # A trial that ended before its first report has no costs.
            with contextlib.suppress(KeyError, TypeError, ZeroDivisionError):
                costs.append(cost(trial.last))
        return float(f"{fmean(costs):.2g}") if costs else None


@dataclass(frozen=True)
class Ranked:
    """A setting with its mean of the target over seeds at `amount` of `unit`, where all settings are compared."""

    setting: Setting
    interval: MeanInterval
    amount: float
    unit: str


def settings(trials: Iterable[TrialState]) -> list[Setting]:
    groups = by_setting(trials).items()
    return [Setting(number, group[0].values, tuple(group)) for number, group in groups]


def full_amount(trials: Iterable[TrialState], unit: str = "step") -> float | None:
    """Return the largest amount of `unit` that every finished trial used.

    If no trial has finished, return the most that any trial used. With a budget in seconds each trial ends a
    little after it, so trials are compared where the first of them ended.
    """
    ended = [(trial.state, trial.last.get(unit)) for trial in trials if trial.state != "failed"]
    finished = [float(amount) for state, amount in ended if state == "finished" and is_number(amount)]
    if finished:
        return min(finished)
    return max((float(amount) for _, amount in ended if is_number(amount)), default=None)


def common_amount(trials: Iterable[TrialState], unit: str = "step") -> float | None:
    """Return the largest amount of `unit` that every finished or stopped trial reached.

    A metric at this amount, unlike later ones, is free of selection by the scheduler.
    """
    amounts = [trial.last.get(unit) for trial in trials if trial.state in ("finished", "stopped")]
    return min((float(amount) for amount in amounts if is_number(amount)), default=None)


def rank(
    trials: Iterable[TrialState], *, target: Metric = LOSS, unit: str = "step", amount: float | None = None
) -> list[Ranked]:
    """Return the settings with a value at `amount` (by default `full_amount`), best first by their mean over seeds.

    Settings with the most seeds come before all with fewer, because the seeds that a scheduler lets continue
    are the luckier ones.
    """
    trials = list(trials)
    amount = full_amount(trials, unit) if amount is None else amount
    if amount is None:
        return []
    ranked = [
        Ranked(setting, interval, amount, unit)
        for setting in settings(trials)
        if (interval := setting.interval(target.metric, amount, unit)) is not None
    ]
    return sorted(
        ranked, key=lambda item: (-item.interval.count, target.cost(item.interval.mean), item.setting.name)
    )


def best(trials: Iterable[TrialState], *, target: Metric = LOSS, unit: str = "step") -> TrialState | None:
    """Return the first trial of the setting with the best mean over seeds, or None if no trial has a result.

    Trials that were stopped early are not compared with others, because their loss is that of fewer steps.
    """
    first = next(iter(rank(trials, target=target, unit=unit)), None)
    return None if first is None else first.setting.reached(target.metric, first.amount, unit)[0][0]


def is_by_chance(trials: Iterable[TrialState], ranked: Sequence[Ranked]) -> bool:
    """Return True if several settings were compared and the best one has a single seed, hence no interval."""
    return bool(ranked) and ranked[0].interval.half is None and len(settings(trials)) > 1


def front(items: Sequence[Ranked], quality: Metric) -> list[Ranked]:
    """Return the Pareto front of quality and speed, in the order of `items`.

    Only settings with the most seeds are compared, because the seeds that a scheduler lets continue are the
    luckier ones.
    """
    max_seeds = max((item.interval.count for item in items), default=0)
    points = []
    for item in items:
        speed, interval = item.setting.speed, item.setting.interval(quality.metric, item.amount, item.unit)
        if item.interval.count == max_seeds and interval is not None and speed is not None:
            points.append((item, quality.cost(interval.mean), -speed))

    def is_beaten(loss: float, cost: float) -> bool:
        return any(one <= loss and two <= cost and (one, two) != (loss, cost) for _, one, two in points)

    return [item for item, loss, cost in points if not is_beaten(loss, cost)]


def front_amount(trials: Iterable[TrialState], unit: str = "step") -> float | None:
    """Return the full amount if at least three settings reached it, otherwise the amount that every trial reached."""
    trials = list(trials)
    amount = full_amount(trials, unit)
    reached = len(rank(trials, unit=unit, amount=amount))
    return amount if reached >= _MIN_SETTINGS else common_amount(trials, unit) or amount


@dataclass(frozen=True)
class Level:
    """A value, or a range of numbers, of a hyperparameter, with the indices of its trials and their mean metric."""

    label: str
    trials: tuple[int, ...]
    interval: MeanInterval


def ordered_cells(values: Sequence[Any]) -> tuple[np.ndarray, list[Any]]:
    """Return the index of each value among the distinct values, and these in order: absent, numbers, others."""
    keys = [json.dumps(value, sort_keys=True) for value in values]
    different = dict(zip(keys, values, strict=True))

    def order(key: str) -> tuple[int, float, str]:
        value = different[key]
        if value is None or is_number(value):
            return (0, 0.0, "") if value is None else (1, float(value), "")
        return 2, 0.0, key

    ordered = sorted(different, key=order)
    indices = {key: index for index, key in enumerate(ordered)}
    return np.array([indices[key] for key in keys], dtype=int), [different[key] for key in ordered]


def levels(values: Sequence[Any], metric: Sequence[float]) -> list[Level]:
    """Return mean and 95% interval of the metric [trials] at each value of a hyperparameter [trials], ordered by value.

    The interval is Student's t over trials. It includes effects of seeds and of other hyperparameters.
    """
    cells, names = ordered_cells(values)
    groups = np.arange(len(names))
    if is_range(values):
        absent = int(names[0] is None)
        ends = np.quantile(cells[cells >= absent], np.arange(1, BINS) / BINS)
        groups[absent:] = 1 + np.searchsorted(ends, groups[absent:], side="right")
    result = []
    for group in sorted(set(groups.tolist())):
        inside = [index for index, cell in enumerate(cells) if groups[cell] == group]
        members = [names[cell] for cell in np.flatnonzero(groups == group)]
        label = format_value(members[0]) if len(members) == 1 else f"{members[0]:.3g} to {members[-1]:.3g}"
        mean = mean_interval([metric[index] for index in inside])
        if mean is not None:
            result.append(Level(label or "not set", tuple(inside), mean))
    return result


def is_range(values: Sequence[Any]) -> bool:
    """Return True if values [trials] are points of a range, rather than a few numbers or names to choose from."""
    different = {json.dumps(value, sort_keys=True) for value in values}
    if not all(is_number(value) or value is None for value in values):
        return False
    continuous = any(isinstance(value, float) and not value.is_integer() for value in values)
    return len(different) > LEVELS or (continuous and len(different) > max(BINS, len(values) // 2))


def table(sweep: SweepRecipe, trials: Sequence[TrialState]) -> str:
    """Return the text of `sweep.csv`. `front` is `yes` for settings on the Pareto front at `front_amount`."""
    unit = sweep.budget.unit
    ranked = rank(trials, target=sweep.target, unit=unit, amount=front_amount(trials, unit))
    on_front = {trial.name for item in front(ranked, sweep.quality) for trial in item.setting.trials}
    keys = sorted({*sweep.space, *hyperparameters(trials)})
    more = sorted({name for trial in trials for name in trial.last} - {*METRICS, *_NO_METRICS})
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["trial", "state", *keys, *METRICS, *more, "setting", "seed", "front", "error"])
    for trial in trials:
        values = [format_value(trial.values.get(key)) for key in keys]
        metrics = [format_value(trial.last.get(name)) for name in (*METRICS, *more)]
        marks = [
            format_value(trial.setting),
            format_value(trial.seed),
            "yes" if trial.name in on_front else "",
        ]
        writer.writerow([trial.name, trial.state, *values, *metrics, *marks, trial.error])
    return file.getvalue()


def write(
    folder: Path, sweep: SweepRecipe, trials: Sequence[TrialState], skipped: Mapping[str, int] | None = None
) -> list[Path]:
    """Write the best recipe, if any trial has a result, and the tables, `sweep.csv` last.

    Return the paths.
    """
    files = {}
    winner = best(trials, target=sweep.target, unit=sweep.budget.unit)
    if winner is not None:
        note = f"# The best of {len(trials)} trials ({winner.name}): {json.dumps(dict(winner.values))}\n"
        files[BEST] = note + yaml.safe_dump(sweep.best_recipe(winner.values), sort_keys=False)
    if skipped:
        files[SKIPPED] = json.dumps(dict(sorted(skipped.items())), indent=1) + "\n"
    lines = [{name: getattr(trial, name) for name in _LINE} for trial in trials]
    files[TRIALS] = "".join(json.dumps(line) + "\n" for line in lines)
    files[TABLE] = table(sweep, trials)
    for name, text in files.items():
        Storage.at(str(folder)).write_bytes(name, text.encode())
    return [folder / name for name in files]
