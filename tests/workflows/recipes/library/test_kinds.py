"""Recipes of another kind than a command reads are named as what they are."""

from pathlib import Path

import pytest

from tokenfree.core.errors import UserError
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.workflows.recipes import library
from tokenfree.workflows.recipes.kinds import (
    FINETUNING,
    IMPORTED,
    KINDS,
    PREPROCESSING,
    PRETRAINING,
    SWEEP,
    RecipeKind,
    kind_of,
)
from tokenfree.workflows.recipes.library import refuse_other_kind
from tokenfree.workflows.recipes.options import split_arguments
from tokenfree.workflows.recipes.training import resolve_sweep


def belongs(name: str) -> RecipeKind:
    """The kind of a recipe that comes with tokenfree, by its folder and its keys."""
    if name in ("wikipedia", "wikipedia-tiny"):
        return PREPROCESSING
    if "space" in library.read(name):
        return SWEEP
    return FINETUNING if "task" in library.read_based(name) else PRETRAINING


@pytest.mark.parametrize("name", library.names())
def test_the_recipes_that_come_with_tokenfree_are_of_one_kind(name: str) -> None:
    kind = belongs(name)
    refuse_other_kind(kind, library.read(name), name)
    for other in KINDS:
        if other != kind:
            with pytest.raises(UserError) as refused:
                refuse_other_kind(
                    other, library.read(name) if kind == SWEEP else library.read_based(name), name
                )
            assert f"recipe {name}: a {kind.title}, where a {other.title} is expected" in str(refused.value)
            assert f"run tokenfree {kind.command} {name}" in str(refused.value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.command)
def test_what_could_be_of_this_kind_is_left_to_the_settings(kind: RecipeKind) -> None:
    for mapping in ({}, {"base": "x"}, {"nonsense": 1}, {kind.top_keys[0]: 1, "nonsense": 2}):
        refuse_other_kind(kind, mapping, "mine.yaml")


def test_a_misspelt_key_does_not_hide_the_kind() -> None:
    with pytest.raises(UserError, match="a pretraining recipe, where a sweep recipe"):
        refuse_other_kind(SWEEP, {"model": {}, "trian": {}}, "mine.yaml")
    refuse_other_kind(PRETRAINING, {"model": {}, "trian": {}}, "mine.yaml")


def test_the_base_of_a_sweep_is_no_sweep() -> None:
    variants = ["canine-s-tiny", "three-knobs-tiny"]
    for mapping in ({"base": "three-knobs-tiny"}, {"space": {"variant": {"grid": variants}}}):
        with pytest.raises(
            UserError, match="three-knobs-tiny: a sweep recipe, which cannot be inside a sweep"
        ):
            resolve_sweep(mapping)
    for space in (3, {"variant": 3}, {"variant": {"grid": "abc"}}, {"variant": {"choice": [3]}}):
        assert resolve_sweep({"space": space}) == {"space": space}  # the settings say what is wrong


def test_a_recipe_that_only_names_its_base_is_of_the_kind_of_that(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("base: bert-learned-tiny\n")
    assert set(library.read("bert-learned-tiny")) == {"base"}
    library.check_kind(PRETRAINING, str(path))
    with pytest.raises(
        UserError, match=r"mine\.yaml: a pretraining recipe, where a sweep recipe is expected"
    ):
        library.check_kind(SWEEP, str(path))
    path.write_text(f"base: {path}\n")
    library.check_kind(SWEEP, str(path))  # the reader reports the circle


def test_the_kind_of_settings() -> None:
    assert kind_of(PreprocessConfig) == PREPROCESSING
    assert PREPROCESSING.top_keys[0] == "wikipedia"


def test_files_have_a_base_where_the_settings_have_none() -> None:
    for kind, count in ((PREPROCESSING, 1), (PRETRAINING, 1), (SWEEP, 1)):
        bases = [key for group in kind.groups() for key in group.keys if key.name == "base"]
        assert len(bases) == count, kind
    assert "base" not in PRETRAINING.top_keys


def test_of_an_imported_model_some_keys_may_be_set() -> None:
    assert IMPORTED.top_keys == ("model", "train")
    names = {key.name for group in IMPORTED.groups() for key in group.keys}
    assert {name.split(".")[0] for name in names} == {"model", "train"}
    assert {"model.width", "model.embedder.buckets", "train.optimizer.beta1"} <= names
    with pytest.raises(UserError, match=r"unknown option --objective\.spare"):
        split_arguments("import", ["--objective.spare", "3"], [], IMPORTED)
