"""The list of keys: complete, and explained."""

import ast
import importlib
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from tests.conftest import SOURCE
from tokenfree.core.errors import UserError
from tokenfree.core.settings import draft
from tokenfree.workflows.recipes.keys import (
    Key,
    KeyGroup,
    _shown,
    _summary,
    attributes,
    described,
    keys_with_prefix,
    text_of,
)
from tokenfree.workflows.recipes.kinds import KINDS, PRETRAINING, SWEEP, RecipeKind


def key(kind: RecipeKind, name: str, part: str | None = None) -> Key:
    (found,) = (
        key for group in kind.groups() if group.part == part for key in group.keys if key.name == name
    )
    return found


def settings_classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """All settings classes in the code, and where they are."""
    for package in ("preprocess", "train"):
        for path in (SOURCE / package).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and any(
                    ast.unparse(mark) == "settings" for mark in node.decorator_list
                ):
                    yield f"{path.relative_to(SOURCE)} {node.name}", node


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.command)
def test_every_key_says_in_the_docstring_what_it_means(kind: RecipeKind) -> None:
    keys = [key for group in kind.groups() for key in group.keys]
    assert len(keys) > 20
    assert [key.name for key in keys if not key.meaning.endswith(".")] == []
    assert [group.name for group in kind.groups() if not group.meaning.strip(".")] == []


def test_every_field_of_settings_has_a_text() -> None:
    for where, node in settings_classes():
        module = ".".join(Path(where.partition(" ")[0]).with_suffix("").parts)
        cls = getattr(importlib.import_module(f"tokenfree.{module}"), node.name)
        names = {field.name for field in fields(cls)} - {"name"}  # the name of a part is a key of its slot
        assert [name for name in names if not text_of(cls, name).endswith(".")] == [], where


def test_no_docstring_tells_of_a_field_that_is_not_there() -> None:
    found = dict(settings_classes())
    assert len(found) > 50
    for where, node in found.items():
        fields = {
            field.target.id
            for field in node.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        }
        assert set(attributes(ast.get_docstring(node) or "")) <= fields, where


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.command)
def test_the_top_level_keys_are_those_of_the_settings(kind: RecipeKind) -> None:
    assert kind.top_keys == tuple(field.name for field in fields(kind.settings_class()))


def test_every_key_that_is_listed_can_be_set_to_its_default() -> None:
    """In a recipe that has the part that the key is of; and what recipes set is listed."""
    from tokenfree.train.config import PretrainRecipe

    for group in PRETRAINING.groups():
        part = [(f"{group.name}.name", group.part)] if group.part else []
        given = [(key.name, key.default) for key in group.keys if key.name != "base"]
        problems = draft(PretrainRecipe, _nested([*part, *given])).problems
        assert problems == (), group.name


def _nested(dotted: list[tuple[str, str | None]]) -> dict[str, Any]:
    from tokenfree.core.settings import nest

    return nest([(name, str(value)) for name, value in dotted])


def test_types_ranges_and_defaults_are_those_of_the_fields() -> None:
    assert key(PRETRAINING, "train.seed") == Key(
        "train.seed", "int >= 0", "0", "seed of the weights, data order, masks and dropout."
    )
    assert key(PRETRAINING, "train.compile").default == "null"
    assert key(PRETRAINING, "train.checkpoint_every_seconds").type == "float > 0 | null"
    assert key(PRETRAINING, "model.embedder.hashes", "codepoint_hash").type == "int, 1 to 16"
    assert key(PRETRAINING, "model.embedder.size", "character_vocabulary").type == "int > 53"
    assert key(PRETRAINING, "model.trunk.attention.scales", "multi_scale").default == "[1, 3, N/16, N/8, N/4]"
    assert key(SWEEP, "budget.steps").default == "100"
    assert (key(SWEEP, "base").default, key(SWEEP, "space").default) == (None, None)
    assert key(SWEEP, "space.KEY.integer").type == "[int, int] | null"


def test_the_name_of_a_part_lists_the_parts_and_inherited_keys_are_theirs() -> None:
    found = key(PRETRAINING, "model.downsampler.name")
    assert {"identity", "strided_conv"} <= set(found.type.split(" | "))
    assert found.default == "strided_conv"
    assert key(PRETRAINING, "model.embedder.positions", "byte_table").meaning.startswith("absolute positions")
    assert key(PRETRAINING, "model.embedder.max_characters", "subword_table").default == "512"


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (int, "int"),
        (bool, "true | false"),
        (str | None, "text | null"),
        (Annotated[float, Field(ge=0, lt=1)], "float >= 0 and < 1"),
        (Annotated[float, Field(gt=0, le=0.5)], "float > 0 and <= 0.5"),
        (Annotated[int, Field(ge=4, multiple_of=4)], "int >= 4 and a multiple of 4"),
        (tuple[Literal["a", "b"], ...], "list of (a | b)"),
        (Annotated[tuple[int, ...], Field(min_length=1)], "list of int, not empty"),
        (Annotated[tuple[int, ...], Field(min_length=1, max_length=2)], "list of int, 1 to 2"),
        (dict[str, Any], "mapping"),
    ],
)
def test_types_in_words(hint: Any, words: str) -> None:
    assert described(hint) == words


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (1, "1"),
        (True, "true"),
        (False, "false"),
        (None, "null"),
        (1.0, "1.0"),
        ((1, "a"), "[1, a]"),
        ({}, "{}"),
        (MISSING, None),
    ],
)
def test_defaults_as_yaml_has_them(value: Any, shown: str | None) -> None:
    assert _shown(value) == shown


def test_attributes_of_a_docstring() -> None:
    told = attributes("""What it is.

    Attributes:
        rate: characters of a unit; from
            here: on.
        block: `a`: one.

    Example: none.
    """)
    assert told == {"rate": "characters of a unit; from here: on.", "block": "`a`: one."}
    assert attributes("Nothing.") == {}


def test_the_first_sentence_of_a_docstring() -> None:
    class Told:
        """As in Devlin et al. 2019, of
        two. `size` is more."""

    assert _summary(Told) == "As in Devlin et al. 2019, of two."


def names(groups: list[KeyGroup]) -> set[str]:
    return {key.name for group in groups for key in group.keys}


def test_keys_by_prefix() -> None:
    groups = PRETRAINING.groups()
    assert names(keys_with_prefix(groups, "")) == names(groups)
    assert names(keys_with_prefix(groups, "train.spike-w")) == {"train.spike_window"}
    assert names(keys_with_prefix(groups, "train.steps.")) == {"train.steps"}
    train = names(keys_with_prefix(groups, "train."))
    assert "train.optimizer.beta1" in train
    assert all(name.startswith("train.") for name in train)
    downsamplers = keys_with_prefix(groups, "model.downsampler")
    assert {group.part for group in downsamplers if group.part} == set(
        key(PRETRAINING, "model.downsampler.name").type.split(" | ")
    )
    assert {group.name for group in downsamplers} == {"model", "model.downsampler"}


@pytest.mark.parametrize(
    ("prefix", "hint"),
    [
        ("learning_rate", "did you mean train.learning_rate?"),
        ("model.trunk.atention", "did you mean model.trunk.attention?"),
        ("alfa", "did you mean model.trunk.attention.alpha?"),
        ("trian.", "did you mean train?"),
        ("zzz", "see --help-keys"),
    ],
)
def test_an_unknown_prefix_is_told_with_the_nearest(prefix: str, hint: str) -> None:
    with pytest.raises(UserError) as refused:
        keys_with_prefix(PRETRAINING.groups(), prefix)
    assert hint in str(refused.value)
