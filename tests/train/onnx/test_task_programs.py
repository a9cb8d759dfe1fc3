"""Fine-tuned graphs of any length compute what the task reads, and config.json says how to use them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from tests.train.onnx.finetuned_models import ALL, batches, collator_of, expected, fresh, read, recipe
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.huggingface.onnx import TaskGraph, examples, facts_of, task_graph
from tokenfree.train.inference.text_encoder import TextEncoder

SUBWORDS = {"vocabulary": "0" * 64, "special": {"pad": 0, "cls": 400, "sep": 401, "mask": 402}}
ONE = ["any text", "日本語 é", "a" * 40, "", "Ana saw Rome."]
PAIRS = ["any text\tits second text", "日本語\té", "a" * 40 + "\tb", "b\t" + "a" * 50]
QUESTIONS = ["Who saw Rome?\tAna saw Rome.", "Who?\tBo.", "日本?\té 日本語 " + "a" * 20]
EXAMPLES = {"tags": ["Ana saw Rome .", "日 本", "é a bb ccc dddd"], "pairs": PAIRS, "questions": QUESTIONS}


@pytest.fixture(scope="module")
def vocabulary(corpus: str) -> Vocabulary | None:
    return load_vocabulary(corpus)


def graph_of(kind: str, model: str) -> TaskGraph:
    made = recipe(kind, model)
    return task_graph(made.task, fresh(made))


@pytest.mark.parametrize(("kind", "model"), [*ALL, ("pairs", "segments"), ("questions", "global")])
def test_a_graph_computes_what_the_task_reads(
    kind: str, model: str, vocabulary: Vocabulary | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(kind, model)
    trained = fresh(made)
    graph, collator = task_graph(made.task, trained), collator_of(made, vocabulary)
    for batch in batches(made, collator, EXAMPLES.get(kind, ONE[:3])):
        ours = expected(made, trained, batch)
        with monkeypatch.context() as patch, torch.no_grad():
            patch.setattr(torch.compiler, "is_exporting", lambda: True)
            found = graph(**{name: batch[name] for name in graph.input_names})
        for one, other in zip(ours, read(made, [output.numpy() for output in found], batch), strict=True):
            assert np.abs(one - other).max() < 1e-5
    assert np.std(ours[0], axis=0).max() > 1e-3  # of all lines together
    for inputs in examples(graph, 40):
        with monkeypatch.context() as patch, torch.no_grad():
            ours = graph(**inputs)
            patch.setattr(torch.compiler, "is_exporting", lambda: True)
            for one, other in zip(ours, graph(**inputs), strict=True):
                assert one.shape == other.shape
                assert torch.allclose(one, other, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("kind", "model", "facts"),
    [
        ("texts", "canine", {"task": "classification", "labels": ["größer", "less", "no"], "max_characters": 136}),
        ("numbers", "canine", {"task": "classification", "labels": None, "regression": True}),
        ("pairs", "canine", {"labels": ["less", "more"], "max_characters": 135}),
        ("questions", "words", {"task": "qa_squad", "labels": None, "regression": None, "words": "rules"}),
        ("tags", "subwords", {**SUBWORDS, "labels": ["ADJ", "NOUN", "VERB"]}),
        ("texts", "bytes", {"special": {"pad": 0, "cls": 2, "sep": 3, "mask": 4}}),
    ],
)
def test_what_config_json_says(kind: str, model: str, facts: Mapping[str, Any]) -> None:
    graph = graph_of(kind, model)
    found = facts_of(graph, TextEncoder(graph.encoder, length=144), step=1, subwords=SUBWORDS, words="rules")
    assert {name: found.get(name) for name in facts} == facts
    names = {"pairs": ["first", "second"], "questions": ["question", "context"]}.get(kind, ["text"])
    assert found["framing"]["input"] == ["cls", *(part for name in names for part in (name, "sep"))]
    assert found["framing"]["segments"] == [0, 0, 0, 1, 1][: 1 + 2 * len(names)]
    assert ("segments" in found["inputs"]) == (len(names) == 2)
    assert ("pad" in found) == (model in ("canine", "bytes"))
    vectors = "words" if model == "words" else "length"
    shapes = {
        "texts": {"logits": ["batch", 3]},
        "numbers": {"logits": ["batch", 1]},
        "pairs": {"logits": ["batch", 2]},
        "tags": {"logits": ["batch", vectors, 3]},
        "questions": {"start_logits": ["batch", vectors], "end_logits": ["batch", vectors]},
    }
    assert {name: tensor["shape"] for name, tensor in found["outputs"].items()} == shapes[kind]
