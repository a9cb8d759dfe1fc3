"""The recipes that come with tokenfree: each builds, and overrides land where they should."""

import argparse
from pathlib import Path

import pytest

from preprocess.config import PreprocessConfig
from preprocess.errors import UserError
from preprocess.settings import build, fingerprint
from train.config import PretrainRecipe
from train.flops import costs
from train.model import check
from train.sweep.config import SweepRecipe, check_space
from workflows import recipes

PREPROCESSING = ["wikipedia", "wikipedia-tiny"]
SWEEPS = [name for name in recipes.names() if "space" in recipes.read(name)]
PRETRAINING = [name for name in recipes.names() if name not in PREPROCESSING + SWEEPS]


def arguments(recipe: str | None, *overrides: tuple[str, str], config: str | None = None) -> argparse.Namespace:
    return argparse.Namespace(recipe=recipe, config=config, overrides=list(overrides))


@pytest.mark.parametrize("name", PREPROCESSING)
def test_preprocessing_recipes_build(name: str) -> None:
    assert recipes.load(PreprocessConfig, arguments(name)).window.max_characters > 0


@pytest.mark.parametrize("name", PRETRAINING)
def test_pretraining_recipes_build_and_fit_together(name: str) -> None:
    recipe = recipes.load(PretrainRecipe, arguments(name))
    assert check(recipe.model, recipe.train.length) == []
    assert recipe.objective.check(recipe.model, None) == []
    assert costs(recipe.model, recipe.train.length, 8)


@pytest.mark.parametrize("name", [name for name in PRETRAINING if name.endswith("-tiny")])
def test_every_tiny_recipe_has_one_of_the_documents_own_size(name: str) -> None:
    recipe, base = (
        recipes.load(PretrainRecipe, arguments(each)) for each in (name, name.removesuffix("tiny") + "base")
    )
    for part in ("embedder", "downsampler", "upsampler"):
        assert getattr(recipe.model, part).name == getattr(base.model, part).name
    assert recipe.model.trunk.attention.name == base.model.trunk.attention.name
    assert recipe.objective.name == base.objective.name


def test_ablations_differ_in_what_they_say() -> None:
    """Each from CANINE, and from every other."""
    for base in ("canine-s", "canine-c"):
        ablations = [name for name in PRETRAINING if name.startswith(base) and name.endswith(("-tiny", "-base"))]
        loaded = [recipes.load(PretrainRecipe, arguments(name)) for name in ablations]
        assert len({(fingerprint(recipe.model), recipe.train.length) for recipe in loaded}) == len(loaded)


@pytest.mark.parametrize("name", SWEEPS)
def test_sweep_recipes_build(name: str) -> None:
    check_space(build(SweepRecipe, recipes.resolve_sweep(recipes.read(name)), source=name))


def test_overrides_and_config_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: canine-s-tiny\nmodel: {trunk: {layers: 2}}\n")
    (tmp_path / "over.yaml").write_text("train: {steps: 7}\n")
    recipe = recipes.load(
        PretrainRecipe,
        arguments(str(tmp_path / "mine.yaml"), ("model.embedder.buckets", "512"), config=str(tmp_path / "over.yaml")),
    )
    tiny = recipes.load(PretrainRecipe, arguments("canine-s-tiny"))
    assert (recipe.model.trunk.layers, recipe.train.steps, recipe.model.embedder.buckets) == (2, 7, 512)
    assert recipe.model.width == tiny.model.width


def test_a_recipe_that_is_no_yaml(tmp_path: Path) -> None:
    for text in ("model: [", "- 1\n- 2\n"):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(UserError, match=r"recipe .*bad\.yaml"):
            recipes.read(str(tmp_path / "bad.yaml"))
