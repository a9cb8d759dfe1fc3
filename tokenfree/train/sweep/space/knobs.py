"""What a sweep searches: knobs over the dotted keys of a recipe, and the conditions under which a knob plays a part."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Annotated, Any

from pydantic import Field

from tokenfree.core.errors import UserError
from tokenfree.core.settings import settings

VARIANT = "variant"  # a knob of this name chooses among whole recipes instead of setting a key
Values = dict[str, Any]
Fixed = Callable[[str, Values], Any]  # (dotted key, values so far) -> what the recipe has there


@settings
class Knob:
    """The values that one dotted key may take: exactly one of the kinds, and when the key is set at all.

    `grid` differs from `choice` in that every one of its values is tried with every one of the other grids.

    Attributes:
        choice: values to choose among.
        grid: values, each of which is tried with every one of the other grids.
        integer: the lowest and the highest whole number.
        uniform: the lowest and the highest number.
        log_uniform: the same, above 0, where the logarithms are spread evenly.
        when: other keys, each with the value or the list of values that it must have; otherwise the knob is left out.
    """

    choice: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    grid: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    integer: tuple[int, int] | None = None
    uniform: tuple[float, float] | None = None
    log_uniform: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] | None = None
    when: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds = (self.choice, self.grid, self.integer, self.uniform, self.log_uniform)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("give exactly one of choice, grid, integer, uniform, log_uniform")
        for ends in (self.integer, self.uniform, self.log_uniform):
            if ends is not None and ends[0] > ends[1]:
                raise ValueError(f"the range {list(ends)} is empty; give the lower end first")

    @property
    def listed(self) -> tuple[Any, ...] | None:
        """All its values where they can be listed."""
        if self.integer is not None:
            return tuple(range(self.integer[0], self.integer[1] + 1))
        return self.choice or self.grid

    def value(self, quantile: float) -> Any:
        """The value at `quantile` in [0, 1) of the knob's distribution, floats to four significant digits."""
        if self.listed is not None:
            return self.listed[int(quantile * len(self.listed))]
        if self.uniform is not None:
            low, high = self.uniform
            return rounded(low + quantile * (high - low))
        assert self.log_uniform is not None
        low, high = map(math.log, self.log_uniform)
        return rounded(math.exp(low + quantile * (high - low)))

    def near(self, value: Any, factor: float) -> Any:
        """A neighbour of `value`: `factor` times a number of a range, kept inside it; the next one of a list."""
        if self.listed is not None:
            index = self.listed.index(value) + (1 if factor > 1 else -1)
            return self.listed[min(max(index, 0), len(self.listed) - 1)]
        ends = self.uniform or self.log_uniform
        assert ends is not None
        return rounded(min(max(value * factor, ends[0]), ends[1]))


Space = Mapping[str, Knob]


def ordered(space: Space) -> list[str]:
    """The keys, sorted, each after those that its condition names.

    Raises:
        UserError: conditions go round in a circle.
    """
    left, done = sorted(space), []
    while left:
        ready = [key for key in left if not (set(space[key].when) & set(left))]
        if not ready:
            raise UserError(f"space: the conditions (when) of {', '.join(left)} need each other; leave one out")
        done += ready
        left = [key for key in left if key not in ready]
    return done


def active(space: Space, drawn: Values, fixed: Fixed) -> Values:
    """`drawn` without the keys whose condition does not hold.

    Raises:
        UserError: see `ordered`.
    """
    values: Values = {}
    for key in ordered(space):
        if all(_holds(other, wanted, space, values, fixed) for other, wanted in space[key].when.items()):
            values[key] = drawn[key]
    return {key: values[key] for key in sorted(values)}


def at_quantiles(space: Space, quantiles: Mapping[str, float], fixed: Fixed) -> Values:
    """The values at a quantile, in [0, 1), of each knob; those that play no part are left out.

    Raises:
        UserError: see `ordered`.
    """
    return active(space, {key: knob.value(quantiles[key]) for key, knob in space.items()}, fixed)


def products(space: Space) -> Iterator[Values]:
    """Every combination of the values of knobs that can be listed; the last key changes fastest."""
    keys = sorted(space)
    for combination in itertools.product(*(space[key].listed or () for key in keys)):
        yield dict(zip(keys, combination, strict=True))


def _holds(other: str, wanted: Any, space: Space, values: Values, fixed: Fixed) -> bool:
    if other in space and other not in values:
        return False
    found = values[other] if other in space else fixed(other, values)
    return found in wanted if isinstance(wanted, list) else found == wanted


def rounded(value: float) -> float:
    """To four significant digits, so that values read well and are the same on every machine."""
    return float(f"{value:.4g}")
