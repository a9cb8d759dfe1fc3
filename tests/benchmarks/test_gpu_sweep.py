"""The grid of the sweep on GPUs, and one of its settings at a tiny size on a CPU."""

import pydoc_data.topics as topics
from pathlib import Path

import pytest

from benchmarks.gpu import sweep
from benchmarks.gpu.parts import Child
from tests.train.conftest import write_corpus
from tokenfree.train.model.costs import costs


def test_the_grid_has_one_seed_and_its_corners_three() -> None:
    parts = sweep.parts("data", sweep.FLOPS, check=False)
    settings = [tuple(part.options[name] for name in ("buckets", "rate", "alpha", "seed")) for part in parts]
    assert len(set(settings)) == len(settings) == 3 * 4 * 4 + 2 * 8
    assert settings[:2] == [(2000, 2, -1.0, 0), (2000, 2, 1.0, 0)]
    assert {(2000, 6, 1.0, seed) for seed in sweep.SEEDS} < set(settings)


@pytest.mark.parametrize("rate", sweep.RATES)
def test_all_settings_have_the_same_operations(rate: int) -> None:
    options = {"buckets": 8000, "rate": rate, "alpha": 0.0, "seed": 0, "flops": sweep.FLOPS, "check": False}
    recipe = sweep.recipe_of(options)
    forward = costs(recipe.model, recipe.train.length, recipe.objective.max_predictions)
    of_step = 6 * sum(cost.multiply_accumulates for cost in forward) * recipe.train.global_batch
    assert recipe.train.steps * of_step == pytest.approx(sweep.FLOPS, rel=0.01)


def test_a_setting_trains_and_validates(tmp_path: Path) -> None:
    texts = sorted(topics.topics.items())[:20]
    data = write_corpus(tmp_path, texts, max_characters=56, vocabulary=400)
    part = sweep.parts(data, sweep.FLOPS, check=True)[0]
    result = sweep.measure(Child(part.name, part.options, tmp_path))
    assert result["steps"] == 2
    assert 4 < result["validation_loss"] < 8
    assert result["validation_targets"] > 0
