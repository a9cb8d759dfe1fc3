"""The shape that all scores have, and bits per byte."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Metrics:
    """Scores by name. Shares and correlations are between -1 and 1, never percent."""

    values: Mapping[str, float]
    main: str  # the one by which runs are compared

    @property
    def score(self) -> float:
        """The main one."""
        return self.values[self.main]


def bits_per_byte(nats: float, num_bytes: int) -> Metrics:
    """A language model's summed negative log-likelihood as bits for each byte of UTF-8 of the text; less is better.

    Args:
        nats: the sum over all targets, in natural units.
        num_bytes: of the whole text that the targets stand for.

    Raises:
        ValueError: there is no text.
    """
    if num_bytes < 1:
        raise ValueError(f"{num_bytes} bytes of text; bits per byte need one or more")
    return Metrics({"bits_per_byte": nats / math.log(2) / num_bytes}, "bits_per_byte")
