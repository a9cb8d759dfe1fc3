import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest

from tokenfree.preprocess.dataset.manifest import DatasetSplit, load_manifest, load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.checks import check
from tokenfree.train.config import PretrainRecipe
from tokenfree.workflows.api import Recipe

MakeRecipe = Callable[..., PretrainRecipe]


def test_a_fitting_recipe(corpus: str, make_recipe: MakeRecipe) -> None:
    assert (
        check(make_recipe(), load_manifest(corpus), workers=(1, 8), vocabulary=load_vocabulary(corpus)) == []
    )


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


@pytest.mark.parametrize("trunk", [{"layers": 1000, "heads": 2}, {"layers": 1, "heads": 2}])
def test_a_model_beyond_this_machines_memory(
    trunk: dict[str, int], make_recipe: MakeRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    width = 10**6 if trunk["layers"] > 1 else 10**9
    model = {"width": width, "trunk": trunk, "embedder": {"buckets": 64, "max_characters": 64}}
    recipe = make_recipe(model=model)
    monkeypatch.setattr("tokenfree.train.checks.machine_memory", lambda: 10**11)
    (problem,) = check(recipe, None)
    assert problem.startswith("model.width: ")
    assert "that this machine gives; make the model or the batch smaller" in problem
    monkeypatch.setenv("RAY_ADDRESS", "auto")  # of whose machines nothing is known
    assert check(recipe, None) == []


@pytest.mark.parametrize(
    ("key", "over"),
    [
        ("train.global_batch", {"train": {"global_batch": 10**9}}),
        ("train.global_batch", {"train": {"global_batch": 10**9, "micro_batch": 1}}),
        ("train.length", {"train": {"length": 10**9}, "model": {"embedder": {"max_characters": 10**9}}}),
        ("model.upsampler.kernel", {"model": {"upsampler": {"kernel": 10**9}}}),
        ("model.trunk.inner_width", {"model": {"trunk": {"inner_width": 10**9}}}),
        ("model.width", {"model": {"width": 10**6}}),
        ("objective.max_predictions", {"objective": {"max_predictions": 10**9}}),
    ],
)
def test_check_refuses_sizes_with_the_memory_of_a_step(
    key: str, over: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert check(Recipe.from_name("canine-s-base"), None) == []
    problems = check(Recipe.from_name("canine-s-tiny", **over), None)
    pattern = rf"{key}: 1,000,\d{{3}}.* is too large: a training step takes [\d,]+ GiB and more "
    pattern += r"\(weights and gradients "
    assert re.match(pattern, problems[-1])
    assert check(Recipe.from_name("canine-s-tiny", **over), None, trains_here=False) == problems[:-1]


def test_no_vocabulary(tmp_path: object) -> None:
    assert load_vocabulary(str(tmp_path)) is None


def test_the_vocabulary(corpus: str) -> None:
    assert isinstance(load_vocabulary(corpus), Vocabulary)


def test_without_data_what_needs_none_is_checked(make_recipe: MakeRecipe) -> None:
    (problem,) = check(make_recipe(streams=3), None, workers=(1, 8))
    assert problem.startswith("train.streams: 3")
