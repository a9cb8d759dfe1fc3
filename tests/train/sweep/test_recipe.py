"""Sweep settings: budgets, conditions, and what a trial's recipe becomes."""

import re
from typing import Any

import pytest

from tokenfree.core.errors import SettingsError, UserError
from tokenfree.core.settings import OPERATIONAL, build, marked_keys
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.sweep.recipe import SweepRecipe, check_space, space_problems


def make(**over: Any) -> SweepRecipe:
    mapping = {
        "base": {},
        "space": {"train.seed": {"integer": [0, 9]}, "train.learning_rate": {"uniform": [0.1, 0.2]}},
    }
    return build(SweepRecipe, {**mapping, **over}, source="test")


def test_only_concurrent_is_operational() -> None:
    assert list(marked_keys(make(), OPERATIONAL)) == ["concurrent"]


def test_a_knob_is_of_one_kind() -> None:
    with pytest.raises(UserError, match=r"space.*exactly one"):
        make(space={"train.seed": {"choice": [1], "integer": [1, 2]}})
    with pytest.raises(UserError, match=r"space"):
        make(space={"train.seed": {}})
    with pytest.raises(UserError, match=r"space.*empty"):
        make(space={"train.seed": {"integer": [2, 1]}})


def test_schedulers_of_ray_are_named_with_their_options() -> None:
    median = make(scheduler={"name": "median", "min_samples_required": 2}).scheduler
    assert (median.name, median.options) == ("median", {"min_samples_required": 2})
    # As written to sweep.yaml and read back.
    assert make(scheduler={"name": "median", "options": median.options}).scheduler == median
    assert make(scheduler="hyperband").scheduler.options == {}
    for scheduler in ("median", "ray.tune.schedulers.FIFOScheduler"):
        assert space_problems(make(scheduler=scheduler)) == []
    with pytest.raises(UserError, match=r"there is no scheduler 'medain' \(did you mean 'median'"):
        make(scheduler="medain")


@pytest.mark.parametrize(
    ("scheduler", "problem"),
    [
        (
            {"name": "median", "mim": 2},
            "scheduler: median: .*unexpected keyword argument 'mim'. Give options that",
        ),
        ("ray.tune.schedulers.PopulationBasedTraining", "scheduler: .*changes settings during training"),
        ("ray.tune.schedulers.None_", "scheduler: 'ray.tune.schedulers.None_' cannot be imported"),
    ],
)
def test_schedulers_that_cannot_be_built_are_refused(scheduler: Any, problem: str) -> None:
    (found,) = space_problems(make(scheduler=scheduler))
    assert re.match(problem, found)


def test_schedulers_outside_ray_need_trust() -> None:
    (problem,) = space_problems(make(scheduler="my_schedulers.Lucky"))
    assert "my_schedulers.Lucky" in problem
    assert "give --trust-code" in problem


def test_a_budget_is_in_one_unit() -> None:
    assert (make().budget.unit, make().budget.steps) == ("step", 100)
    assert make(budget={"seconds": 2.5}).budget.unit == "train_seconds"
    flops = make(budget={"flops": 6.0e12}).budget
    assert (flops.key, flops.unit, flops.amount) == ("flops", "flops", 6.0e12)
    with pytest.raises(UserError, match=r"budget.*exactly one of steps"):
        make(budget={"steps": 1, "seconds": 9})


def test_a_trial_has_the_budget_and_the_best_recipe_the_steps_of_the_base() -> None:
    sweep = make(
        base={"train": {"steps": 1000}}, overrides={"train": {"global_batch": 8}}, budget={"steps": 10}
    )
    recipe = sweep.recipe({"train.seed": 3}, seed=2)
    assert (recipe.train.steps, recipe.train.global_batch, recipe.train.seed) == (10, 8, 5)
    winner = build(PretrainRecipe, sweep.best_recipe({"train.seed": 3}), source="best")
    assert (winner.train.steps, winner.train.global_batch, winner.train.seed) == (1000, 8, 3)
    assert to_mapping(winner) == sweep.best_recipe({"train.seed": 3})


def test_a_variant_takes_the_place_of_the_base() -> None:
    variants = {"deep": {"model": {"trunk": {"layers": 3}}}, "wide": {"model": {"width": 96}}}
    space = {"variant": {"grid": ["deep", "wide"]}, "model.trunk.heads": {"choice": [2, 4]}}
    sweep = make(base={}, variants=variants, space=space)
    check_space(sweep)
    recipe = sweep.recipe({"variant": "deep", "model.trunk.heads": 2})
    assert (recipe.model.trunk.layers, recipe.model.trunk.heads) == (3, 2)
    with pytest.raises(UserError, match=r"variant.*deap"):
        check_space(make(variants=variants, space={"variant": {"grid": ["deap"]}}))


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"space": {"model.embedder.bukets": {"choice": [1]}}}, r"did you mean 'model\.embedder\.buckets'"),
        ({"space": {"train.seed": {"choice": [1], "when": {"train.sed": 1}}}}, r"train\.sed is not a key"),
        ({"searcher": "grid"}, r"learning_rate.*a grid needs a list"),
        ({"scheduler": {"name": "pbt"}}, r"no scheduler 'pbt' \(known: asha, hyperband"),
        ({"scheduler": "ashe"}, r"no scheduler 'ashe' \(did you mean 'asha'"),
    ],
)
def test_a_search_that_does_not_fit_together_is_refused(over: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_space(make(**over))


def test_all_problems_of_a_space_come_together() -> None:
    sweep = make(
        base={"train": {"stpes": 5}},
        overrides={"model": {"width": "wide"}},
        space={
            "train.seed": {"choice": ["x"], "when": {"train.length": 64}},
            "model.widht": {"choice": [1]},
            "train.length": {"uniform": [8, 9]},
            "train.steps": {"integer": [1, 5], "when": {"train.warmup": 0}},
        },
        searcher="grid",
    )
    problems = space_problems(sweep)
    assert [problem.partition(" (")[0] for problem in problems] == [
        "base with overrides: there is no key 'train.stpes'",
        "base with overrides: model.width: should be a valid integer, not 'wide'",
        "space: train.seed: train.seed: should be a valid integer, not 'x'",
        "space: model.widht: there is no key 'model.widht'",
        "space: train.length: a grid needs a list of values; give it as choice, or take another searcher",
    ]
    with pytest.raises(SettingsError) as refused:
        check_space(sweep)
    assert list(refused.value.problems) == problems


def test_problems_of_variants_and_of_conditions() -> None:
    variants = {"deep": {"model": {"trunk": {"layer": 3}}}, "wide": {"model": {"width": 96}}}
    space = {
        "variant": {"grid": ["deep", "wide"]},
        "train.seed": {"choice": [1], "when": {"train.steps": 3}},
        "train.steps": {"choice": [1], "when": {"train.seed": 3}},
        "model": {"choice": [1]},
        "model.width": {"choice": [1], "when": {"model": 1}},
    }
    assert [
        problem.partition(" (")[0] for problem in space_problems(make(variants=variants, space=space))
    ] == [
        "space: the conditions",
        "variant deep: model.trunk.layer: should be a mapping with a key 'name', not 3",
        "space: model: model: should be a mapping, not 1",
        "space: model.width: --model.width: 'model' was already given a single value; give one or the other",
    ]
