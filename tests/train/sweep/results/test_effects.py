"""Effects of hyperparameters: their values and ranges, with the means over trials."""

import numpy as np
import pytest

from tokenfree.train.sweep.results import is_range, levels, ordered_cells

RANDOM = np.random.default_rng(5)


def test_levels_of_a_choice_are_its_values_in_order() -> None:
    found = levels([4, 2, None, 4, "full", 2], [1.0, 5.0, 9.0, 3.0, 7.0, 5.5])
    assert [level.label for level in found] == ["not set", "2", "4", "full"]
    assert [level.interval.mean for level in found] == [9.0, 5.25, 2.0, 7.0]
    assert found[2].trials == (0, 3)
    assert found[2].interval.half == pytest.approx(12.7062, rel=1e-4)  # t of one degree of freedom times 1
    assert found[0].interval.half is None


def test_levels_of_a_range_are_four_parts_of_it_and_those_without_a_value() -> None:
    values = [*RANDOM.permutation(np.linspace(0.5, 10, 20)).tolist(), None, None]
    found = levels(values, [0.0 if value is None else float(value) for value in values])
    assert [len(level.trials) for level in found] == [2, 5, 5, 5, 5]
    assert [level.label for level in found[:2]] == ["not set", "0.5 to 2.5"]
    means = [level.interval.mean for level in found]
    assert means == sorted(means)


def test_ranges_and_choices_are_told_apart() -> None:
    assert is_range([0.11, 0.52, 0.33, 0.74, 0.95])
    assert not is_range([1e-3, 1e-4, 1e-3, 1e-4, 1e-3])
    assert not is_range([2, 3, 4, 5, 6])
    assert is_range(list(range(20)))
    assert not is_range(["a", "b", 0.1, 0.2, 0.3, 0.4])


def test_absent_values_stand_first_then_numbers_then_names() -> None:
    assert ordered_cells(["b", "a", None, 3])[1] == [None, 3, "a", "b"]
