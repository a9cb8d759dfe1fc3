"""Every tiny recipe takes a training step on real data, and its loss is that of someone who guesses."""

import math

import pytest

from tokenfree.core.settings import build, merge
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import Loop
from tokenfree.workflows.recipes import library

SMALL = {"train": {"steps": 1, "global_batch": 2, "streams": 1, "micro_batch": None}}
TINY = [name for name in library.names() if name.endswith("-tiny") and "model" in library.read_based(name)]
TRAINABLE = [name for name in TINY if "space" not in library.read(name)]
# In names of recipes that differ from another one only in sizes.
SIZES = ("-half", "-quarter", "-quadruple", "-double", "-rate-", "-width-", "-single-n")
SLOW = [name for name in TRAINABLE if any(word in name for word in SIZES)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in TRAINABLE]
)
def test_a_step(name: str, corpus: str) -> None:
    recipe = build(PretrainRecipe, merge(library.read_based(name), SMALL), source=name)
    lines = []
    loop = Loop(recipe, corpus)
    lines.extend(loop.steps(1))
    assert 1 < lines[0]["loss"] < math.log(20_000)
    assert lines[0]["gradient_norm"] > 0
