import ast
import dataclasses
import inspect
import itertools
from collections.abc import Callable

import pytest

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.settings import build
from tokenfree.preprocess.dataset.manifest import DatasetSplit, load_manifest
from tokenfree.preprocess.dataset.vocabulary import load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.config import PretrainRecipe, TrainConfig, check

MakeRecipe = Callable[..., PretrainRecipe]


def test_a_fitting_recipe(corpus: str, make_recipe: MakeRecipe) -> None:
    assert check(make_recipe(), load_manifest(corpus), workers=(1, 8), vocabulary=load_vocabulary(corpus)) == []


def test_all_problems_at_once(corpus: str, make_recipe: MakeRecipe) -> None:
    recipe = make_recipe(streams=3, model={"width": 18, "trunk": {"heads": 4}})
    problems = check(recipe, load_manifest(corpus), workers=(2, 9))
    for part in ("model.trunk.heads", "model.embedder.hashes", "train.streams: 3", "--workers: 9 workers"):
        assert sum(part in problem for problem in problems) == 1, (part, problems)


@pytest.mark.parametrize("workers", [(0, 1), (3, 2)])
def test_impossible_workers(corpus: str, make_recipe: MakeRecipe, workers: tuple[int, int]) -> None:
    (problem,) = check(make_recipe(), load_manifest(corpus), workers=workers)
    assert problem.startswith(f"--workers {workers[0]}:{workers[1]}")


def test_data_that_cannot_be_trained_on(corpus: str, make_recipe: MakeRecipe) -> None:
    manifest = load_manifest(corpus)
    vocabulary = load_vocabulary(corpus)
    empty = dataclasses.replace(manifest, splits={**manifest.splits, "validation": DatasetSplit(())})
    bare = dataclasses.replace(manifest, config={**manifest.config, "columns": ["text", "codepoints"]})
    other = dataclasses.replace(manifest, vocabulary_sha256="0" * 64)
    none = dataclasses.replace(manifest, vocabulary_sha256=None)

    assert "no windows to use for validation" in check(make_recipe(), empty, vocabulary=vocabulary)[0]
    assert (
        "lack the columns subword_ends, subword_ids, subword_starts"
        in check(make_recipe(), bare, vocabulary=vocabulary)[0]
    )
    assert "not that of the data's manifest" in check(make_recipe(), other, vocabulary=vocabulary)[0]
    assert "no vocabulary" in check(make_recipe(), none)[0]


def test_a_length_without_room(corpus: str, make_recipe: MakeRecipe) -> None:
    (problem,) = check(make_recipe(length=8), load_manifest(corpus), vocabulary=load_vocabulary(corpus))
    assert problem.startswith("train.length: 8")


def test_misspelt_keys() -> None:
    with pytest.raises(UserError, match=r"train\.step'.*did you mean 'steps'"):
        build(PretrainRecipe, {"train": {"step": 4}}, source="recipe")
    with pytest.raises(UserError, match=r"optimizer.*did you mean 'adamw'"):
        build(PretrainRecipe, {"train": {"optimizer": {"name": "adam"}}}, source="recipe")


def test_no_vocabulary(tmp_path: object) -> None:
    assert load_vocabulary(str(tmp_path)) is None


def test_the_vocabulary(corpus: str) -> None:
    assert isinstance(load_vocabulary(corpus), Vocabulary)


@pytest.mark.parametrize("settings", [TrainConfig, PretrainRecipe])
def test_every_setting_says_below_itself_what_it_means(settings: type) -> None:
    (body,) = (node.body for node in ast.parse(inspect.getsource(settings)).body if isinstance(node, ast.ClassDef))
    told = {
        field.target.id: text.value.value
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }  # fmt: skip
    assert list(told) == [field.name for field in dataclasses.fields(settings)]
    assert all(isinstance(text, str) and text.endswith(".") and "\n" not in text for text in told.values())
