"""What a sweep came to: results of trials, fair comparisons, costs, effects of knobs, and the tables in its folder.

`sweep.csv` has a row for each trial, `trials.jsonl` all their reports, `best.yaml` is a recipe. All are made from the
journal and are never read back.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import yaml
from scipy.stats import t as student_t

from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.train.sweep.history import JOURNAL, History, read_history
from tokenfree.train.sweep.recipe import LOSS, SPEED, Target

if TYPE_CHECKING:
    from tokenfree.train.sweep.recipe import SweepRecipe

BEST = "best.yaml"  # a recipe
TABLE = "sweep.csv"  # written last: where it is, the sweep has ended
METRICS = ("step", "validation_loss", "validation_accuracy", "characters_per_second", "train_seconds", "parameters")
_NO_METRICS = frozenset({"report", "seed", "machine"})  # fields of a report that are no columns of the table
_SAME = 1.01  # ratio of sizes of equal models: the targets that a seed draws change the arithmetic by a little
_NO_ARITHMETIC = frozenset({"train.micro_batch", "train.threads"})  # numbers that change speed alone
_LEAST_SETTINGS = 3  # that make a front
LEVELS = 8  # a knob with more different numbers than this is put into BINS of about as many trials each
BINS = 4
FORESTS, TREES, DEPTH = 4, 8, 5  # shallow trees: their time grows with the square of their leaves
SHUFFLES = 19  # the highest share of so many shuffles is exceeded by chance in 5% of all cases
STATES = {
    "finished": "used its whole budget",
    "stopped": "stopped early by the scheduler",
    "failed": "failed by itself",
    "running": "still training",
    "waiting": "not begun yet",
}


@dataclass(frozen=True)
class TrialResult:
    """One trial.

    Attributes:
        name: `trial_003`.
        values: by dotted key.
        state: one of `STATES`.
        reports: in order, each with `METRICS` and more.
        error: why it failed.
        setting: the number of its setting, from 0; trials of one setting begin with the same values.
        seed: added to the recipe's own, by which alone the trials of a setting differ.
    """

    name: str
    values: Mapping[str, Any]
    state: str
    reports: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    error: str = ""
    setting: int = 0
    seed: int = 0

    @property
    def last(self) -> Mapping[str, Any]:
        """The last report; empty where there was none."""
        return self.reports[-1] if self.reports else {}

    def value_at(self, metric: str, amount: float, unit: str = "step") -> float | None:
        """`metric` when the trial had used `amount` of `unit` (a field of its reports), linear between two reports.

        None before the first report and after the last: a curve is never prolonged.
        """
        points = [(report.get(unit), report.get(metric)) for report in self.reports]
        points = [(float(x), float(y)) for x, y in points if is_number(x) and is_number(y)]
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            if x0 <= amount < x1:
                return y0 + (y1 - y0) * (amount - x0) / (x1 - x0)
        return points[-1][1] if points and points[-1][0] == amount else None


def trial_results(history: History) -> list[TrialResult]:
    """All trials of a sweep as they stand, in the order in which they were proposed."""
    return [
        TrialResult(
            name=trial.name,
            values=trial.values,
            state=trial.state,
            reports=trial.reports,
            error=trial.error if trial.state == "failed" else "",
            setting=trial.setting,
            seed=trial.seed,
        )
        for trial in history.trials.values()
    ]


def knobs(trials: Sequence[TrialResult]) -> list[str]:
    """The dotted keys that the trials set; one that stands under a condition is in some of them only."""
    return sorted({key for trial in trials for key in trial.values})


def short_names(keys: Sequence[str]) -> list[str]:
    """The shortest ends of dotted keys that tell them apart: `alpha`, `attention.name`."""
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
    """A knob's value as a person reads it: `0.001`, `full`, `{"name": "full"}`; nothing where it is absent."""
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, float):
        return json.dumps(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a finite number: a loss may be NaN, and a field may be missing."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


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
    """Return the mean of independent values and its interval by Student's t; None without values."""
    if not values:
        return None
    mean, count = float(np.mean(values)), len(values)
    if count == 1:
        return MeanInterval(mean, None, 1)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    return MeanInterval(mean, float(student_t.ppf((1 + level) / 2, count - 1)) * error, count)


@dataclass(frozen=True)
class TrainingCost:
    """What a character costs a model in training.

    Attributes:
        flops: floating point operations for each character read, forward and backward; None where they are not known.
        speed: characters per second over all training steps of all trials of equal models; None where not known.
        num_trials: over which `speed` is pooled.
    """

    flops: float | None
    speed: float | None
    num_trials: int


def costs(trials: Iterable[TrialResult]) -> dict[str, TrainingCost]:
    """The cost of each trial that has reported, by its name; equal models have equal costs."""
    found = {}
    for group in _equal_models([trial for trial in trials if trial.reports]):
        cost = _cost(group)
        found.update(dict.fromkeys((trial.name for trial in group), cost))
    return found


def front_amount(trials: Iterable[TrialResult], unit: str = "step") -> float | None:
    """Where a front is drawn: the largest amount of `unit` that at least three settings got to with all their seeds.

    All settings where there are fewer. Where three finished it is the amount that every finished trial used: with a
    budget in seconds each ends a little after it.
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


def _last(trial: TrialResult, unit: str) -> float | None:
    """The amount at the last report with a loss that is a number."""
    amounts = [report.get(unit) for report in trial.reports if is_number(report.get(LOSS.metric))]
    return next((float(amount) for amount in reversed(amounts) if is_number(amount)), None)


def _equal_models(trials: Iterable[TrialResult]) -> list[list[TrialResult]]:
    """Trials grouped by what a step asks of the machine.

    That is the parameters and the arithmetic of a step, which hold what numbers of the recipe change, and all values
    that are no numbers, such as the name of an optimizer or of an attention pattern.
    """
    groups: list[list[TrialResult]] = []
    for trial in trials:
        for group in groups:
            if _are_equal(trial, group[0]):
                group.append(trial)
                break
        else:
            groups.append([trial])
    return groups


def _are_equal(one: TrialResult, other: TrialResult) -> bool:
    if _words(one) != _words(other):
        return False
    pairs = list(zip(_sizes(one), _sizes(other), strict=False))
    return bool(pairs) and all(max(pair) <= _SAME * min(pair) for pair in pairs)


def _words(trial: TrialResult) -> list[tuple[str, str]]:
    values = sorted(trial.values.items())
    return [(key, str(value)) for key, value in values if key in _NO_ARITHMETIC or not is_number(value)]


def _sizes(trial: TrialResult) -> tuple[float, ...]:
    """Parameters and the arithmetic of a step; nothing where they are not known."""
    flops, steps, parameters = (trial.last.get(name) for name in ("flops", "step", "parameters"))
    if not (is_number(flops) and is_number(steps) and is_number(parameters) and steps):
        return ()
    return parameters, flops / steps


def _cost(group: list[TrialResult]) -> TrainingCost:
    flops = characters = read = seconds = 0.0
    for trial in group:
        last = trial.last
        speed, time = last.get(SPEED.metric), last.get("train_seconds")
        if is_number(speed) and is_number(time) and speed > 0:
            read, seconds = read + speed * time, seconds + time
        if is_number(last.get("flops")) and is_number(last.get("characters")):
            flops, characters = flops + last["flops"], characters + last["characters"]
    return TrainingCost(flops / characters if characters else None, read / seconds if seconds else None, len(group))


@dataclass(frozen=True)
class Level:
    """One value of a knob, or a range of numbers: the indices of its trials, and the mean of their metric."""

    label: str
    trials: tuple[int, ...]
    interval: MeanInterval


@dataclass(frozen=True)
class Importance:
    """The share of the metric's variance that one knob explains by itself.

    `low` and `high` are the lowest and highest share of the forests. A knob without any effect gets a share below
    `chance` in 95% of all cases.
    """

    knob: str
    share: float
    low: float
    high: float
    chance: float


def ordered_cells(values: Sequence[Any]) -> tuple[np.ndarray, list[Any]]:
    """Return the index of each value among the different ones, and these: absent first, then numbers, then others."""
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
    """Mean and 95% interval of the metric [trials] at each value of a knob [trials], values in order.

    The interval is Student's t over the trials with that value: it holds what seeds and the other knobs did to them.
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
    settings: Sequence[Mapping[str, Any]], metric: Sequence[float], knobs: Sequence[str], seed: int = 0
) -> list[Importance]:
    """Return each knob's main effect as a share of the metric's variance, largest first.

    Optuna's functional ANOVA over a forest measures it (Hutter, Hoos and Leyton-Brown 2014, "An Efficient Approach for
    Assessing Hyperparameter Importance"). What is missing to 1 is due to knobs acting together. The same on shuffled
    metrics gives what chance alone would.
    """
    different = {knob: {json.dumps(setting.get(knob)) for setting in settings} for knob in knobs}
    searched = [knob for knob in knobs if len(different[knob]) > 1]
    shares = dict.fromkeys(knobs, (0.0, 0.0, 0.0, 0.0))
    if searched and np.ptp(metric) > 0:
        columns = {knob: [setting.get(knob) for setting in settings] for knob in searched}
        random = np.random.default_rng(seed)
        forests = np.array([_shares(columns, metric, number) for number in range(FORESTS)])
        shuffled = [_shares(columns, random.permutation(metric).tolist(), seed) for _ in range(SHUFFLES)]
        parts = (forests.mean(0), forests.min(0), forests.max(0), np.max(shuffled, axis=0))
        shares.update(zip(searched, zip(*(map(float, part) for part in parts), strict=True), strict=True))
    found = [Importance(knob, *shares[knob]) for knob in knobs]
    return sorted(found, key=lambda item: (-item.share, item.knob))


def _shares(columns: Mapping[str, Sequence[Any]], metric: Sequence[float], seed: int) -> list[float]:
    """Return the share of each knob in the variance of one forest."""
    import optuna  # takes a second, which only pages with importances need

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    params: dict[str, list[Any]] = {}
    distributions: dict[str, Any] = {}
    for knob, values in columns.items():
        if all(map(is_number, values)):
            params[knob] = [float(value) for value in values]
            distributions[knob] = optuna.distributions.FloatDistribution(min(params[knob]), max(params[knob]))
        else:
            params[knob] = [json.dumps(value) for value in values]
            distributions[knob] = optuna.distributions.CategoricalDistribution(sorted(set(params[knob])))
    study = optuna.create_study()
    study.add_trials(
        optuna.trial.create_trial(
            params={knob: params[knob][row] for knob in params}, distributions=distributions, value=float(value)
        )
        for row, value in enumerate(metric)
    )
    found = optuna.importance.FanovaImportanceEvaluator(n_trees=TREES, max_depth=DEPTH, seed=seed).evaluate(study)
    return [float(found[knob]) for knob in columns]


def is_range(values: Sequence[Any]) -> bool:
    """Whether the values of a knob [trials] are points of a range, and not a few numbers or names to choose among."""
    different = {json.dumps(value, sort_keys=True) for value in values}
    if not all(is_number(value) or value is None for value in values):
        return False
    continuous = any(isinstance(value, float) and not value.is_integer() for value in values)
    return len(different) > LEVELS or (continuous and len(different) > max(BINS, len(values) // 2))


def table(
    sweep: SweepRecipe, trials: Sequence[TrialResult], *, targets: Sequence[Target] = (LOSS,), unit: str = "step"
) -> str:
    """The text of `sweep.csv`: trial, state, a column a knob, the last report, setting, seed, front, error.

    `front` is `yes` for settings that no other one beats: in all targets, or in quality and speed where there is only
    one.
    They are compared in the mean over seeds, at the amount of `unit` that at least three settings got to, and by the
    speed that equal models share, see `costs`.
    """
    amount = front_amount(trials, unit)
    ranked = [] if amount is None else rank(trials, target=targets[0], unit=unit, amount=amount)
    known = {SPEED.metric: {name: cost.speed for name, cost in costs(trials).items()}}
    asked = targets if len(targets) > 1 else (targets[0], SPEED)
    leading = [] if amount is None else front(ranked, asked, amount, unit, known=known)
    on_front = {trial.name for item in leading for trial in item.setting.trials}
    keys = sorted({*sweep.space, *knobs(trials)})
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
    folder: Path,
    sweep: SweepRecipe,
    trials: Sequence[TrialResult],
    *,
    skipped: Mapping[str, int] | None = None,
    targets: Sequence[Target] = (LOSS,),
    unit: str = "step",
) -> list[Path]:
    """Write the best recipe, if any trial came to something, and the tables, `sweep.csv` last; return the files.

    Args:
        folder: of the sweep.
        sweep: makes the recipe of the best values.
        trials: all of them, in order.
        skipped: how many settings were not tried, by reason; kept in `skipped.json`.
        targets: the first one decides what is best.
        unit: the field of the reports that the budget counts.
    """
    files = {}
    winner = best(trials, target=targets[0], unit=unit)
    if winner is not None:
        note = f"# The best of {len(trials)} trials ({winner.name}): {json.dumps(dict(winner.values))}\n"
        files[BEST] = note + yaml.safe_dump(sweep.best_recipe(winner.values), sort_keys=False)
    if skipped:
        files["skipped.json"] = json.dumps(dict(sorted(skipped.items())), indent=1) + "\n"
    files["trials.jsonl"] = "".join(json.dumps(asdict(trial)) + "\n" for trial in trials)
    files[TABLE] = table(sweep, trials, targets=targets, unit=unit)
    for name, text in files.items():
        Storage.at(str(folder)).write_bytes(name, text.encode())
    return [folder / name for name in files]


def read(folder: Path, *, seeds: int, reports: int, target: Target = LOSS) -> tuple[History, bool]:
    """What is known of the sweep in `folder`, and whether it has ended; see `read_history`.

    Raises:
        UserError: it has ended, but its journal is gone.
    """
    ended = (folder / TABLE).is_file()
    if ended and not (folder / JOURNAL).is_file():
        raise UserError(f"{folder}: {JOURNAL} is gone, from which a sweep is read; put it back beside {TABLE}")
    return read_history(folder, seeds=seeds, reports=reports, target=target), ended
