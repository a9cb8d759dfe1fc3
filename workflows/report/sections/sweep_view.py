"""The facts about a sweep that several parts of its page share, and how they are written."""

from collections.abc import Callable, Mapping
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
from tokenfree.train.sweep.results.trial_result import TrialResult, is_number, knobs, short_names, shown
from tokenfree.train.sweep.space.targets import LOSS, SPEED, objectives
from tokenfree.workflows.report.load import SweepRecord
from tokenfree.workflows.report.sections.parts import count

UNITS: Mapping[str, tuple[str, Callable[[float], str]]] = {  # of budgets: the name, and an amount of it
    "step": ("step", lambda amount: f"step {amount:,.0f}"),
    "characters": ("characters", lambda amount: f"{count(amount)} characters"),
    "flops": ("FLOPs", lambda amount: f"{count(amount)} FLOPs"),
    "train_seconds": ("training seconds", lambda amount: f"{amount:,.1f} training seconds"),
}
MOST_PICTURED = 400
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
        common: the amount that all ended trials got to.
        ranked: settings that got to `amount`, best first.
        seeded: whether settings have several seeds.
    """

    def __init__(self, sweep: SweepRecord) -> None:
        self.sweep = sweep
        self.trials = list(sweep.trials)
        self.knobs = knobs(self.trials)
        self.names = dict(zip(self.knobs, short_names(self.knobs), strict=True))
        self.unit = _unit(sweep.recipe)
        self.targets = objectives(sweep.recipe.get("objectives") or [LOSS.metric])
        self.amount = full_amount(self.trials, self.unit)
        self.common = common_amount(self.trials, self.unit)
        self.ranked = rank(self.trials, target=self.targets[0], unit=self.unit, amount=self.amount)
        self.seeded = any(len(setting.trials) > 1 for setting in settings(self.trials))

    @cached_property
    def at(self) -> str:
        """Where settings are compared: `step 90`."""
        return "" if self.amount is None else UNITS[self.unit][1](self.amount)

    @cached_property
    def leading(self) -> list[Ranked]:
        """The settings on the front."""
        if self.amount is None:
            return []
        return front(self.ranked, self.targets if len(self.targets) > 1 else (LOSS, SPEED), self.amount, self.unit)

    def loss(self, setting: Setting, digits: int = 3) -> str:
        """The held-out loss of a setting where it is compared, in nats, with its interval."""
        return "–" if self.amount is None else plus_minus(setting.interval(LOSS.metric, self.amount, self.unit), digits)

    def speed(self, setting: Setting) -> float:
        """Characters per second of a setting where it is compared; 0 where it is not known."""
        found = None if self.amount is None else setting.interval(SPEED.metric, self.amount, self.unit)
        return found.mean if found else 0.0

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
