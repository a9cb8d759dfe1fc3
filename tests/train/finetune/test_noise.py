"""Noise in the recipe of a fine-tuning run and in its evaluation, whatever the batches are."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.train.finetune.conftest import MakeTask, splits, write
from tokenfree import load_finetuned
from tokenfree.core.errors import UserError
from tokenfree.train.analyses import noise
from tokenfree.train.analyses.noise import noise_scores
from tokenfree.train.checks import check_finetuning
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetune import finetune
from tokenfree.train.inference.finetuned import FinetunedModel
from tokenfree.train.loop.finetuning import TaskFiles, TaskSource
from tokenfree.train.tasks.examples.noise import IN_WORDS, Noise, noisy
from tokenfree.train.tasks.inputs import text_inputs

Files = Mapping[str, str]


@pytest.fixture(scope="module")
def learned(make_task: MakeTask, files: Files, tmp_path_factory: pytest.TempPathFactory) -> FinetunedModel:
    """A model of words that knows which word is in a text."""
    run = str(tmp_path_factory.mktemp("noise") / "run")
    task = {"name": "classification", "noise": {"train": IN_WORDS}}
    recipe = make_task(task, "words", steps=40, learning_rate=0.02)
    finetune(recipe, splits(files), run)
    return load_finetuned(run)


@pytest.fixture(autouse=True)
def few_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "REPLICATES", 20)


@pytest.mark.parametrize(("world_size", "train"), [(1, {}), (1, {"global_batch": 5}), (2, {"seed": 7})])
def test_what_is_read_depends_neither_on_batches_nor_on_workers(
    world_size: int, train: Mapping[str, Any], make_task: MakeTask, files: Files
) -> None:
    clean = make_task("classification").task.examples("train", files["train"])
    expected = {noisy(example, "drop", 0, 0.3).text for example in clean}
    recipe = make_task({"name": "classification", "noise": {"train": "drop", "rate": 0.3}}, **train)
    recipe = dataclasses.replace(recipe, task=recipe.task.fitted(clean))
    found: set[str] = set()
    for rank in range(world_size):
        source = TaskSource(recipe, TaskFiles(splits(files), "content"), rank=rank, world_size=world_size)
        for arrays in (source.loader.batch(step) for step in range(10)):
            rows = zip(arrays["codepoints"], arrays["mask"], strict=True)
            found |= {"".join(map(chr, row[mask][1:-1])) for row, mask in rows}
    assert found == expected


def test_evaluation_with_noise_is_that_of_a_run_whose_recipe_has_it(
    make_task: MakeTask, files: Files, tmp_path: Path
) -> None:
    task = {"name": "classification", "noise": {"evaluation": "drop", "rate": 0.4, "seed": 3}}
    finetune(make_task(task), splits(files), str(tmp_path / "noisy"))
    model = load_finetuned(tmp_path / "noisy")
    own = model.evaluate(files["test"])
    assert (
        own.predictions
        == model.evaluate(files["test"], Noise(evaluation="drop", rate=0.4, seed=3)).predictions
    )
    assert own.predictions != model.evaluate(files["test"], Noise()).predictions
    assert (
        model.evaluate(files["test"], Noise(evaluation="drop", rate=0.4, seed=4)).predictions
        != own.predictions
    )


def test_words_that_were_found_before_stay_whole(learned: FinetunedModel, files: Files) -> None:
    inputs = text_inputs(learned.recipe.model, learned.recipe.train.length, None)
    clean = learned.examples(files["test"], Noise())
    for before, after in zip(clean, learned.examples(files["test"], Noise(evaluation=IN_WORDS)), strict=True):
        shattered, whole = inputs.encode(after.text), inputs.encode(after.text, before.text)
        assert whole.num_vectors == inputs.encode(before.text).num_vectors <= shattered.num_vectors
    losses = [
        learned.evaluate(files["test"], Noise(evaluation=scheme)).loss for scheme in ("random_case", IN_WORDS)
    ]
    assert losses[0] != losses[1]  # of the same texts


@pytest.mark.parametrize(
    ("task", "prefix"), [("classification", ""), ("pairs", "pairs_"), ("tagging", "tags_")]
)
def test_all_tasks_read_the_words_of_before(
    task: str, prefix: str, make_task: MakeTask, files: Files
) -> None:
    def sizes(scheme: str | None) -> list[int]:
        recipe = make_task({"name": task, "noise": {"evaluation": scheme, "seed": 1}}, "words")
        fitted = recipe.task.fitted(recipe.task.examples("train", files[f"{prefix}train"]))
        collator = fitted.collator(text_inputs(recipe.model, recipe.train.length, None), 0)
        items = collator.items(fitted.examples("dev", files[f"{prefix}dev"]), training=False)
        ends = collator(items, np.arange(len(items)))["unit_ends"]
        return [len(np.unique(row)) for row in ends]

    assert sizes(None) == sizes(IN_WORDS) != sizes("random_case")


def test_tags_and_words_go_together_under_any_noise(
    make_task: MakeTask, files: Files, tmp_path: Path
) -> None:
    recipe = make_task({"name": "tagging", "noise": {"train": "drop", "evaluation": "repeat"}}, steps=2)
    finetune(recipe, splits(files, "tags_"), str(tmp_path / "run"))
    model = load_finetuned(tmp_path / "run")
    (line, *_), gold = model.evaluate(files["tags_test"]).predictions, model.examples(files["tags_test"])[0]
    assert len(line["words"]) == len(line["tags"]) == len(gold.tags)
    found = noise_scores(model, "run", files["tags_test"], strengths=[1])
    assert [row["scheme"] for row in found["rows"]] == ["none", "drop", "repeat", "uppercase", "random_case"]
    assert (found["main"], found["trained_with"], found["trained_rate"]) == ("f1", "drop", 0.1)
    assert len({tuple(row) for row in found["rows"]}) == 1


def test_scores_by_scheme_and_strength(learned: FinetunedModel, files: Files) -> None:
    found = noise_scores(learned, "run", files["test"])
    clean, *rows = found["rows"]
    assert (clean["scheme"], clean["rate"], clean["change"]) == ("none", 0, 0)
    assert clean["score"] == learned.evaluate(files["test"], Noise()).metrics.score  # pyright: ignore[reportOptionalMemberAccess]
    rates = {
        scheme: [row["rate"] for row in rows if row["scheme"] == scheme]
        for scheme in [r["scheme"] for r in rows]
    }
    assert rates == {
        "drop": [0.05, 0.1, 0.2],
        "repeat": [0.1, 0.2, 0.4],
        "uppercase": [0.5, 1],
        "random_case": [0.5, 1],
        "random_case_in_words": [0.5, 1],
    }
    for row in rows:
        again = learned.evaluate(files["test"], Noise(evaluation=row["scheme"], rate=row["rate"]))
        assert (row["score"], row["loss"]) == (again.metrics.score, again.loss)  # pyright: ignore[reportOptionalMemberAccess]
        assert row["low"] <= row["score"] <= row["high"]
        assert row["change_low"] <= row["change"] <= row["change_high"]
        assert row["change"] == pytest.approx(row["score"] - clean["score"])
    assert noise_scores(learned, "run", files["test"]) == found
    assert noise_scores(learned, "run", files["test"], max_examples=5)["examples"] == 5
    assert noise_scores(learned, "run", files["test"], seed=1)["rows"] != found["rows"]


def test_without_answers_there_is_no_table(learned: FinetunedModel, tmp_path: Path) -> None:
    bare = write(tmp_path / "bare.tsv", "text", ["a day"])
    with pytest.raises(UserError, match="have no labels to be compared with"):
        noise_scores(learned, "run", bare)


def test_noise_after_words_is_for_models_of_words(make_task: MakeTask, files: Files, tmp_path: Path) -> None:
    for task in ("classification", "pairs", "tagging"):
        recipe: FinetuneRecipe = make_task({"name": task, "noise": {"evaluation": IN_WORDS}})
        (problem,) = check_finetuning(recipe)
        assert problem.startswith("task.noise.evaluation: random_case_in_words is for models of words")
        assert not check_finetuning(make_task({"name": task, "noise": {"evaluation": IN_WORDS}}, "words"))
    finetune(make_task("classification", steps=1), {"train": files["train"]}, str(tmp_path / "run"))
    with pytest.raises(UserError, match=r"is for models of words, which this is none of\. Give random_case"):
        load_finetuned(tmp_path / "run").evaluate(files["test"], Noise(evaluation=IN_WORDS))


@pytest.mark.parametrize("task", ["qa_squad", "qa_tydi", "language_modelling", "mirrored_summation"])
def test_tasks_whose_answers_would_move_have_no_noise(task: str, make_task: MakeTask) -> None:
    with pytest.raises(UserError, match=r"task\.noise"):
        make_task({"name": task, "noise": {"train": "drop"}})
