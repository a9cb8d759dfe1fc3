"""What stands for a refused value: nothing can be made of it, and what does not need it is still told."""

import copy
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tokenfree.core.settings import REFUSED, NeedsRefusedValue, known, problems_of


@pytest.mark.parametrize(
    "use",
    [
        bool, int, float, len, iter, hash, repr, str, abs, list, range, sorted, math.floor, operator.neg,
        lambda value: value.name, lambda value: value[0], lambda value: value(), lambda value: f"{value}",
        lambda value: 4 % value, lambda value: value % 4, lambda value: 4 * value, lambda value: value + 1,
        lambda value: 1 + value, lambda value: 2 - value, lambda value: value / 2, lambda value: -(-8 // value),
        lambda value: value == 3, lambda value: operator.eq(3, value), lambda value: value != "a",
        lambda value: value < 3, lambda value: operator.le(3, value), lambda value: max(1, value),
        lambda value: value in (1, 2), lambda value: 1 in value, lambda value: {value: 1}, lambda value: value or 3,
        lambda value: not value, lambda value: value is None or value > 3, lambda value: "x" * value,
    ],
)  # fmt: skip
def test_nothing_can_be_made_of_a_refused_value(use: Callable[[Any], Any]) -> None:
    with pytest.raises(NeedsRefusedValue):
        use(REFUSED)


def test_it_may_be_handed_on() -> None:
    assert [REFUSED][0] is REFUSED
    assert copy.copy([REFUSED])[0] is REFUSED


def test_a_check_ends_where_it_needs_the_value() -> None:
    def check() -> Iterator[str]:
        yield "before"
        if REFUSED > 3:
            yield "never"

    assert problems_of(check, lambda: ["other", "before"], lambda: [f"{REFUSED}"], lambda: ()) == ["before", "other"]


def test_a_mistake_of_ours_is_no_problem() -> None:
    with pytest.raises(ZeroDivisionError):
        problems_of(lambda: [str(1 // 0)])
    with pytest.raises(ZeroDivisionError):
        known(lambda: 1 // 0)


def test_what_hangs_on_it_is_refused_too() -> None:
    assert known(lambda: 4 // REFUSED) is REFUSED
    assert known(lambda: 4 // 2) == 2
