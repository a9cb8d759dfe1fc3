"""What a sweep is judged by: metrics, and which way each of them goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Objective = Literal["validation_loss", "characters_per_second", "dev_score", "dev_error"]


@dataclass(frozen=True)
class Target:
    """A metric of the reports, and whether less or more of it is better (`min` or `max`)."""

    metric: str = "validation_loss"
    mode: str = "min"

    def cost(self, value: float) -> float:
        """A number of which less is always better, in the metric's own unit."""
        return value if self.mode == "min" else -value


LOSS = Target()  # in nats for each target, on held-out windows
SPEED = Target("characters_per_second", "max")  # in training steps, without validations
SCORE = Target("dev_score", "max")  # of a task: the main score on the development set, of the best checkpoint so far
ERROR = Target("dev_error")  # the same of a task whose main score is an error


def objectives(names: Sequence[str]) -> list[Target]:
    """The targets of these names: speed and scores are to be high, everything else low."""
    high = {target.metric: target for target in (SPEED, SCORE)}
    return [high.get(name, Target(name)) for name in names]


def quality(names: Sequence[str]) -> Target:
    """What says how good a trial of a sweep with these objectives is, whatever it costs."""
    return next((target for target in objectives(names) if target in (SCORE, ERROR)), LOSS)
