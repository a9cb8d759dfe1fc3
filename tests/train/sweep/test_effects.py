"""Effects and importance of hyperparameters, on losses whose causes are known."""

import numpy as np
import pytest

from tokenfree.train.sweep.results import importance, is_range, levels, ordered_cells

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


def test_importance_finds_the_shares_that_were_put_in() -> None:
    settings = [{"strong": a, "weak": b, "idle": c} for a, b, c in RANDOM.uniform(size=(150, 3)).tolist()]
    losses = [6 * setting["strong"] + 3 * setting["weak"] for setting in settings]  # variances as 4 to 1
    found = importance(settings, losses, ["idle", "strong", "weak"])
    assert found["strong"] == pytest.approx(0.8, abs=0.06)
    assert found["weak"] == pytest.approx(0.2, abs=0.06)
    assert found["idle"] < 0.02


def test_hyperparameters_that_act_only_together_have_no_main_effect() -> None:
    settings = [{"a": a, "b": b} for a in (0, 1) for b in (0, "x") for _ in range(8)]
    losses = [float(bool(setting["a"]) != bool(setting["b"])) + 0.001 * n for n, setting in enumerate(settings)]
    assert sum(importance(settings, losses, ["a", "b"]).values()) < 0.3


def test_what_does_not_vary_has_no_effect() -> None:
    assert importance([{"a": n} for n in range(8)], [1.0] * 8, ["a"]) == {"a": 0.0}
    found = importance([{"a": n, "b": 1} for n in range(8)], list(range(8)), ["a", "b"])
    assert (found["a"], found["b"]) == (pytest.approx(1), 0.0)
