"""Results of a sweep: fair comparisons of trials, costs, effects of hyperparameters, and the tables in its folder.

`sweep.csv` has a row per trial, `trials.jsonl` has all their reports, and `best.yaml` is a recipe. All are made from
the journal and are never read back.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.train.intervals import MeanInterval, mean_interval
from tokenfree.train.sweep.history import JOURNAL, History, TrialState, is_number, read_history
from tokenfree.train.sweep.recipe import LOSS, SPEED, SweepRecipe, Target

BEST = "best.yaml"  # a recipe
TABLE = "sweep.csv"  # written last: if it exists, the sweep has ended
METRICS = ("step", "validation_loss", "validation_accuracy", "characters_per_second", "train_seconds", "parameters")
_NO_METRICS = frozenset({"report", "seed", "machine"})  # fields of a report that are not columns of the table
_LINE = ("name", "values", "state", "reports", "error", "setting", "seed")  # fields of a trial in trials.jsonl
_LEAST_SETTINGS = 3  # minimum number of settings for a Pareto front
LEVELS = 8  # a hyperparameter with more different numbers is divided into BINS with about the same number of trials
BINS = 4
TREES, DEPTH = 32, 5  # shallow trees, because their time grows with the square of their leaves
STATES = ("finished", "stopped", "failed", "running", "waiting")  # states of trials, in the order of the counts


def hyperparameters(trials: Sequence[TrialState]) -> list[str]:
    """Return the dotted keys that the trials set. Only some trials set a key with a condition."""
    return sorted({key for trial in trials for key in trial.values})


def short_names(keys: Sequence[str]) -> list[str]:
    """Return the shortest endings of dotted keys that distinguish them: `alpha`, `attention.name`."""
    names = []
    for key in keys:
        parts = key.split(".")
        for length in range(1 + (parts[-1] == "name"), len(parts) + 1):
            end = ".".join(parts[-length:])
            if sum(f".{other}".endswith(f".{end}") for other in keys) == 1:
                break
        else:
            end = key
        names.append(end)
    return names


def shown(value: Any) -> str:
    """Return a value in readable form: `0.001`, `full`, `{"name": "full"}`; an empty text if it is absent."""
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, float):
        return json.dumps(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"


@dataclass(frozen=True)
class TrainingCost:
    """Training cost of a setting per character, over all its seeds.

    Attributes:
        flops: Floating-point operations per character, forward and backward; None if unknown.
        speed: Characters per second over all training steps; None if unknown.
    """

    flops: float | None = None
    speed: float | None = None

    @property
    def arithmetic(self) -> float | None:
        """`flops` to two digits: a smaller difference is no reason to prefer a setting."""
        return None if self.flops is None else float(f"{self.flops:.2g}")

    @property
    def slowness(self) -> float | None:
        """`speed` to two digits, negated, so that less is better."""
        return None if self.speed is None else -float(f"{self.speed:.2g}")


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
        values = [(trial, trial.value_at(metric, amount, unit)) for trial in self.trials if trial.state != "failed"]
        return [(trial, value) for trial, value in values if value is not None]

    def interval(self, metric: str, amount: float, unit: str = "step") -> MeanInterval | None:
        """Return mean and interval of `metric` over the seeds that reached `amount` of `unit`, or None if none did."""
        return mean_interval([value for _, value in self.reached(metric, amount, unit)])

    @property
    def cost(self) -> TrainingCost:
        """Cost per character over all seeds."""
        lasts = [trial.last for trial in self.trials]
        speeds = [(last.get(SPEED.metric), last.get("train_seconds")) for last in lasts]
        return TrainingCost(
            _ratio([(last.get("flops"), last.get("characters")) for last in lasts]),
            _ratio([(pace * time, time) for pace, time in speeds if is_number(pace) and is_number(time)]),
        )


def _ratio(pairs: Iterable[tuple[Any, Any]]) -> float | None:
    """Return the ratio of the sums, or None if nothing is known."""
    known = [(above, below) for above, below in pairs if is_number(above) and is_number(below)]
    below = sum(below for _, below in known)
    return sum(above for above, _ in known) / below if below else None


@dataclass(frozen=True)
class Ranked:
    """A setting with its mean of the target over seeds."""

    setting: Setting
    interval: MeanInterval


def settings(trials: Iterable[TrialState]) -> list[Setting]:
    """Group trials by setting and by values, because earlier versions could change the values within a trial."""
    groups: dict[tuple[int, str], list[TrialState]] = {}
    for trial in trials:
        groups.setdefault((trial.setting, json.dumps(trial.values, sort_keys=True)), []).append(trial)
    return [Setting(group[0].setting, group[0].values, tuple(group)) for group in groups.values()]


def full_amount(trials: Iterable[TrialState], unit: str = "step") -> float | None:
    """Return the largest amount of `unit` that every finished trial used.

    If no trial has finished, return the most that any trial used. With a budget in seconds each trial ends a little
    after it, so trials are compared where the first of them ended.
    """
    ended = [(trial.state, trial.last.get(unit)) for trial in trials if trial.state != "failed"]
    finished = [float(amount) for state, amount in ended if state == "finished" and is_number(amount)]
    if finished:
        return min(finished)
    return max((float(amount) for _, amount in ended if is_number(amount)), default=None)


def common_amount(trials: Iterable[TrialState], unit: str = "step") -> float | None:
    """Return the largest amount of `unit` that every finished or stopped trial reached.

    A metric at this amount is free of selection by the scheduler. Later metrics exist only for the trials that it let
    continue.
    """
    amounts = [trial.last.get(unit) for trial in trials if trial.state in ("finished", "stopped")]
    return min((float(amount) for amount in amounts if is_number(amount)), default=None)


def rank(
    trials: Iterable[TrialState], *, target: Target = LOSS, unit: str = "step", amount: float | None = None
) -> list[Ranked]:
    """Return the settings with a value at `amount` (by default `full_amount`), best first by their mean over seeds.

    Settings with the most seeds come before all with fewer, because the seeds that a scheduler lets continue are the
    luckier ones.
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


def best(trials: Iterable[TrialState], *, target: Target = LOSS, unit: str = "step") -> TrialState | None:
    """Return the first trial of the setting with the best mean over seeds, or None if no trial has a result.

    Trials that were stopped early are not compared with others, because their loss is that of fewer steps.
    """
    trials = list(trials)
    amount = full_amount(trials, unit)
    ranked = rank(trials, target=target, unit=unit, amount=amount)
    if not ranked or amount is None:
        return None
    return ranked[0].setting.reached(target.metric, amount, unit)[0][0]


def front(
    items: Sequence[Ranked], quality: Target, amount: float, unit: str, cost_of: Callable[[TrainingCost], float | None]
) -> list[Ranked]:
    """Return the Pareto front of quality and cost, in the order of `items`.

    No other setting is at least as good in both and better in one. Only settings with the most seeds are compared,
    because the seeds that a scheduler lets continue are the luckier ones.

    Args:
        items: Settings that reached `amount` of `unit`, where their quality is compared.
        quality: The metric of quality.
        amount: Amount of `unit` at which quality is compared.
        unit: A field of the reports.
        cost_of: A function from a setting's cost to a number, of which less is better.
    """
    most = max((item.interval.count for item in items), default=0)
    points = []
    for item in items:
        cost, found = cost_of(item.setting.cost), item.setting.interval(quality.metric, amount, unit)
        if item.interval.count == most and found is not None and cost is not None:
            points.append((item, quality.cost(found.mean), cost))

    def is_beaten(loss: float, cost: float) -> bool:
        return any(one <= loss and two <= cost and (one, two) != (loss, cost) for _, one, two in points)

    return [item for item, loss, cost in points if not is_beaten(loss, cost)]


def front_amount(trials: Iterable[TrialState], unit: str = "step") -> float | None:
    """Return the largest amount of `unit` that at least three settings, or all, reached with all their seeds.

    The Pareto front is drawn at this amount. It does not exceed the amount that every finished trial used.
    """
    depths, finished = [], []
    for setting in settings(trials):
        lasts = [(trial.state, _last(trial, unit)) for trial in setting.trials if trial.state != "failed"]
        amounts = [amount for _, amount in lasts if amount is not None]
        if amounts:
            depths.append((len(amounts), min(amounts)))
        finished += [amount for state, amount in lasts if state == "finished" and amount is not None]
    most = max((seeds for seeds, _ in depths), default=0)
    ordered = sorted((depth for seeds, depth in depths if seeds == most), reverse=True)
    if not ordered:
        return None
    return min([*finished, ordered[min(_LEAST_SETTINGS, len(ordered)) - 1]])


def _last(trial: TrialState, unit: str) -> float | None:
    """Return the amount at the last report with a finite loss."""
    amounts = [report.get(unit) for report in trial.reports if is_number(report.get(LOSS.metric))]
    return next((float(amount) for amount in reversed(amounts) if is_number(amount)), None)


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

    The interval is Student's t over the trials with that value. It includes the effects of seeds and of other
    hyperparameters.
    """
    cells, names = ordered_cells(values)
    groups = np.arange(len(names))
    if is_range(values):
        absent = int(names[0] is None)
        ends = np.quantile(cells[cells >= absent], np.arange(1, BINS) / BINS)
        groups[absent:] = 1 + np.searchsorted(ends, groups[absent:], side="right")
    found = []
    for group in sorted(set(groups.tolist())):
        inside = [index for index, cell in enumerate(cells) if groups[cell] == group]
        members = [names[cell] for cell in np.flatnonzero(groups == group)]
        label = shown(members[0]) if len(members) == 1 else f"{members[0]:.3g} to {members[-1]:.3g}"
        mean = mean_interval([metric[index] for index in inside])
        if mean is not None:
            found.append(Level(label or "not set", tuple(inside), mean))
    return found


def importance(
    settings: Sequence[Mapping[str, Any]], metric: Sequence[float], hyperparameters: Sequence[str]
) -> dict[str, float]:
    """Return each hyperparameter's main effect as a share of the metric's variance.

    It is measured by Optuna's functional ANOVA over a forest (Hutter, Hoos and Leyton-Brown 2014, "An Efficient
    Approach for Assessing Hyperparameter Importance"). The rest of the variance is due to interactions of
    hyperparameters and to chance.
    """
    if np.ptp(metric) == 0:
        return dict.fromkeys(hyperparameters, 0.0)
    import optuna  # takes a second, which only pages with importances need

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    params: dict[str, list[Any]] = {}
    distributions: dict[str, Any] = {}
    for hyperparameter in hyperparameters:
        values = [setting.get(hyperparameter) for setting in settings]
        if all(map(is_number, values)):
            params[hyperparameter] = values
            distributions[hyperparameter] = optuna.distributions.FloatDistribution(
                min(params[hyperparameter]), max(params[hyperparameter])
            )
        else:
            params[hyperparameter] = [json.dumps(value) for value in values]
            distributions[hyperparameter] = optuna.distributions.CategoricalDistribution(
                sorted(set(params[hyperparameter]))
            )
    study = optuna.create_study()
    study.add_trials(
        optuna.trial.create_trial(
            params={hyperparameter: params[hyperparameter][row] for hyperparameter in params},
            distributions=distributions,
            value=float(value),
        )
        for row, value in enumerate(metric)
    )
    evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=TREES, max_depth=DEPTH, seed=0)
    found = evaluator.evaluate(study)
    return {hyperparameter: found.get(hyperparameter, 0.0) for hyperparameter in hyperparameters}


def is_range(values: Sequence[Any]) -> bool:
    """Return True if values [trials] are points of a range, rather than a few numbers or names to choose from."""
    different = {json.dumps(value, sort_keys=True) for value in values}
    if not all(is_number(value) or value is None for value in values):
        return False
    continuous = any(isinstance(value, float) and not value.is_integer() for value in values)
    return len(different) > LEVELS or (continuous and len(different) > max(BINS, len(values) // 2))


def table(sweep: SweepRecipe, trials: Sequence[TrialState]) -> str:
    """Return the text of `sweep.csv`.

    The columns are trial, state, the hyperparameters, the last report, setting, seed, front and error. `front` is `yes`
    for settings on the Pareto front of quality and speed. Settings are compared by their mean over seeds, at the amount
    of the budget's unit that at least three settings reached.
    """
    unit, leading = sweep.budget.unit, []
    amount = front_amount(trials, unit)
    if amount is not None:
        ranked = rank(trials, target=sweep.target, unit=unit, amount=amount)
        leading = front(ranked, sweep.quality, amount, unit, lambda cost: cost.slowness)
    on_front = {trial.name for item in leading for trial in item.setting.trials}
    keys = sorted({*sweep.space, *hyperparameters(trials)})
    more = sorted({name for trial in trials for name in trial.last} - {*METRICS, *_NO_METRICS})
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["trial", "state", *keys, *METRICS, *more, "setting", "seed", "front", "error"])
    for trial in trials:
        values = [shown(trial.values.get(key)) for key in keys]
        metrics = [shown(trial.last.get(name)) for name in (*METRICS, *more)]
        marks = [shown(trial.setting), shown(trial.seed), "yes" if trial.name in on_front else ""]
        writer.writerow([trial.name, trial.state, *values, *metrics, *marks, trial.error])
    return file.getvalue()


def write(
    folder: Path, sweep: SweepRecipe, trials: Sequence[TrialState], skipped: Mapping[str, int] | None = None
) -> list[Path]:
    """Write the best recipe, if any trial has a result, and the tables, `sweep.csv` last. Return the paths.

    Args:
        folder: Folder of the sweep.
        sweep: The sweep, which makes the recipe of the best values.
        trials: All trials, in order.
        skipped: Number of skipped settings by reason, written to `skipped.json`.
    """
    files = {}
    winner = best(trials, target=sweep.target, unit=sweep.budget.unit)
    if winner is not None:
        note = f"# The best of {len(trials)} trials ({winner.name}): {json.dumps(dict(winner.values))}\n"
        files[BEST] = note + yaml.safe_dump(sweep.best_recipe(winner.values), sort_keys=False)
    if skipped:
        files["skipped.json"] = json.dumps(dict(sorted(skipped.items())), indent=1) + "\n"
    lines = [{name: getattr(trial, name) for name in _LINE} for trial in trials]
    files["trials.jsonl"] = "".join(json.dumps(line) + "\n" for line in lines)
    files[TABLE] = table(sweep, trials)
    for name, text in files.items():
        Storage.at(str(folder)).write_bytes(name, text.encode())
    return [folder / name for name in files]


def read(folder: Path, *, seeds: int, reports: int, target: Target = LOSS) -> tuple[History, bool]:
    """Return the state of the sweep in `folder`, and whether it has ended.

    Raises:
        UserError: The sweep has ended but its journal is missing, or the journal is damaged.
    """
    ended = (folder / TABLE).is_file()
    if ended and not (folder / JOURNAL).is_file():
        raise UserError(f"{folder}: {JOURNAL} is gone, from which a sweep is read; put it back beside {TABLE}")
    return read_history(folder, seeds=seeds, reports=reports, target=target), ended
