"""Byte2Word in the loop: it learns, and neither micro batches, processes nor interruptions change a thing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.train.two_processes import TRAINING, in_two_processes
from tokenfree.core.settings import build, merge
from tokenfree.core.settings_values import to_mapping
from tokenfree.preprocess.dataset.manifest import load_manifest, load_vocabulary
from tokenfree.train.checks import check
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs import checkpoints
from tokenfree.workflows.recipes import library

SMALL: dict[str, Any] = {
    "model": {"width": 32, "character_width": 16, "trunk": {"layers": 1, "heads": 2, "dropout": 0.1}},
    "objective": {"max_predictions": 40},
    "train": {
        "steps": 8,
        "global_batch": 8,
        "streams": 2,
        "validation_windows": 16,
        "validate_every_steps": 4,
        "checkpoint_every_steps": 3,
        "checkpoint_every_seconds": None,
        "threads": 1,
    },
}
CNN = {"downsampler": {"name": "character_cnn", "max_words": 64, "bytes_per_word": 6, "word_width": 24}}
VARIANTS: dict[str, dict[str, Any]] = {
    "words": {},
    "pseudo-words": {"objective": {"words": "subwords"}},
    "learned bytes": {"model": {"downsampler": {"byte_positions": "learned"}}},
    "cnn": {"model": CNN},
}
TIMES = ("seconds", "data_wait", "utilisation")
NAMES = [
    name
    for name in library.names()
    if name.startswith("byte2word-") and "space" not in library.read_based(name)
]


def recipe_of(variant: str = "words", **changes: Mapping[str, Any]) -> PretrainRecipe:
    mapping = merge(merge(merge(library.read_based("byte2word-tiny"), SMALL), VARIANTS[variant]), changes)
    return build(PretrainRecipe, mapping, source="test")


def run(loop: Loop, until: int) -> list[Mapping[str, float]]:
    lines = list(loop.steps(until))
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


@pytest.mark.parametrize("variant", VARIANTS)
def test_goes_on_bit_for_bit(corpus: str, tmp_path: Path, variant: str) -> None:
    whole = run(Loop(recipe_of(variant), corpus), 4)
    first, second = (Loop(recipe_of(variant), corpus) for _ in range(2))
    run(first, 2)
    first.validate()
    checkpoints.write(tmp_path / "saved", *first.snapshot())
    second.load(checkpoints.read(tmp_path / "saved"))
    assert run(second, 4) == whole[2:]


def test_micro_batches_change_nothing(corpus: str) -> None:
    plain = {"trunk": {"dropout": 0.0}}
    whole = run(Loop(recipe_of(model=plain), corpus), 4)
    parts = run(Loop(recipe_of(model=plain, train={"micro_batch": 3}), corpus), 4)
    for one, other in zip(whole, parts, strict=True):
        assert other == pytest.approx(one, rel=2e-4, abs=1e-6)


@pytest.mark.slow
def test_two_processes_are_one(corpus: str, tmp_path: Path) -> None:
    recipe = recipe_of(train={"micro_batch": 2})
    mapping = json.dumps(to_mapping(recipe))
    (lines, validation), _ = in_two_processes(TRAINING, tmp_path, mapping, corpus, "3")
    alone = Loop(recipe, corpus)
    for one, other in zip(run(alone, 3), lines, strict=True):
        assert {name: other[name] for name in one} == pytest.approx(one, rel=1e-3, abs=1e-6)
    assert validation == pytest.approx(alone.validate(), rel=1e-4)


@pytest.mark.slow
def test_it_learns(corpus: str, tmp_path: Path) -> None:
    """It ends below the unigram entropy of the subwords."""
    recipe = recipe_of(
        model={"trunk": {"dropout": 0.0}}, train={"steps": 150, "learning_rate": 0.01, "global_batch": 16}
    )
    result = pretrain(recipe, corpus, str(tmp_path / "run"))
    assert result.symbol == "subword"
    assert result.unigram_entropy is not None
    assert result.validation_loss < result.unigram_entropy


@pytest.mark.parametrize("name", NAMES)
def test_recipes_fit_together(corpus: str, name: str) -> None:
    recipe = build(PretrainRecipe, library.read_based(name), source=name)
    assert check(recipe, load_manifest(corpus), vocabulary=load_vocabulary(corpus)) == []
    assert recipe.objective.name == "byte2word"
