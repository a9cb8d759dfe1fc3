"""Fine-tuning as one call: what it begins with, what it leaves, what it refuses."""

import dataclasses
import gc
import json
import shutil
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.conftest import MakeRecipe
from tests.train.finetune.conftest import MakeTask, splits
from tokenfree import load_finetuned
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.settings import build, merge
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetune import finetune, prepare
from tokenfree.train.loop.finetuning import TaskFiles, only_label
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs.config import read_config, read_finetuned
from tokenfree.train.runs.hashes import verify_folder
from tokenfree.train.runs.run import Run, checkpoint_of

Files = Mapping[str, str]
TASK = {"name": "classification", "representation": "class_max"}


@pytest.fixture(scope="module")
def run(make_task: MakeTask, files: Files, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A finished run that has learned which word is in a text."""
    run = str(tmp_path_factory.mktemp("finished") / "run")
    finetune(_learning(make_task), splits(files), run)
    return run


def _learning(make_task: MakeTask) -> FinetuneRecipe:
    return make_task(TASK, steps=60, validate_every_steps=20, learning_rate=0.02)


def test_it_learns_what_can_be_learned(run: str, files: Files) -> None:
    result = json.loads(Path(run, "result.json").read_text())
    assert result["test"]["accuracy"] == 1.0
    assert list(result["dev"]) == ["accuracy", "macro_f1"]
    lines = [json.loads(line) for line in Path(run, "predictions", "test.jsonl").read_text().splitlines()]
    assert [line["gold"] for line in lines] == [line["label"] for line in lines]
    assert lines[0]["key"] == "test.tsv:2"
    assert sum(lines[0]["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert verify_folder(run).complete


def test_a_result_has_the_baselines_of_its_task(
    run: str, make_task: MakeTask, files: Files, tmp_path: Path
) -> None:
    found = json.loads(Path(run, "result.json").read_text())["baseline"]
    assert found["dev"]["larger class"]["accuracy"] == pytest.approx(2 / 3)
    assert found["test"]["character n-grams"]["accuracy"] == 1
    result = finetune(make_task("tagging", steps=1), splits(files, "tags_"), str(tmp_path / "tags"))
    assert result.baseline["test"]["most frequent tag"]["f1"] == 1
    assert finetune(_learning(make_task), splits(files), run).baseline == found


def test_only_label_is_the_one_that_is_always_predicted() -> None:
    assert only_label([{"label": "a", "gold": "a"}, {"label": "a", "gold": "b"}]) == "a"
    assert only_label([{"label": "a", "gold": "a"}, {"label": "b", "gold": "b"}]) is None
    assert only_label([{"label": "a", "gold": "a"}, {"label": "a", "gold": "a"}]) is None
    assert only_label([{"tags": ["O", "O"], "gold": ["O", "B-PER"]}]) == "O"
    assert only_label([{"answer": "", "gold": ["x"]}, {"answer": "", "gold": ["y"]}]) is None


def test_the_best_checkpoint_by_dev_is_the_one_that_counts(
    make_task: MakeTask,
    files: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scores that are best in the middle, whatever is learned: its checkpoint is kept, evaluated and used."""
    from tokenfree.train.loop.finetuning import TaskSource

    seen = iter([3.0, 1.0, 2.0, 1.0])
    monkeypatch.setattr(TaskSource, "selection_loss", lambda source, found: next(seen))
    result = finetune(make_task("classification", keep_checkpoints=1), splits(files), str(tmp_path / "run"))
    assert result.best_step == 4
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == [
        "step_00000004", "step_00000008"
    ]  # fmt: skip
    model = load_finetuned(tmp_path / "run")
    assert model.checkpoint.step == 4
    found = model.evaluate(files["test"])
    assert found.metrics is not None
    assert dict(found.metrics.values) == result.test
    kept = (tmp_path / "run" / "predictions" / "test.jsonl").read_text()
    assert [json.loads(line)["label"] for line in kept.splitlines()] == [
        each["label"] for each in found.predictions
    ]


def test_the_test_set_is_evaluated_once_at_the_end(
    make_task: MakeTask,
    files: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tokenfree.train.loop import finetuning as evaluation

    seen: list[str] = []
    made = evaluation.Evaluator.__call__

    def noted(self: Any, *given: Any, **more: Any) -> Any:
        seen.append(self._examples[0].key.partition(".")[0])
        return made(self, *given, **more)

    monkeypatch.setattr(evaluation.Evaluator, "__call__", noted)
    finetune(make_task("classification"), splits(files), str(tmp_path / "run"))
    assert seen == ["dev"] * 5 + ["test"]


def test_a_finished_run_says_so_and_another_is_refused(run: str, make_task: MakeTask, files: Files) -> None:
    recipe = _learning(make_task)
    again = finetune(recipe, splits(files), run)
    assert again.already_complete
    assert again.test["accuracy"] == 1.0
    with pytest.raises(UserError, match=r"a run of other settings: train\.seed is 3, was 0"):
        finetune(
            dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, seed=3)), splits(files), run
        )
    with pytest.raises(UserError, match="the data differ from those of"):
        finetune(recipe, {**splits(files), "test": files["dev"]}, run)


def test_without_dev_the_last_step_counts(make_task: MakeTask, files: Files, tmp_path: Path) -> None:
    result = finetune(
        make_task("classification"), {"train": files["train"], "test": files["test"]}, str(tmp_path / "r")
    )
    assert (result.best_step, result.checkpoint, dict(result.dev)) == (None, "checkpoints/step_00000008", {})
    assert set(result.test) == {"accuracy", "macro_f1"}


def test_from_a_pretraining_run(
    make_task: MakeTask,
    make_recipe: MakeRecipe,
    files: Files,
    corpus: str,
    tmp_path: Path,
) -> None:
    first = str(tmp_path / "first")
    pretrain(make_recipe(), corpus, first)
    recipe = make_task("classification", length=64, steps=2)
    lines: list[str] = []
    result = finetune(
        recipe,
        splits(files),
        str(tmp_path / "run"),
        init_from=first,
        model={"trunk": {"dropout": 0.3}},
        progress=lambda line: lines.append(line.get("message", "")),
    )
    config = read_finetuned(result.run)
    model = read_config(first).recipe.model
    assert config.recipe.model == build(
        type(model), merge(to_mapping(model), {"trunk": {"dropout": 0.3}}), source="t"
    )
    assert config.recipe.task.labels == ("minus", "plus")
    assert "parameters, 9" in lines[0]  # percent of the model
    assert "  new: head: " in lines[0]
    begun, given = Run(result.run), checkpoint_of(first).weights()
    shutil.rmtree(Path(first))  # a resumed run does not need it
    assert begun.result() is not None
    again = finetune(recipe, splits(files), result.run, init_from=first, model={"trunk": {"dropout": 0.3}})
    assert again.already_complete
    name = "encoder.trunk.layers.0.value.weight"
    moved = checkpoint_of(result.run).weights()[name] - given[name]
    assert 0 < moved.abs().max() < 0.05


def test_a_fine_tuned_run_is_begun_with_too(
    run: str, make_task: MakeTask, files: Files, tmp_path: Path
) -> None:
    """Its head only for the same labels."""
    lines: list[str] = []
    for number, task in enumerate((TASK, "tagging")):
        given = splits(files, "tags_" if number else "")
        finetune(
            make_task(task, steps=1),
            given,
            str(tmp_path / str(number)),
            init_from=run,
            progress=lambda line: (
                lines.append(line.get("message", "")) if line.get("event") == "init_from" else None
            ),
        )
    assert "100.0% of this model" in lines[0]
    assert "of the task classification" in lines[1]


def test_subwords_bring_their_vocabulary_with_them(
    make_task: MakeTask,
    make_recipe_for: MakeRecipe,
    files: Files,
    corpus: str,
    tmp_path: Path,
) -> None:
    first, copy = str(tmp_path / "first"), str(tmp_path / "data")
    shutil.copytree(corpus, copy)
    pretrain(make_recipe_for({"name": "masked_subwords"}), copy, first)
    recipe = make_task("tagging", "subwords", length=64)
    with pytest.raises(
        UserError, match=r"reads subwords\. Give the run with their vocabulary as --init-from"
    ):
        finetune(recipe, splits(files, "tags_"), str(tmp_path / "scratch"))
    finetune(recipe, splits(files, "tags_"), str(tmp_path / "run"), init_from=first)
    shutil.rmtree(copy)
    shutil.rmtree(first)
    (found,) = load_finetuned(tmp_path / "run")(["Ana Ruiz saw 7."])
    assert found["words"] == ["Ana", "Ruiz", "saw", "7", "."]
    path = f"{corpus}/vocabulary/subwords.model"
    assert finetune(recipe, splits(files, "tags_"), str(tmp_path / "scratch"), vocabulary=path).dev


def test_a_damaged_best_checkpoint_is_told(run: str, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    best = json.loads(Path(run, "result.json").read_text())["best_step"]
    (tmp_path / "run" / "checkpoints" / f"step_{best:08d}" / "model.safetensors").write_bytes(b"")
    with pytest.raises(JobError, match=r"is damaged: model\.safetensors does not match"):
        load_finetuned(tmp_path / "run")


@pytest.mark.parametrize(
    ("task", "over", "message"),
    [
        (
            "classification",
            {"train": None},
            "task.name: classification learns from examples; give a file .* --train",
        ),
        ("classification", {"train": "/nowhere.tsv"}, "/nowhere.tsv: there is no such file"),
        ("classification", {"train": "pairs_train"}, "there are pairs of texts. Set task.name to pairs"),
        ("pairs", {"train": "train"}, "there are no pairs of texts. Name their columns"),
        ("classification", {"dev": "other"}, "other.tsv:2: the label 'none' is not a class"),
        (
            {"name": "classification", "metrics": ["pearson"]},
            {},
            "task.metrics: pearson is not a score of classes",
        ),
        ({"name": "classification", "metrics": ["f1"]}, {}, "task.metrics: f1 is of one class; name it"),
        (
            {"name": "classification", "positive": "x", "labels": ["a", "b"]},
            {},
            "task.positive: 'x' is none of",
        ),
    ],
)
def test_what_does_not_fit_is_told_before_anything_is_written(
    task: Any,
    over: Mapping[str, Any],
    message: str,
    make_task: MakeTask,
    files: Files,
    tmp_path: Path,
) -> None:
    (tmp_path / "other.tsv").write_text("text\tlabel\na\tnone\n")
    paths = {**files, "other": str(tmp_path / "other.tsv")}
    prefix = "pairs_" if task == "pairs" else ""
    given = {
        **splits(files, prefix),
        **{split: name and paths.get(name, name) for split, name in over.items()},
    }
    with pytest.raises(UserError, match=message):
        finetune(
            make_task(task), {split: path for split, path in given.items() if path}, str(tmp_path / "run")
        )
    assert not (tmp_path / "run").exists()


def test_long_texts_are_read_in_windows(make_task: MakeTask, files: Files, tmp_path: Path) -> None:
    """What stands at the end of a long text is read as well."""
    run = str(tmp_path / "run")
    finetune(_learning(make_task), splits(files), run)
    model = load_finetuned(run)
    long = "x" * 500 + " good day no. 1"
    shares = [found["probabilities"]["plus"] for found in model([long, long.replace("good", "bad")])]
    assert shares[0] != shares[1]
    examples = [model.task.raw("one", long)]
    items = model._collator.items(examples, training=False)
    assert len(items) > 3
    assert {item.example for item in items} == {0}


def test_kinds_of_runs_are_told_apart(
    run: str,
    make_recipe: MakeRecipe,
    make_task: MakeTask,
    files: Files,
    corpus: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(UserError, match="is a run of fine-tuning, where one of pretraining is needed"):
        read_config(run)
    with pytest.raises(UserError, match="is a run of fine-tuning, where one of pretraining is needed"):
        pretrain(make_recipe(), corpus, run)
    first = str(tmp_path / "first")
    pretrain(make_recipe(steps=1), corpus, first)
    with pytest.raises(UserError, match="is a run of pretraining, where one of fine-tuning is needed"):
        finetune(make_task("classification"), splits(files), first)
    with pytest.raises(UserError, match="is a run of pretraining, where one of fine-tuning is needed"):
        load_finetuned(first)


def test_prepare_writes_nothing(make_task: MakeTask, files: Files, tmp_path: Path) -> None:
    prepared = prepare(make_task("classification"), splits(files), str(tmp_path / "run"))
    assert isinstance(prepared.recipe, FinetuneRecipe)
    assert prepared.recipe.task.labels == ("minus", "plus")
    assert not (tmp_path / "run").exists()


def test_an_encoder_with_a_vocabulary_of_characters_learns_that_of_the_texts(
    make_task: MakeTask,
    files: Files,
    tmp_path: Path,
) -> None:
    finetune(make_task("classification", "character_bert", steps=1), splits(files), str(tmp_path / "run"))
    known = load_finetuned(tmp_path / "run").model.encoder.embedder.table.known_V
    assert torch.isin(torch.tensor([ord("g"), ord("0")]), known).all()
    assert not torch.isin(torch.tensor([ord("G"), ord("!")]), known).any()


def test_a_source_is_gone_when_nothing_needs_it(make_task: MakeTask, files: Files) -> None:
    """Its examples may be large, and each command makes several sources."""
    from tokenfree.train.loop.finetuning import TaskSource

    given = splits(files)
    recipe = make_task(TASK)
    task = recipe.task.fitted(recipe.task.examples("train", given["train"]))
    gc.disable()
    try:
        source = TaskSource(
            dataclasses.replace(recipe, task=task), TaskFiles(given, ""), rank=0, world_size=1
        )
        source.check()
        seen = weakref.ref(source)
        del source
        assert seen() is None
    finally:
        gc.enable()
