import dataclasses
from collections.abc import Callable

import pytest

from preprocess.errors import UserError
from preprocess.manifest import DatasetSplit, load_manifest
from preprocess.settings import build
from preprocess.vocabulary import Vocabulary
from train.config import PretrainRecipe, check, load_vocabulary

MakeRecipe = Callable[..., PretrainRecipe]


def test_a_fitting_recipe(corpus: str, make_recipe: MakeRecipe) -> None:
    assert check(make_recipe(), load_manifest(corpus), workers=(1, 8), vocabulary=load_vocabulary(corpus)) == []


def test_all_mistakes_at_once(corpus: str, make_recipe: MakeRecipe) -> None:
    recipe = make_recipe(length=62, streams=3, model={"width": 18, "trunk": {"heads": 4}})
    mistakes = check(recipe, load_manifest(corpus), workers=(2, 9))
    for part in ("model.trunk.heads", "model.downsampler.rate", "train.streams: 3", "--workers: 9 workers"):
        assert sum(part in mistake for mistake in mistakes) == 1, (part, mistakes)


@pytest.mark.parametrize("workers", [(0, 1), (3, 2)])
def test_impossible_workers(corpus: str, make_recipe: MakeRecipe, workers: tuple[int, int]) -> None:
    (mistake,) = check(make_recipe(), load_manifest(corpus), workers=workers)
    assert mistake.startswith(f"--workers {workers[0]}:{workers[1]}")


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
    (mistake,) = check(make_recipe(length=8), load_manifest(corpus), vocabulary=load_vocabulary(corpus))
    assert mistake.startswith("train.length: 8")


def test_misspelt_keys() -> None:
    with pytest.raises(UserError, match=r"train\.step'.*did you mean 'steps'"):
        build(PretrainRecipe, {"train": {"step": 4}}, source="recipe")
    with pytest.raises(UserError, match=r"optimizer.*did you mean 'adamw'"):
        build(PretrainRecipe, {"train": {"optimizer": {"name": "adam"}}}, source="recipe")


def test_no_vocabulary(tmp_path: object) -> None:
    assert load_vocabulary(str(tmp_path)) is None


def test_the_vocabulary(corpus: str) -> None:
    assert isinstance(load_vocabulary(corpus), Vocabulary)
