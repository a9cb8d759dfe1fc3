"""Every tiny recipe takes a training step on real data, and its loss is that of someone who guesses."""

import math

import pytest

from preprocess.settings import build, merge
from train.config import PretrainRecipe
from train.loop import Loop
from workflows import recipes

SMALL = {"train": {"steps": 1, "global_batch": 2, "streams": 1, "micro_batch": None}}
TINY = [name for name in recipes.names() if name.endswith("-tiny") and "model" in recipes.read_based(name)]
TRAINABLE = [name for name in TINY if "space" not in recipes.read(name)]


@pytest.mark.parametrize("name", TRAINABLE)
def test_a_step(name: str, corpus: str) -> None:
    recipe = build(PretrainRecipe, merge(recipes.read_based(name), SMALL), source=name)
    lines = []
    loop = Loop(recipe, corpus)
    loop.train_until(1, lines.append)
    assert 1 < lines[0]["loss"] < math.log(20_000)
    assert lines[0]["gradient_norm"] > 0
