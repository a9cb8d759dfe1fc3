"""The settings of a sweep, and the settings of each of its trials: a pure function of the sweep's seed and an index."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Annotated, Any

from pydantic import Field

from preprocess.errors import UserError
from preprocess.settings import build, merge, nest, settings, to_mapping
from train.config import PretrainRecipe


@settings
class Knob:
    """The values that one dotted key may take: exactly one of the kinds."""

    choice: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    integer: tuple[int, int] | None = None  # both ends included
    uniform: tuple[float, float] | None = None
    log_uniform: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] | None = None

    def __post_init__(self) -> None:
        if sum(kind is not None for kind in (self.choice, self.integer, self.uniform, self.log_uniform)) != 1:
            raise ValueError("give exactly one of choice, integer, uniform, log_uniform")

    def value(self, quantile: float) -> Any:
        """The value at `quantile` in [0, 1) of the knob's distribution, floats to four significant digits."""
        if self.choice is not None:
            return self.choice[int(quantile * len(self.choice))]
        if self.integer is not None:
            low, high = self.integer
            return low + int(quantile * (high - low + 1))
        if self.uniform is not None:
            low, high = self.uniform
            return _rounded(low + quantile * (high - low))
        assert self.log_uniform is not None
        low, high = map(math.log, self.log_uniform)
        return _rounded(math.exp(low + quantile * (high - low)))


@settings
class AshaConfig:
    """Asynchronous successive halving (Li et al. 2020): after `grace_steps` only the best 1/`reduction` go on."""

    grace_steps: Annotated[int, Field(ge=1)] = 20
    reduction: Annotated[int, Field(ge=2)] = 3


@settings
class SweepRecipe:
    """A search over dotted keys of a pretraining recipe.

    `base` is that recipe (a name or file on disk, a mapping here), `overrides` is laid over it for every trial and for
    the best recipe, `steps` is the budget of a trial alone.
    """

    base: dict[str, Any]
    overrides: dict[str, Any] = field(default_factory=dict)
    space: Annotated[dict[str, Knob], Field(min_length=1)]
    trials: Annotated[int, Field(ge=1)] = 8
    concurrent: Annotated[int, Field(ge=1)] | None = None  # None: as many as the cluster has CPUs
    steps: Annotated[int, Field(ge=1)] = 100
    report_every_steps: Annotated[int, Field(ge=1)] = 20
    scheduler: AshaConfig = AshaConfig()
    seed: Annotated[int, Field(ge=0)] = 0

    def mapping(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The recipe's mapping with `values` (dotted key -> value) laid over base and overrides."""
        mapping = merge(self.base, self.overrides)
        return merge(mapping, nest((key, json.dumps(value)) for key, value in values.items()))

    def recipe(self, values: Mapping[str, Any]) -> PretrainRecipe:
        """The recipe that a trial with these values trains."""
        mapping = merge(self.mapping(values), {"train": {"steps": self.steps}})
        return build(PretrainRecipe, mapping, source=f"trial {dict(values)}")

    def best_recipe(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The resolved mapping of the recipe with these values and the base's own number of steps."""
        return to_mapping(build(PretrainRecipe, self.mapping(values), source=f"trial {dict(values)}"))

    def candidates(self) -> Iterator[dict[str, Any]]:
        """Endless settings that cover the space evenly, each a function of the seed and its index alone.

        An additive recurrence with the powers of the generalised golden ratio (Roberts 2018, sequence R_d): any first
        n of it are spread well, so raising `trials` keeps the settings of the trials before.
        """
        keys = sorted(self.space)
        ratio = _golden_ratio(len(keys))
        index = self.seed * 1009 + 1
        while True:
            quantiles = [(0.5 + index * ratio ** -(j + 1)) % 1.0 for j in range(len(keys))]
            yield {key: self.space[key].value(q) for key, q in zip(keys, quantiles, strict=True)}
            index += 1


def check_space(sweep: SweepRecipe) -> None:
    """Refuse a space whose keys are no keys of the recipe.

    Raises:
        UserError: naming the key, with the nearest known one.
    """
    first = next(sweep.candidates())
    for key, value in first.items():
        try:
            sweep.recipe({key: value})
        except UserError as error:
            raise UserError(f"space: {key}: {error}") from None


def _golden_ratio(dimensions: int) -> float:
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    return ratio


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
