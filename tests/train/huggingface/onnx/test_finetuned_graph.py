"""Fine-tuned runs as graphs of ONNX: onnxruntime's logits are those of `load_finetuned`, and what is refused."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard

from tests.train.finetune.conftest import splits, write, write_files
from tests.train.huggingface.onnx.finetuned_models import (
    batches,
    collator_of,
    enlarge,
    expected,
    parts,
    read,
    recipe,
)
from tokenfree import load_finetuned
from tokenfree.core.errors import UserError
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.train.finetune import finetune
from tokenfree.train.huggingface.onnx import Graph, TaskGraph, export_graph
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.runs.run import Run
from tokenfree.workflows import cli

# With what is framed around them up to 128: beyond, a block is not full.
LENGTHS = [1, 2, 3, 8, 41, 100, 108, 111]
ALPHABET = "abcdefgh ijklmno.éßж"
PREFIXES = {"pairs": "pairs_", "tags": "tags_"}
SLOW = [
    ("maxima", "multi_scale"),
    ("numbers", "canine"),
    ("pairs", "canine"),
    ("pairs", "segments"),
    ("pairs", "words"),
    ("questions", "canine"),
    ("questions", "global"),
    ("questions", "subwords"),
    ("questions", "words"),
    ("tags", "canine"),
    ("tags", "longformer"),
    ("tags", "subwords"),
    ("tags", "words"),
    ("texts", "bytes"),
    ("texts", "canine"),
    ("texts", "subwords"),
    ("texts", "words"),
]


@pytest.fixture(scope="module")
def _packages() -> None:
    for name in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(name, reason="needs the extra onnx")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_files(tmp_path_factory.mktemp("files"))


def finetuned(
    folder: Path, kind: str, model: str, files: Mapping[str, str], corpus: str, **task: Any
) -> Path:
    """A run of some steps that begins with large weights, so that each symbol counts."""
    given: dict[Any, str] = {
        split: path for split, path in splits(files, PREFIXES.get(kind, "")).items() if split != "test"
    }
    if kind == "numbers":
        path = write(
            folder / "numbers.tsv",
            "text\tlabel",
            [f"{'good' if n % 3 else 'bad'} {n}\t{n / 4}" for n in range(24)],
        )
        given = {"train": path, "dev": path}
    if kind == "questions":
        answers = [{"text": "Ana", "answer_start": 0}]
        asked = [{"id": str(n), "question": "who?", "answers": answers[: n % 2]} for n in range(8)]
        path = folder / "squad.json"
        path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "Ana is here.", "qas": asked}]}]}))
        given = {"train": str(path), "dev": str(path)}
    vocabulary = f"{corpus}/vocabulary/subwords.model" if model == "subwords" else None
    labels = {} if kind in ("numbers", "questions") else {"labels": []}  # of the files
    build = ModelConfig.build
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelConfig, "build", lambda config: enlarge(build(config)))
        finetune(recipe(kind, model, labels | task), given, str(folder / "run"), vocabulary=vocabulary)
    return folder / "run"


def lines_of(kind: str) -> list[str]:
    """Texts of several lengths, as the task has them."""
    draw = random.Random(0)
    texts = ["".join(draw.choices(ALPHABET, k=length)) for length in LENGTHS]
    if kind == "tags":
        return [" ".join(text.split()) or "a" for text in texts]
    if kind == "questions":
        return [f"who?\t{text.replace(' ', 'x')}" for text in texts]
    return [
        f"{text[: len(text) // 3]}\t{text[len(text) // 3 :]}" if kind == "pairs" else text for text in texts
    ]


def largest_difference(run: Path, folder: Path, kind: str) -> float:
    """Between the logits of onnxruntime and those of the fine-tuned model, of texts alone and together."""
    import onnxruntime

    found = load_finetuned(run)
    vocabulary = load_vocabulary(str(run)) if found.recipe.model.embedder.symbols == "subwords" else None
    session: Any = onnxruntime.InferenceSession(folder / "model.onnx")
    names = [tensor.name for tensor in session.get_inputs()]
    differences, outputs = list[float](), list[np.ndarray]()
    for batch in batches(found.recipe, collator_of(found.recipe, vocabulary), lines_of(kind)):
        outputs = session.run(None, {name: batch[name].numpy() for name in names})
        ours = expected(found.recipe, found.model, batch)
        theirs = read(found.recipe, outputs, batch)
        differences += [float(np.abs(one - other).max()) for one, other in zip(ours, theirs, strict=True)]
        if "segments" in batch and len(batch["mask"]) > 1:
            flat = {name: batch[name].numpy() * (name != "segments") for name in names}
            assert np.abs(session.run(None, flat)[0] - outputs[0]).max() > 1e-3, "segments are not read"
    assert np.std(outputs[0], axis=0).max() > 1e-3  # of all texts together
    return max(differences)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that would be written, which takes most of the time of an export."""
    graphs = list[Graph]()

    def write_nothing(graph: Graph, inputs: Any, path: Path) -> None:
        graphs.append(graph)
        path.write_bytes(b"")

    monkeypatch.setattr("tokenfree.train.huggingface.onnx.write_graph", write_nothing)
    monkeypatch.setattr("tokenfree.train.huggingface.onnx.check_graph", lambda graph, path, length: 0)
    return graphs


@pytest.mark.usefixtures("_packages", "written")
def test_export_writes_the_card_of_a_finetuned_run(
    files: Mapping[str, str], corpus: str, tmp_path: Path
) -> None:
    run, folder = finetuned(tmp_path, "texts", "canine", files, corpus), tmp_path / "exported" / "out"
    assert cli.main(["export", str(run), "--to", "onnx", str(folder)]) == 0
    names = ["README.md", "config.json", "hashes.json", "model.onnx"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert [path.name for path in folder.parent.iterdir()] == ["out"]

    card: Any = ModelCard.load(folder / "README.md")
    assert (card.data.library_name, card.data.pipeline_tag) == ("onnx", "text-classification")
    assert "| labels | minus, plus |" in card.text
    result = json.loads((run / "result.json").read_text())
    assert f"| dev: accuracy, step {result['best_step']} | {result['dev']['accuracy']:.4f} |" in card.text
    assert str(tmp_path) not in card.text


@pytest.mark.usefixtures("_packages")
@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("pairs", "subwords"),
        ("questions", "character_bert"),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW),
    ],
)
def test_the_logits_are_those_of_load_finetuned(
    kind: str,
    model: str,
    files: Mapping[str, str],
    corpus: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tokenfree.train.huggingface.onnx.TOLERANCE", 2e-5)
    run = finetuned(tmp_path, kind, model, files, corpus)
    export_graph(run, tmp_path / "out")
    difference = largest_difference(run, tmp_path / "out", kind)
    print(f"{kind} {model}: {difference:.1e}")
    assert difference < 1e-5
    facts, task = json.loads((tmp_path / "out" / "config.json").read_text()), load_finetuned(run).task
    assert facts.get("labels", []) == list(getattr(task, "labels", ()))
    vocabulary = load_vocabulary(corpus)
    if model == "subwords" and vocabulary is not None:
        assert facts["vocabulary"] == vocabulary.sha256
        assert facts["special"]["sep"] == vocabulary.size + 1


def test_export_uses_the_best_checkpoint_though_a_later_one_is_there(
    files: Mapping[str, str], corpus: str, tmp_path: Path, written: list[Graph]
) -> None:
    run = finetuned(tmp_path, "texts", "canine", files, corpus)
    steps = [int(path.name.removeprefix("step_")) for path in (run / "checkpoints").iterdir()]
    assert len(steps) > 1
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(result | {"best_step": min(steps)}))
    (run / "hashes.json").unlink()
    export_graph(run, tmp_path / "out")
    at_best, (graph,) = Run(run).at(min(steps)).weights(), written
    assert torch.equal(
        graph.get_parameter("head.classifier.output.weight"), at_best["head.classifier.output.weight"]
    )
    assert f"| steps | {min(steps)} |" in (tmp_path / "out" / "README.md").read_text()


def test_pairs_that_are_read_apart_are_refused(
    files: Mapping[str, str], corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finetuned(tmp_path, "pairs", "canine", files, corpus, encode="apart")
    capsys.readouterr()
    assert cli.main(["export", str(run), "--to", "onnx", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pairs with these settings has a head that cannot be exported" in line
    assert not (tmp_path / "out").exists()


def test_heads_of_other_tasks_are_refused() -> None:
    made = recipe("questions", "canine")
    encoder, head = parts(made)
    head.__class__ = type("OwnHead", (type(head),), {})
    with pytest.raises(
        UserError, match=r"qa_squad with these settings has a head that cannot be exported\. class"
    ):
        TaskGraph(made.task, encoder, head)
