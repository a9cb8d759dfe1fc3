"""What a sweep is judged by: metrics, and which way each of them goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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


def objectives(names: Sequence[str]) -> list[Target]:
    """The targets of these names: speed is to be high, everything else low."""
    return [SPEED if name == SPEED.metric else Target(name) for name in names]
