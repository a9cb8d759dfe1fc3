from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.core.settings import OPERATIONAL, build, draft, marked_keys, merge
from tokenfree.preprocess.dataset.manifest import load_manifest, load_vocabulary
from tokenfree.train.checks import check
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe


def test_operational_settings_are_those_of_a_run() -> None:
    keys = set(marked_keys(PretrainRecipe(), OPERATIONAL))
    assert {"train.device", "train.micro_batch", "train.check_shards"} <= keys
    assert not {"train.steps", "train.global_batch", "train.seed", "train.precision"} & keys
    # FinetuneTrainConfig overrides fields, and keeps their marks.
    assert set(marked_keys(FinetuneRecipe(), OPERATIONAL)) == keys - {"train.check_shards"}


@pytest.mark.parametrize("threads", [1_000_000, 2**70])
def test_a_million_threads(threads: int) -> None:
    with pytest.raises(UserError, match=r"train\.threads: should be less than or equal to 1024"):
        build(PretrainRecipe, {"train": {"threads": threads}}, source="test")


def test_misspelt_keys() -> None:
    with pytest.raises(UserError, match=r"train\.step'.*did you mean 'train\.steps'"):
        build(PretrainRecipe, {"train": {"step": 4}}, source="recipe")
    with pytest.raises(UserError, match=r"optimizer.*did you mean 'adamw'"):
        build(PretrainRecipe, {"train": {"optimizer": {"name": "adam"}}}, source="recipe")
    for name in (10**20, float("inf")):
        with pytest.raises(UserError, match=r"^recipe: train\.optimizer: there is no .*known: adamw"):
            build(PretrainRecipe, {"train": {"optimizer": {"name": name}}}, source="recipe")


def test_fields_are_refused_before_what_hangs_between_them(corpus: str) -> None:
    mapping: dict[str, Any] = {
        "model": {"width": "wide", "trunk": {"heads": 5, "positions": "shaw", "attention": "linformer"}},
        "train": {"length": 128, "global_batch": 8, "streams": 3, "seed": "x"},
    }
    made = draft(PretrainRecipe, mapping)
    assert made.settings is None
    assert [problem.split(":")[0] for problem in made.problems] == ["model.width", "train.seed"]
    mapping = merge(mapping, {"model": {"width": 96}, "train": {"seed": 0}})
    recipe = build(PretrainRecipe, mapping, source="r")
    problems = check(recipe, load_manifest(corpus), workers=(1, 9), vocabulary=load_vocabulary(corpus))
    assert [problem.split(":")[0] for problem in problems] == [
        "model.trunk.heads", "model.trunk.positions.name", "train.streams", "--workers",
    ]  # fmt: skip
