"""The facts about a sweep that several parts of its page share, and how they are written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from tokenfree.train.sweep.results.compare import (
    MeanInterval,
    Ranked,
    Setting,
    common_amount,
    front,
    full_amount,
    mean_interval,
    rank,
    settings,
)
from tokenfree.train.sweep.results.costs import TrainingCost, costs, front_amount
from tokenfree.train.sweep.results.effects import Importance, importance
from tokenfree.train.sweep.results.trial_result import TrialResult, is_number, knobs, short_names, shown
from tokenfree.train.sweep.space.targets import LOSS, SPEED, Target, objectives, quality
from tokenfree.workflows.report.figures.drawing import are_wide, cut
from tokenfree.workflows.report.load import SweepRecord
from tokenfree.workflows.report.sections.parts import count

UNITS: Mapping[str, tuple[str, Callable[[float], str]]] = {  # of budgets: the name, and an amount of it
    "step": ("step", lambda amount: f"step {amount:,.0f}"),
    "characters": ("characters", lambda amount: f"{count(amount)} characters"),
    "flops": ("FLOPs", lambda amount: f"{count(amount)} FLOPs"),
    "train_seconds": ("training seconds", lambda amount: f"{amount:,.1f} training seconds"),
}
MOST_PICTURED = 400
LEAST_TRIALS = 6  # for shares of a variance
MOST_NAMING = 4  # knobs by whose values settings are named in pictures
FLOPS = Target("flops_per_character")
LOSS_NAME = "held-out loss (nats)"


class SweepView:
    """A sweep, its settings ranked where they are compared: at the same amount of what the budget counts.

    Attributes:
        sweep: what it shows.
        trials: all of them.
        knobs: the dotted keys that they set.
        names: a short name for each knob.
        amount: of the budget's `unit`, at which settings are ranked; `at` says it in words.
        targets: what settings are ranked by, the first first.
        quality: what says how good a trial is: the held-out loss or, of a task, the score.
        common: the amount that all ended trials got to.
        ranked: settings that got to `amount`, best first.
        seeded: whether settings have several seeds.
        front_amount: of the budget's unit, at which quality is held against cost; `front_at` says it in words.
        front_ranked: settings that got to `front_amount`.
        costs: of each trial, by its name; see train/sweep/results/costs.py.
    """

    def __init__(self, sweep: SweepRecord) -> None:
        self.sweep = sweep
        self.trials = list(sweep.trials)
        self.knobs = knobs(self.trials)
        self.names = dict(zip(self.knobs, short_names(self.knobs), strict=True))
        self.unit = _unit(sweep.recipe)
        names = sweep.recipe.get("objectives") or [LOSS.metric]
        self.targets, self.quality = objectives(names), quality(names)
        self.amount = full_amount(self.trials, self.unit)
        self.common = common_amount(self.trials, self.unit)
        self.ranked = rank(self.trials, target=self.targets[0], unit=self.unit, amount=self.amount)
        self.seeded = any(len(setting.trials) > 1 for setting in settings(self.trials))
        self.front_amount = front_amount(self.trials, self.unit)
        self.front_ranked = (
            []
            if self.front_amount is None
            else rank(self.trials, target=self.targets[0], unit=self.unit, amount=self.front_amount)
        )
        self.costs = costs(self.trials)

    @cached_property
    def at(self) -> str:
        """Where settings are compared: `step 90`."""
        return "" if self.amount is None else UNITS[self.unit][1](self.amount)

    @property
    def front_at(self) -> str:
        """Where quality is held against cost: `step 60`."""
        return "" if self.front_amount is None else UNITS[self.unit][1](self.front_amount)

    def front(self, targets: Sequence[Target]) -> list[Ranked]:
        """The settings that no other one beats in all targets, where quality is held against cost.

        Arithmetic is compared to two digits: less is no reason to prefer a setting.
        """
        if self.front_amount is None:
            return []
        known = {
            SPEED.metric: {name: cost.speed for name, cost in self.costs.items()},
            FLOPS.metric: {name: cost.flops and float(f"{cost.flops:.2g}") for name, cost in self.costs.items()},
        }
        return front(self.front_ranked, targets, self.front_amount, self.unit, known=known)

    def cost(self, setting: Setting) -> TrainingCost:
        """What a character costs a setting in training."""
        return self.costs.get(setting.trials[0].name, TrainingCost(None, None, 0))

    @cached_property
    def naming(self) -> list[str]:
        """The knobs whose values name settings in pictures: those that differ; none where they are too many."""
        differing = [key for key in self.knobs if len({shown(trial.values.get(key)) for trial in self.trials}) > 1]
        return differing if len(differing) <= MOST_NAMING else []

    def short_name(self, setting: Setting) -> str:
        """`4 · 0.5 · full`: the values of a setting in the order of `naming`; `3` where the knobs are too many."""
        values = [setting.values.get(key) for key in self.naming]
        parts = [f"{value:.3g}" if isinstance(value, float) else cut(shown(value) or "–", 14) for value in values]
        return " · ".join(parts) or str(setting.index)

    def is_log(self, key: str) -> bool:
        """Whether a knob is logarithmic: by its range, or by the spread of the values that are listed for it."""
        knob = (self.sweep.recipe.get("space") or {}).get(key) or {}
        if knob.get("log_uniform") is not None:
            return True
        if knob.get("uniform") is not None or knob.get("integer") is not None:
            return False
        listed = [value for value in knob.get("choice") or knob.get("grid") or () if value is not None]
        return all(map(is_number, listed)) and are_wide(listed)

    def losses_at(self, amount: float) -> list[tuple[TrialResult, float]]:
        """The trials that got to `amount`, with their loss there."""
        found = [(trial, trial.value_at(LOSS.metric, amount, self.unit)) for trial in self.trials]
        return [(trial, loss) for trial, loss in found if loss is not None and trial.state != "failed"]

    def searched(self, compared: Sequence[tuple[TrialResult, float]]) -> list[str]:
        """The knobs that have more than one value among these trials."""
        return [key for key in self.knobs if len({shown(trial.values.get(key)) for trial, _ in compared}) > 1]

    @cached_property
    def importances(self) -> list[Importance]:
        """Of each knob, by its short name, where all trials got to; none of a single knob or of few trials."""
        compared = [] if self.common is None else self.losses_at(self.common)
        searched = self.searched(compared)
        if len(searched) < 2 or len(compared) < LEAST_TRIALS:
            return []
        found = importance([trial.values for trial, _ in compared], [loss for _, loss in compared], searched)
        return [replace(item, knob=self.names[item.knob]) for item in found]

    def loss(self, setting: Setting, digits: int = 3) -> str:
        """The held-out loss of a setting where it is compared, in nats, with its interval."""
        return "–" if self.amount is None else plus_minus(setting.interval(LOSS.metric, self.amount, self.unit), digits)

    def best_number(self) -> tuple[str, str]:
        """How good the best setting is, and what that number is."""
        best = self.ranked[0].setting
        if self.quality == LOSS:
            return self.loss(best), f"best {LOSS_NAME}"
        return self._score(best, 3), f"best {target_name(self.quality.metric)}"

    def praise(self, setting: Setting, digits: int = 3) -> str:
        """How good a setting is where it is compared, in words, with its interval."""
        if self.quality == LOSS:
            return f"held-out loss {self.loss(setting, digits)} nats"
        return f"{target_name(self.quality.metric)} {self._score(setting, digits)}"

    def _score(self, setting: Setting, digits: int) -> str:
        found = None if self.amount is None else setting.interval(self.quality.metric, self.amount, self.unit)
        return plus_minus(found, digits)

    def mean_of_last(self, setting: Setting, metric: str) -> float | None:
        """The mean of the last reports of the trials of a setting that got to where settings are compared."""
        if self.amount is None:
            return None
        values = [trial.last.get(metric) for trial, _ in setting.reached(LOSS.metric, self.amount, self.unit)]
        found = mean_interval([float(value) for value in values if is_number(value)])
        return None if found is None else found.mean

    def values(self, setting: Setting) -> list[str]:
        """A cell for each knob."""
        return [shown(setting.values.get(knob)) or "–" for knob in self.knobs]

    def described(self, values: Mapping[str, Any]) -> str:
        """`rate = 4, alpha = 0.5`."""
        return ", ".join(f"{self.names[knob]} = {shown(value)}" for knob, value in sorted(values.items()))

    def order(self, trial: TrialResult) -> tuple[float, float, str]:
        """Sorts those that got furthest first, then by loss."""
        amount, loss = trial.last.get(self.unit), trial.last.get(LOSS.metric)
        return -amount if is_number(amount) else 1.0, loss if is_number(loss) else float("inf"), trial.name


def plus_minus(found: MeanInterval | None, digits: int = 4) -> str:
    """`4.2288 ± 0.0031`, a mean alone where there is no interval, or a dash."""
    if found is None:
        return "–"
    return f"{found.mean:.{digits}f}" + ("" if found.half is None else f" ± {found.half:.{digits}f}")


def cell(value: Any, form: Callable[[float], str]) -> str:
    """`value` in that form, or a dash where it is missing or not a number."""
    return form(value) if is_number(value) else "–"


def target_name(metric: str) -> str:
    """A metric as it stands beside an axis."""
    return LOSS_NAME if metric == LOSS.metric else metric.replace("_", " ")


def _unit(recipe: Mapping[str, Any]) -> str:
    """The field of the reports that the budget counts."""
    budget = recipe.get("budget") or {}
    fields = {"characters": "characters", "flops": "flops", "seconds": "train_seconds"}
    return next((field for key, field in fields.items() if budget.get(key) is not None), "step")
