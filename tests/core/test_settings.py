"""Settings: built from mappings, every mistake named at once, parts found by name."""

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from tokenfree.core.errors import SettingsError, UserError
from tokenfree.core.settings import (
    DECIDES_RUNS,
    OPERATIONAL,
    PathText,
    Slot,
    build,
    draft,
    marked_keys,
    merge,
    nest,
    override,
    settings,
    value_at,
)
from tokenfree.core.settings_values import to_mapping
from tokenfree.preprocess.config import PreprocessConfig, WindowConfig


def test_values_come_typed_and_defaults_from_the_dataclass() -> None:
    config = build(PreprocessConfig, {"window": {"max_characters": "256"}, "books": ["a", "b"]}, source="r")
    assert config.window == WindowConfig(max_characters=256)
    assert config.books == ("a", "b")
    assert config.vocabulary.size == PreprocessConfig().vocabulary.size


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        PreprocessConfig().seed = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_mapping_and_back() -> None:
    config = build(PreprocessConfig, {"shards": 4, "wikipedia": ["x.bz2"]}, source="r")
    assert build(PreprocessConfig, to_mapping(config), source="r") == config


def test_a_misspelt_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        UserError,
        match=r"recipe r\.yaml: there is no key 'window\.max_charcters' \(did you mean 'window\.max_ch",
    ):
        build(PreprocessConfig, {"window": {"max_charcters": 1}}, source="recipe r.yaml")


def test_all_problems_come_together_in_one_line_or_one_by_one() -> None:
    mapping = {
        "window": {"max_characters": 99_999, "pakc": "none"},
        "vocabulary": {"size": "many"},
        "books": "a",
    }
    with pytest.raises(SettingsError) as caught:
        build(PreprocessConfig, mapping, source="r")
    problems = (
        "there is no key 'window.pakc' (did you mean 'window.pack'?)",
        "books: should be a list such as [a, b], not 'a'",
        "window.max_characters: should be less than or equal to 16383, not 99999",
        "vocabulary.size: should be a valid integer, not 'many'",
    )
    assert (caught.value.source, caught.value.problems) == ("r", problems)
    assert str(caught.value) == "r: " + "; ".join(problems)


def test_a_draft_of_what_is_no_mapping_and_of_what_lacks_a_value() -> None:
    made = draft(PreprocessConfig, {"window": 3, "nonsense_of_mine": {"a": 1}})
    assert made.settings is None
    assert made.problems[0].startswith("there is no key 'nonsense_of_mine' (known: wikipedia, books")
    assert made.problems[1] == "window: should be a mapping, not 3"

    from tokenfree.train.sweep.recipe import SweepRecipe

    assert draft(SweepRecipe, {"trials": 0, "space": {"a": 3}}).settings is None
    space = {"a": 3, "b": {"integer": [1, "x"]}, "c": {"choice": [1], "from": 2}}
    problems = draft(SweepRecipe, {"trials": 0, "space": space, "objectives": []}).problems
    assert problems == (
        "there is no key 'space.c.from' (did you mean 'space.c.uniform'?)",
        "base: is missing",
        "space.a: should be a mapping, not 3",
        "space.b.integer.1: should be a valid integer, not 'x'",
        "objectives: should have at least 1 item",
        "trials: should be greater than or equal to 1, not 0",
    )


def test_of_a_part_without_a_name_that_is_known_nothing_is_known() -> None:
    from tokenfree.train.model.encoder import ModelConfig

    for embedder in ({"name": "codepoint_hsh", "hashes": 3}, {"nmae": "ngram_hash"}, "codepoint_hsh"):
        made = draft(ModelConfig, {"embedder": embedder, "width": 96})
        assert made.settings is None
        assert len(made.problems) == 1


def test_a_value_of_none_of_several_types_is_one_problem() -> None:
    from tokenfree.train.config import PretrainRecipe

    attention = {"name": "sliding_global", "one_sided_window": "x", "dilation": [1, 0]}
    problems = draft(PretrainRecipe, {"model": {"trunk": {"attention": attention}}}).problems
    assert problems == (
        "model.trunk.attention.one_sided_window: should be a valid integer or should be a list such as [a, b], not 'x'",
        "model.trunk.attention.dilation: should be a valid integer or should be greater than or equal to 1, not 0",
    )


@pytest.mark.parametrize("value", [".inf", "-.inf", ".nan"])
def test_numbers_are_finite(value: str) -> None:
    with pytest.raises(UserError, match=r"vocabulary\.character_coverage: should be a finite number"):
        build(PreprocessConfig, nest([("vocabulary.character_coverage", value)]), source="test")


def test_a_part_is_found_by_its_file_name_and_its_mistakes_carry_the_whole_key() -> None:
    from tokenfree.train.config import PretrainRecipe

    recipe = build(
        PretrainRecipe, {"model": {"trunk": {"attention": {"name": "multi_scale", "alpha": 1}}}}, source="r"
    )
    assert recipe.model.trunk.attention.alpha == 1.0
    with pytest.raises(
        UserError, match=r"model\.embedder\.buckets: should be greater than or equal to 1, not 0"
    ):
        build(PretrainRecipe, {"model": {"embedder": {"buckets": 0}}}, source="r")
    with pytest.raises(
        UserError, match=r"no key 'model\.embedder\.bukets' \(did you mean 'model\.embedder\.buckets'\?\)"
    ):
        build(PretrainRecipe, {"model": {"embedder": {"bukets": 5}}}, source="r")
    with pytest.raises(
        UserError, match=r"there is no attention 'multiscale' \(did you mean 'multi_scale'\?\)"
    ):
        build(PretrainRecipe, {"model": {"trunk": {"attention": "multiscale"}}}, source="r")


def test_a_slot_lists_the_files_that_have_a_config() -> None:
    names = Slot("tokenfree.train.model.attention", "full").names()
    assert {"full", "multi_scale"} <= set(names)
    assert "scales" not in names  # a helper file without a Config


@settings
class Water:
    depth: Annotated[int, Field(ge=1), OPERATIONAL] = 2
    fish: int = 3


@settings
class Park:
    pond: Water = Water()
    lake: Annotated[Water, DECIDES_RUNS] = Water()
    embedder: Annotated[Any, Slot("tokenfree.train.model.embedders", "codepoint_hash")] = Water()
    gates: Annotated[int | None, OPERATIONAL, DECIDES_RUNS] = None


def test_marked_keys_are_found_in_nested_settings_and_parts() -> None:
    assert list(marked_keys(Park(), OPERATIONAL)) == ["pond.depth", "lake.depth", "embedder.depth", "gates"]
    assert list(marked_keys(Park(), DECIDES_RUNS)) == ["lake", "gates"]


def test_marked_settings_are_built_and_overridden_like_others() -> None:
    mapping, lost = override(Park, {"lake": {"depth": 4}}, {"lake": {"fish": 5}})
    assert build(Park, mapping, source="r").lake == Water(depth=4, fish=5)
    assert lost == []
    assert draft(Park, {"lake": {"fsh": 1}}).problems == (
        "there is no key 'lake.fsh' (did you mean 'lake.fish'?)",
    )
    assert draft(Park, {"lake": {"depth": 0}}).problems == (
        "lake.depth: should be greater than or equal to 1, not 0",
    )


@settings
class Paths:
    model: PathText | None = None
    books: tuple[PathText, ...] = ()


def test_build_expands_the_home_folder_in_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/goose")
    found = build(Paths, {"model": "~/v.model", "books": [Path("~/a"), "s3://b/~"]}, source="test")
    assert found == Paths(model="/home/goose/v.model", books=("/home/goose/a", "s3://b/~"))
    with pytest.raises(UserError, match=r"model: .*not 5.*books: .*should be a list"):
        build(Paths, {"model": 5, "books": "~/a"}, source="test")


def test_override_takes_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    mapping, _ = override(Paths, {}, {"books": (Path("a"), "b"), "other": {"base": Path("c")}})
    assert mapping == {"books": ["a", "b"], "other": {"base": "c"}}


def test_overrides_are_read_as_yaml_and_laid_over() -> None:
    nested = nest([("window.max_characters", "128"), ("books", "[a, b]"), ("language", "null")])
    assert nested == {"window": {"max_characters": 128}, "books": ["a", "b"], "language": None}
    assert merge({"window": {"pack": "none"}, "seed": 1}, nested)["window"] == {
        "pack": "none",
        "max_characters": 128,
    }


def test_a_part_that_changes_its_name_starts_afresh() -> None:
    base = {"attention": {"name": "full", "window": 3}}
    assert merge(base, {"attention": {"name": "multi_scale"}}) == {"attention": {"name": "multi_scale"}}
    assert merge(base, {"attention": {"window": 5}}) == {"attention": {"name": "full", "window": 5}}


FAST: dict[str, Any] = {"model": {"width": 8, "upsampler": {"name": "repeat_concat", "kernel": 16}}}


@pytest.mark.parametrize("part", ["repeat_add", {"name": "repeat_add"}])
def test_an_override_of_a_name_keeps_the_keys_that_the_new_part_has(part: Any) -> None:
    from tokenfree.train.config import PretrainRecipe

    found, lost = override(PretrainRecipe, FAST, {"model": {"upsampler": part}})
    assert found == {"model": {"width": 8, "upsampler": {"name": "repeat_add", "kernel": 16}}}
    assert lost == []
    found, _ = override(PretrainRecipe, FAST, {"model": {"upsampler": {"name": "repeat_add", "kernel": 2}}})
    assert found["model"]["upsampler"]["kernel"] == 2
    assert FAST["model"]["upsampler"]["name"] == "repeat_concat"


def test_an_override_names_the_keys_that_the_new_part_lacks() -> None:
    from tokenfree.train.config import PretrainRecipe

    over = {
        "model": {"upsampler": "identity", "trunk": {"attention": "full"}},
        "train": {"optimizer": "lamb"},
    }
    found, lost = override(PretrainRecipe, FAST | {"train": {"optimizer": {"epsilon": 1.0}}}, over)
    assert found["model"] == {"width": 8, "upsampler": {"name": "identity"}, "trunk": {"attention": "full"}}
    assert found["train"] == {"optimizer": {"name": "lamb", "epsilon": 1.0}}
    assert lost == ["model.upsampler.kernel (identity)"]


@pytest.mark.parametrize(
    "over",
    [{"kernel": 3, "name": "repeat_concat"}, {"kernel": 3}, {"name": "no_such"}, {"name": [1]}, None, 3],
)
def test_an_override_of_no_other_name_is_a_merge(over: Any) -> None:
    """Also one of a name that is refused later, when the part is built."""
    from tokenfree.train.config import PretrainRecipe

    mapping = {"model": {"upsampler": over}}
    assert override(PretrainRecipe, FAST, mapping) == (merge(FAST, mapping), [])
    assert override(PretrainRecipe, {}, mapping) == (mapping, [])


def test_the_default_part_may_be_named() -> None:
    from tokenfree.train.config import PretrainRecipe

    mapping = {"model": {"upsampler": {"name": "repeat_concat"}}}
    found, lost = override(PretrainRecipe, {"model": {"upsampler": {"kernel": 16}}}, mapping)
    assert (found["model"]["upsampler"], lost) == ({"name": "repeat_concat", "kernel": 16}, [])


def test_a_name_alone_stands_for_the_part() -> None:
    assert merge({"part": "full"}, {"part": {"window": 5}}) == {"part": {"name": "full", "window": 5}}
    assert merge({"part": "full"}, {"part": {"name": "local"}}) == {"part": {"name": "local"}}
    base = {"part": {"name": "full", "window": 3}}
    assert merge(base, {"part": "full"}) == base
    assert merge(base, {"part": "local"}) == {"part": "local"}


@pytest.mark.parametrize(("dotted", "word"), [([("a", "1"), ("a.b", "2")], "'a'"), ([("a", "[1")], "YAML")])
def test_overrides_that_make_no_sense(dotted: list[tuple[str, str]], word: str) -> None:
    with pytest.raises(UserError, match=word):
        nest(dotted)


def test_values_are_found_by_their_dotted_key() -> None:
    nested = {"trunk": {"layers": 2, "attention": {"name": "full"}, "bias": None}}
    assert value_at(nested, "trunk.attention.name") == "full"
    assert value_at(nested, "trunk.attention") == {"name": "full"}
    assert value_at(nested, "trunk.bias", 5) is None
    assert value_at(nested, "trunk.width") is None
    assert value_at(nested, "trunk.layers.name", "none") == "none"


@settings
class Goose:
    """For the test below."""

    feathers: int = 3


@settings
class Pond:
    """For the test below."""

    geese: tuple[Goose, ...] = ()
    depth: int = 1


def test_of_a_list_the_whole_is_refused() -> None:
    made = draft(Pond, {"geese": [{"feathers": 3}, {"feathers": "many"}], "depth": 2})
    assert made.problems == ("geese.1.feathers: should be a valid integer, not 'many'",)
    assert made.settings is None
