"""Sweep settings: knobs, candidates and what a trial's recipe becomes."""

import itertools
from typing import Any

import pytest

from preprocess.errors import UserError
from preprocess.settings import build, to_mapping
from train.config import PretrainRecipe
from train.sweep.config import Knob, SweepRecipe
from train.sweep.results import TrialResult, best, table


def make(**over: Any) -> SweepRecipe:
    mapping = {"base": {}, "space": {"train.seed": {"integer": [0, 9]}, "train.learning_rate": {"uniform": [0.1, 0.2]}}}
    return build(SweepRecipe, {**mapping, **over}, source="test")


def test_knobs_give_their_ends_and_no_more() -> None:
    assert [Knob(choice=("a", "b")).value(q) for q in (0.0, 0.49, 0.5, 0.999)] == ["a", "a", "b", "b"]
    assert [Knob(integer=(2, 6)).value(q) for q in (0.0, 0.2, 0.999)] == [2, 3, 6]
    assert Knob(uniform=(-1, 1)).value(0.25) == -0.5
    assert Knob(log_uniform=(0.001, 0.1)).value(0.5) == 0.01


def test_a_knob_is_of_one_kind() -> None:
    with pytest.raises(UserError, match=r"space.*exactly one"):
        make(space={"train.seed": {"choice": [1], "integer": [1, 2]}})
    with pytest.raises(UserError, match=r"space"):
        make(space={"train.seed": {}})


def test_candidates_are_the_same_each_time_and_cover_the_space() -> None:
    first = list(itertools.islice(make().candidates(), 40))
    assert first == list(itertools.islice(make().candidates(), 40))
    assert first != list(itertools.islice(make(seed=1).candidates(), 40))
    assert {values["train.seed"] for values in first} == set(range(10))
    rates = sorted(values["train.learning_rate"] for values in first)
    assert max(b - a for a, b in itertools.pairwise(rates)) < 0.1 / 10


def test_a_trial_has_the_budget_and_the_best_recipe_the_steps_of_the_base() -> None:
    sweep = make(base={"train": {"steps": 1000}}, overrides={"train": {"global_batch": 8}}, steps=10)
    recipe = sweep.recipe({"train.seed": 3})
    assert (recipe.train.steps, recipe.train.global_batch, recipe.train.seed) == (10, 8, 3)
    winner = build(PretrainRecipe, sweep.best_recipe({"train.seed": 3}), source="best")
    assert (winner.train.steps, winner.train.global_batch, winner.train.seed) == (1000, 8, 3)
    assert to_mapping(winner) == sweep.best_recipe({"train.seed": 3})


def report(step: int, loss: float) -> dict[str, float]:
    return {"step": step, "validation_loss": loss, "characters_per_second": 1.0}


def test_the_best_trial_is_among_those_that_trained_longest() -> None:
    early = TrialResult("trial_000", {"train.seed": 0}, "stopped", [report(5, 1.0)])
    late = TrialResult("trial_001", {"train.seed": 1}, "finished", [report(5, 3.0), report(10, 2.0)])
    worse = TrialResult("trial_002", {"train.seed": 2}, "finished", [report(10, 2.5)])
    failed = TrialResult("trial_003", {"train.seed": 3}, "failed", [], "ValueError: no")
    assert best([early, late, worse, failed]) is late
    assert best([failed]) is None
    text = table(make(space={"train.seed": {"integer": [0, 9]}}), [late, failed])
    assert text.splitlines()[0].startswith("trial,state,train.seed,step,validation_loss")
    assert text.splitlines()[1].startswith("trial_001,finished,1,10,2")
    assert text.splitlines()[2].endswith("ValueError: no")
