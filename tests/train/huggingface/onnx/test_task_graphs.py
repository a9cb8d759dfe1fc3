"""Fine-tuned graphs of any length compute what the task reads."""

import numpy as np
import pytest
import torch

from tests.train.huggingface.onnx.finetuned_models import (
    ALL,
    batches,
    collator_of,
    expected,
    fresh,
    read,
    recipe,
)
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.huggingface.onnx import TaskGraph, examples

ONE = ["any text", "日本語 é", "a" * 40, "", "Ana saw Rome."]
PAIRS = ["any text\tits second text", "日本語\té", "a" * 40 + "\tb", "b\t" + "a" * 50]
QUESTIONS = ["Who saw Rome?\tAna saw Rome.", "Who?\tBo.", "日本?\té 日本語 " + "a" * 20]
EXAMPLES = {"tags": ["Ana saw Rome .", "日 本", "é a bb ccc dddd"], "pairs": PAIRS, "questions": QUESTIONS}


@pytest.fixture(scope="module")
def vocabulary(corpus: str) -> Vocabulary | None:
    return load_vocabulary(corpus)


@pytest.mark.parametrize(("kind", "model"), [*ALL, ("pairs", "segments"), ("questions", "global")])
def test_a_graph_computes_what_the_task_reads(
    kind: str, model: str, vocabulary: Vocabulary | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recipe(kind, model)
    trained = fresh(made)
    graph, collator = TaskGraph(made.task, trained.encoder, trained.head), collator_of(made, vocabulary)
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
