"""Which given tensors a model takes, what is said of the others, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.jobs.init_from import GivenWeights, WeightMatch, match_weights
from tokenfree.train.loop.step import build_task

MakeRecipe = Callable[..., PretrainRecipe]


@pytest.fixture(scope="module")
def vocabulary(corpus: str) -> Vocabulary:
    found = load_vocabulary(corpus)
    assert found is not None
    return found


def given_of(recipe: PretrainRecipe, subwords: Vocabulary, **more: Any) -> GivenWeights:
    """The fresh weights of a recipe's model as if they had been trained."""
    tensors, sha256 = build_task(recipe, subwords).state_dict(), subwords.sha256
    fields = {"vocabulary": sha256, "objective": recipe.objective, **more}
    return GivenWeights(
        path="/runs/one", what="step 8 of a run", tensors=tensors, model=recipe.model, **fields
    )


def fit_of(recipe: PretrainRecipe, subwords: Vocabulary, given: GivenWeights) -> WeightMatch:
    task = build_task(recipe, subwords)
    sizes = {name: parameter.numel() for name, parameter in task.named_parameters()}
    return match_weights(task.state_dict(), sizes, given, recipe, subwords)


def reasons(found: Mapping[str, str], prefix: str = "") -> set[str]:
    return {reason for name, reason in found.items() if name.startswith(prefix)}


def test_the_same_model_takes_all(make_recipe: MakeRecipe, vocabulary: Vocabulary) -> None:
    given = given_of(make_recipe(), vocabulary)
    found = fit_of(make_recipe(seed=1), vocabulary, given)
    assert found.taken == dict(given.tensors)
    assert (found.new, found.left, found.other_settings) == ({}, {}, ())
    assert found.share == 1.0
    number = sum(tensor.numel() for tensor in given.tensors.values())
    assert found.lines() == [
        f"weights of /runs/one (step 8 of a run): 69 of 69 tensors loaded, {number:,} parameters, 100.0% of this model"
    ]


def test_another_depth_and_another_length(make_recipe: MakeRecipe, vocabulary: Vocabulary) -> None:
    model = {"trunk": {"layers": 4, "heads": 4}, "embedder": {"name": "codepoint_hash", "max_characters": 96}}
    given = given_of(make_recipe(), vocabulary)
    found = fit_of(make_recipe(model=model), vocabulary, given)
    lines = found.lines()
    assert lines[0].startswith("weights of /runs/one (step 8 of a run): 68 of 69 tensors loaded, ")
    assert lines[1:] == [
        "  new: encoder.embedder.positions: of another shape",
        "  new: encoder.trunk.layers: not in the given weights",
        "  not loaded: encoder.embedder.positions: of another shape",
        "  settings that differ: model.embedder.max_characters 96, there 64; model.trunk.layers 4, there 1; "
        "model.trunk.heads 4, there 2",
    ]
    assert set(found.new) & set(found.left) == {"encoder.embedder.positions.weight"}
    back = fit_of(make_recipe(), vocabulary, given_of(make_recipe(model=model), vocabulary))
    assert "  not loaded: encoder.trunk.layers: no counterpart" in back.lines()
    sizes = [tensor.numel() for name, tensor in back.taken.items()]
    assert back.num_parameters == sum(sizes)
    assert back.share == pytest.approx(sum(sizes) / (sum(sizes) + 64 * 16))


def test_widths_that_are_derived_are_no_difference(make_recipe: MakeRecipe, vocabulary: Vocabulary) -> None:
    written = make_recipe(model={"character_width": 16, "trunk": {"inner_width": 64, "activation": "gelu"}})
    derived = make_recipe(model={"trunk": {"inner_width": None}})
    found = fit_of(derived, vocabulary, given_of(written, vocabulary))
    assert found.other_settings == ("model.trunk.activation 'gelu_tanh', there 'gelu'",)


def test_another_vocabulary(make_recipe: MakeRecipe, vocabulary: Vocabulary) -> None:
    """The rows of subwords are others, whatever their number; the rest of the head serves."""
    words = "of another vocabulary"
    for sha256 in ("0" * 64, None):
        given = given_of(make_recipe(), vocabulary, vocabulary=sha256)
        found = fit_of(make_recipe(), vocabulary, given)
        assert found.new == found.left == {"head.output.weight": words, "head.output.bias": words}
    characters = {"name": "canine_c", "buckets": 64, "heads": 2}
    given = given_of(make_recipe(objective=characters), vocabulary, vocabulary="0" * 64)
    assert fit_of(make_recipe(objective=characters), vocabulary, given).new == {}


def test_subwords_that_are_read(make_recipe_for: MakeRecipe, vocabulary: Vocabulary) -> None:
    recipe = make_recipe_for({"name": "masked_subwords", "tied": True})
    found = fit_of(recipe, vocabulary, given_of(recipe, vocabulary, vocabulary="0" * 64))
    assert set(found.new) == {"encoder.embedder.table.rows.weight", "head.output_bias"}
    assert reasons(found.new) == {"of another vocabulary"}
    assert fit_of(recipe, vocabulary, given_of(recipe, vocabulary)).new == {}


def test_another_objective(make_recipe: MakeRecipe, vocabulary: Vocabulary) -> None:
    """As many classes by chance are still others."""
    recipe = make_recipe(objective={"name": "masked_characters", "buckets": vocabulary.size})
    found = fit_of(recipe, vocabulary, given_of(make_recipe(), vocabulary))
    assert reasons(found.new) == {"of the objective canine_s"}
    assert all(name.startswith("head.") for name in found.new)
    assert set(found.left) == set(found.new)
    alone = dataclasses.replace(given_of(make_recipe(), vocabulary), objective=None)
    encoder = {name: tensor for name, tensor in alone.tensors.items() if name.startswith("encoder.")}
    found = fit_of(recipe, vocabulary, dataclasses.replace(alone, tensors=encoder))
    assert reasons(found.new) == {"not in the given weights"}
    assert found.left == {}


def test_rows_of_other_symbols(make_recipe: MakeRecipe, vocabulary: Vocabulary) -> None:
    other = make_recipe(model={"embedder": {"name": "codepoint_hash", "family": "independent"}})
    found = fit_of(other, vocabulary, given_of(make_recipe(), vocabulary))
    assert found.new == {"encoder.embedder.table.rows.weight": "of another embedder"}
    ngrams = make_recipe(
        model={"embedder": {"name": "ngram_hash", "orders": 1, "buckets": 64, "max_characters": 64}}
    )
    found = fit_of(ngrams, vocabulary, given_of(make_recipe(), vocabulary))
    assert reasons(found.new) == {"of another embedder"}
    assert found.other_settings == ("model.embedder.name 'ngram_hash', there 'codepoint_hash'",)


def test_a_vocabulary_of_characters_goes_with_its_rows(
    make_recipe: MakeRecipe, vocabulary: Vocabulary
) -> None:
    recipe = make_recipe(
        model={"embedder": {"name": "character_vocabulary", "size": 200, "max_characters": 64}}
    )
    given = given_of(recipe, vocabulary)
    found = fit_of(recipe, vocabulary, given)
    assert {"encoder.embedder.table.known_V", "encoder.embedder.table.rows.weight"} <= found.taken.keys()
    assert found.share == 1.0  # the characters themselves are no parameters
    larger = make_recipe(
        model={"embedder": {"name": "character_vocabulary", "size": 300, "max_characters": 64}}
    )
    found = fit_of(larger, vocabulary, given)
    assert reasons(found.new) == {"of another embedder"}


def test_next_to_nothing_is_refused(make_recipe: MakeRecipe, vocabulary: Vocabulary) -> None:
    given = given_of(make_recipe(), vocabulary)
    wide = make_recipe(model={"width": 32})
    with pytest.raises(
        UserError, match=r"--init-from /runs/one: only \d+ tensors, 0\.\d+% .*model.width 32, there 16"
    ):
        fit_of(wide, vocabulary, given)
    renamed = dataclasses.replace(
        given, tensors={f"old.{name}": value for name, value in given.tensors.items()}
    )
    with pytest.raises(
        UserError, match=r"no tensor of this model would be loaded \(its tensors have other names"
    ):
        fit_of(make_recipe(), vocabulary, renamed)
    name = "encoder.trunk.layers.0.inner.weight"  # 512 of some 20,000: 2.6%
    one = dataclasses.replace(given, tensors={name: given.tensors[name]})
    assert list(fit_of(make_recipe(), vocabulary, one).taken) == [name]


def test_weights_that_are_no_numbers(make_recipe: MakeRecipe, vocabulary: Vocabulary) -> None:
    given = given_of(make_recipe(), vocabulary)
    given.tensors["encoder.pooler.bias"][3] = float("nan")
    with pytest.raises(
        UserError, match=r"--init-from /runs/one: encoder.pooler.bias has values that are not numbers"
    ):
        fit_of(make_recipe(), vocabulary, given)
