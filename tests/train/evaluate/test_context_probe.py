"""What a model reads, by the product's own means: scores by target, and none for a model that cannot see."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from tests.train.conftest import MakeRecipe
from tokenfree.train.evaluate import context_probe, score
from tokenfree.train.loop.pretraining import Loop

OBJECTIVES: dict[str, Mapping[str, Any]] = {
    "canine_s": {"name": "canine_s"},
    "canine_s with pairs": {"name": "canine_s", "next_sentence": True},
    "canine_c": {"name": "canine_c", "heads": 2, "masked": 0.9},
    "masked_characters": {"name": "masked_characters"},
    "masked_subwords": {"name": "masked_subwords", "tied": True},
    "masked_bytes": {"name": "masked_bytes"},
    "byte2word": {"name": "byte2word"},
}


@pytest.fixture(params=OBJECTIVES)
def loop(request: pytest.FixtureRequest, corpus: str, make_recipe_for: MakeRecipe) -> Loop:
    return Loop(make_recipe_for(OBJECTIVES[request.param], validation_windows=40), corpus)


def test_scores_by_target_are_those_of_validation(loop: Loop) -> None:
    validation = loop.validate()
    found = score(loop)
    assert len(found.loss_N) == validation["validation_targets"]
    loss = validation.get("validation_masked_loss", validation["validation_loss"])
    assert found.loss_N.mean() == pytest.approx(loss, rel=1e-5)
    assert found.correct_N.mean() == pytest.approx(validation["validation_accuracy"])
    hidden = found.hidden_N
    assert 0.5 < hidden.mean() < 1
    assert found.loss_N[hidden].mean() == pytest.approx(validation["validation_masked_only_loss"], rel=1e-5)
    assert found.correct_N[hidden].mean() == pytest.approx(validation["validation_masked_only_accuracy"])
    baselines = loop.windows.baselines()
    assert baselines is not None
    np.testing.assert_array_equal(found.hidden_N, baselines.hidden_N)
    np.testing.assert_array_equal(found.sample_ids_N, baselines.sample_ids_N)


@torch.no_grad()
def test_a_model_that_cannot_see_reads_nothing(loop: Loop, corpus: str) -> None:
    """All rows of its tables are alike, so that any text looks as any other; white space and lengths do too."""
    for name, parameter in loop.model.encoder.embedder.named_parameters():
        if parameter.ndim == 2 and "position" not in name and "segment" not in name:
            parameter.copy_(parameter[:1].expand_as(parameter))
    baselines = loop.windows.baselines()
    assert baselines is not None
    found = context_probe(loop, baselines, score(loop))
    # Blanking words changes how many bytes they have.
    if "word_bytes" not in type(loop.encoder.embedder).__module__:
        assert found["probe"] == pytest.approx(0, abs=1e-7)
        assert found["probe_blank"] == pytest.approx(0, abs=1e-7)
    assert found["margin_high"] < 0
    seeing = Loop(loop.recipe, corpus)
    assert abs(context_probe(seeing, baselines, score(seeing))["probe_blank"]) > 1e-6


def test_the_margin_is_against_the_better_baseline(loop: Loop) -> None:
    baselines = loop.windows.baselines()
    assert baselines is not None
    found, numbers = context_probe(loop, baselines, score(loop)), baselines.numbers()
    best = min(numbers["masked_only_unigram"], numbers["masked_only_clue"])
    loss = loop.validate()["validation_masked_only_loss"]
    assert found["margin"] == pytest.approx(best - loss, abs=1e-4)
    for name in ("margin", "probe_blank", "probe_other"):
        assert found[f"{name}_low"] < found[name] < found[f"{name}_high"]
    assert found["probe"] == min(found["probe_blank"], found["probe_other"])


def test_one_window_has_no_interval(corpus: str, make_recipe: MakeRecipe) -> None:
    loop = Loop(make_recipe(validation_windows=1), corpus)
    baselines = loop.windows.baselines()
    assert baselines is not None
    assert set(context_probe(loop, baselines, score(loop))) == {
        "margin",
        "margin_neighbours",
        "probe_blank",
        "probe_other",
        "probe",
    }
