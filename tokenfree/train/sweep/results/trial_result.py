"""One trial of a sweep as it is compared and shown: its values, how it stands or ended, and all that it reported."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from tokenfree.train.sweep.control.history import History

METRICS = ("step", "validation_loss", "validation_accuracy", "characters_per_second", "train_seconds", "parameters")
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
