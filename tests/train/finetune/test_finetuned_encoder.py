"""The encoder of a fine-tuned run: of the checkpoint that counts, with what its task has trained."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.finetune.conftest import MakeTask, splits
from tokenfree import load_encoder, load_finetuned
from tokenfree.core.errors import UserError
from tokenfree.train.analyses.attention import attention_ranks
from tokenfree.train.analyses.subject import load_model, sample_texts
from tokenfree.train.finetune import finetune
from tokenfree.train.inference.text_encoder import WordEncoder
from tokenfree.train.loop.finetuning import TaskSource
from tokenfree.train.runs.run import Run

Files = Mapping[str, str]
close = functools.partial(torch.testing.assert_close, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("model", "vector"),
    [("canine", "mean"), ("canine", "pooled"), ("multi_scale", "mean"), ("words", "pooled")],
)
def test_its_vectors_are_those_that_are_classified(
    model: str, vector: str, make_task: MakeTask, files: Files, tmp_path: Path
) -> None:
    task = {"name": "classification", "representation": vector}
    finetune(make_task(task, model, learning_rate=0.02), splits(files), str(tmp_path / "run"))
    encoder, finetuned = load_encoder(tmp_path / "run"), load_finetuned(tmp_path / "run")
    texts = ["good day no. 7", "bad"]
    out, head = encoder(texts), finetuned.model.head
    assert isinstance(encoder, WordEncoder) == (model == "words") == (out.words is not None)
    with torch.no_grad():
        found = torch.softmax(head.classifier(getattr(out, vector)), dim=-1)  # pyright: ignore
    close(found, torch.tensor([list(line["probabilities"].values()) for line in finetuned(texts)]))


def test_it_is_of_the_best_checkpoint(
    make_task: MakeTask, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = iter([3.0, 1.0, 2.0, 1.0])
    monkeypatch.setattr(TaskSource, "selection_loss", lambda source, found: next(seen))
    finetune(make_task("classification", keep_checkpoints=1), splits(files), str(tmp_path / "run"))
    weights = load_encoder(tmp_path / "run").encoder.embedder.norm.weight
    best, last = (Run(tmp_path / "run").at(step).weights()["encoder.embedder.norm.weight"] for step in (4, 8))
    assert torch.equal(weights, best)
    assert not torch.equal(weights, last)


@pytest.mark.parametrize(
    ("task", "prefix", "trained"),
    [
        ("classification", "", False),
        ({"name": "classification", "representation": "pooled"}, "", True),
        ({"name": "pairs", "representation": "pooled"}, "pairs_", True),
        ("tagging", "tags_", False),
    ],
)
def test_the_pooled_vector_is_trained_by_some_tasks(
    task: str | Mapping[str, Any],
    prefix: str,
    trained: bool,
    make_task: MakeTask,
    files: Files,
    tmp_path: Path,
) -> None:
    finetune(make_task(task, steps=2), splits(files, prefix), str(tmp_path / "run"))
    encoder = load_encoder(tmp_path / "run")
    assert encoder(["a"]).pooled_is_trained == encoder.pooled_is_trained == trained
    assert encoder.encoder.pooler.bias.any().item() == trained  # biases begin at zero


def test_answers_that_have_types_train_the_pooled_vector(make_task: MakeTask) -> None:
    assert make_task("qa_tydi").task.trains_pooled
    assert not make_task("qa_squad").task.trains_pooled


def test_a_model_of_subwords_says_what_it_reads(
    make_task: MakeTask, files: Files, corpus: str, tmp_path: Path
) -> None:
    vocabulary = f"{corpus}/vocabulary/subwords.model"
    finetune(
        make_task("classification", "subwords", steps=1),
        splits(files),
        str(tmp_path / "run"),
        vocabulary=vocabulary,
    )
    with pytest.raises(UserError, match="this model reads subwords, not texts"):
        load_encoder(tmp_path / "run")(["a"])


def test_one_of_subwords_is_analysed_with_those_that_it_keeps(
    make_task: MakeTask, files: Files, corpus: str, long_corpus: str, tmp_path: Path
) -> None:
    vocabulary = f"{corpus}/vocabulary/subwords.model"
    recipe = make_task("classification", "subwords", steps=1)
    finetune(recipe, splits(files), str(tmp_path / "run"), vocabulary=vocabulary)
    model = load_model(tmp_path / "run")
    assert torch.equal(
        model.subwords("good day"), load_model(tmp_path / "run", vocabulary=corpus).subwords("good day")
    )
    (tmp_path / "text").write_text("A good day.\n")
    (row,) = attention_ranks(model, sample_texts(model, str(tmp_path / "text"), 1))["rows"][:1]
    assert row["rank"] > 1
    with pytest.raises(UserError, match=r"no data directory that .* was trained on; name texts with --data"):
        sample_texts(model, None, 1)
    with pytest.raises(UserError, match="has another vocabulary than"):
        load_model(tmp_path / "run", vocabulary=long_corpus)
