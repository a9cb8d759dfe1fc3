"""Programs on the cards of fine-tuned graphs find what tokenfree does; graphs of any length compute the same."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.train.onnx.finetuned_models import ALL, batches, collator_of, expected, fresh, read, recipe
from tokenfree.preprocess.dataset.vocabulary import load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.finetuning.evaluation import Evaluator
from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.onnx.check import examples
from tokenfree.train.onnx.facts import facts_of
from tokenfree.train.onnx.task_graph import TaskGraph, task_graph
from tokenfree.train.onnx.task_snippet import task_snippet

onnxruntime = pytest.importorskip("onnxruntime", reason="needs tokenfree[onnx]")

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


def program_of(graph: TaskGraph, lines: Sequence[Any] | None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the program on the card computes, of `lines` in place of its own, where the session is our graph."""

    class Session:
        def __init__(self, path: str) -> None:
            assert path == "this folder/model.onnx"

        def run(self, names: Sequence[str], inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
            assert tuple(names) == graph.output_names
            assert set(inputs) == set(graph.input_names)
            assert inputs["mask"].dtype == bool
            with torch.no_grad():
                return [x.numpy() for x in graph(**{name: torch.from_numpy(each) for name, each in inputs.items()})]

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    encoder = TextEncoder(graph.encoder, length=144)
    facts = facts_of(graph, encoder, step=1, subwords=SUBWORDS, words="rules")
    found = re.search(r"```python\n(.*?)```", task_snippet(graph, encoder, facts), re.DOTALL)
    assert found
    code = re.sub(
        r'json.load\(.*?\)\["labels"\]', repr(facts.get("labels")), found[1].replace("), encoding", ", encoding")
    )
    if lines is not None:
        code, count = re.subn(
            r"^(texts|sentences|pairs) = .*$", lambda match: f"{match[1]} = {lines!r}", code, flags=re.M
        )
        assert count == 1
    names: dict[str, Any] = {}
    exec(code, names)
    return names


@pytest.mark.parametrize(("kind", "model"), [each for each in ALL if each[1] != "subwords"])
def test_the_program_finds_what_tokenfree_does(kind: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, made = graph_of(kind, model), recipe(kind, model)
    lines = EXAMPLES.get(kind, ONE)
    given = {"tags": [line.split() for line in lines]}.get(kind, [line.split("\t") for line in lines])
    given = [line for (line,) in given] if kind in ("texts", "maxima", "numbers") else given
    names = program_of(graph, given, monkeypatch)
    trained = fresh(made)
    raw = [made.task.raw(f"line {number}", line) for number, line in enumerate(lines)]
    predicted = Evaluator(made.task, collator_of(made, None), raw)(trained, torch.device("cpu")).predictions
    if kind == "numbers":
        assert names["found"] == pytest.approx([line["label"] for line in predicted], abs=1e-5)
        return
    assert names["found"] == [line[{"tags": "tags", "questions": "answer"}.get(kind, "label")] for line in predicted]
    if "probabilities" in names:
        ours = [list(line["probabilities"].values()) for line in predicted]
        assert np.abs(names["probabilities"] - ours).max() < 1e-5


@pytest.mark.parametrize("kind", ["texts", "numbers", "pairs", "tags", "questions"])
def test_the_program_for_subwords_runs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = program_of(graph_of(kind, "subwords"), None, monkeypatch)
    assert names["ids"].shape == names["inputs"]["codepoints"].shape
    assert names["ids"][0, 0] == 400
    assert len(names["begins" if kind == "questions" else "found"]) == 1


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
