"""Runs as graphs of ONNX: onnxruntime gives our vectors, and what is refused."""

import contextlib
import io
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard

from tests.conftest import REPOSITORY
from tokenfree import load_encoder
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.preprocess.text.words import word_spans
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.huggingface.onnx import EncoderGraph, check_graph, example, export_graph, write_graph
from tokenfree.train.pretrain import pretrain
from tokenfree.workflows import cli
from tokenfree.workflows.recipes import library

MakeRecipe = Callable[..., PretrainRecipe]
SMALL_BLOCKS = {"downsampler": {"name": "strided_conv", "block": 24}}


@pytest.fixture(scope="module")
def run(corpus: str, make_recipe: MakeRecipe, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("run"))
    pretrain(make_recipe(model=SMALL_BLOCKS, steps=2), corpus, folder)
    return folder


@pytest.fixture(scope="module")
def _packages() -> None:
    for name in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(name, reason="needs the extra onnx")


@pytest.fixture(scope="module")
def exported(run: str, _packages: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run as a folder, and what the command printed."""
    folder, out = tmp_path_factory.mktemp("exported") / "out", io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main(["export", run, "--to", "onnx", str(folder)]) == 0
    return folder, out.getvalue()


def shown(folder: Path, texts: Sequence[str]) -> dict[str, Any]:
    """The names that the example of the docs computes of `texts` with the graph in `folder`."""
    page = (REPOSITORY / "docs" / "export.md").read_text(encoding="utf-8")
    found = re.search(r"## Run it with onnxruntime.*?```python\n(.*?)```", page, re.DOTALL)
    assert found
    code = found[1].replace("exported/graph", str(folder)).replace('["any text", "日本語"]', repr(texts))
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def test_the_example_of_the_docs_gives_the_vectors_of_load_encoder(
    run: str, exported: tuple[Path, str]
) -> None:
    folder, out = exported
    assert re.search(
        r"tracing the model .*\n  comparing onnxruntime .*\n  checked 16 inputs .*\n  step ", out
    )
    assert f"  files       README.md, config.json, hashes.json, model.onnx in {folder}\n" in out
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "config.json",
        "hashes.json",
        "model.onnx",
    ]
    assert [path.name for path in folder.parent.iterdir()] == ["out"]

    texts = ["any text", "日本語 \U0001f600", "a" * 20, "b" * 21, "c" * 22, "d" * 45, "e" * 56, ""]
    got, ours = shown(folder, texts), load_encoder(run)(texts)
    positions = ours.mask.shape[1]
    assert (torch.from_numpy(got["characters"])[:, :positions] - ours.characters)[
        ours.mask
    ].abs().max() < 1e-5
    outputs = got["session"].run(["mean", "cls_max", "cls"], got["inputs"])
    for one, other in zip(outputs, (ours.mean, ours.cls_max, ours.cls), strict=True):
        assert (torch.from_numpy(one) - other).abs().max() < 1e-5

    assert [tensor.name for tensor in got["session"].get_outputs()] == [
        "characters",
        "cls",
        "mean",
        "cls_max",
    ]
    assert [tensor.shape for tensor in got["session"].get_inputs()] == [["batch", "length"]] * 2
    assert got["facts"]["special"] == {"pad": 0, "cls": 0xE000, "sep": 0xE001, "mask": 0xE003}
    card = ModelCard.load(folder / "README.md")
    front: Any = card.data
    assert front.library_name == "onnx"
    assert str(folder.parent.parent) not in card.text


@pytest.mark.slow
@pytest.mark.usefixtures("_packages")
def test_words_have_the_vectors_of_load_encoder(
    corpus: str, make_recipe_for: MakeRecipe, tmp_path: Path
) -> None:
    import onnxruntime

    pretrain(make_recipe_for({"name": "byte2word"}, steps=1), corpus, str(tmp_path / "run"))
    export_graph(tmp_path / "run", tmp_path / "out")
    texts = ["any text, häß 日本語", "one", "日 本", ""]
    words = [
        [text.encode()[start:end] for start, end in zip(*word_spans(text), strict=True)] for text in texts
    ]
    rows = [[b"\x02", *row, b"\x03"] for row in words]  # CLS, words, SEP
    length, units = max(len(b"".join(row)) for row in rows), max(map(len, rows))
    joined = [list(b"".join(row)) for row in rows]
    ends = [np.cumsum([len(word) for word in row]).tolist() for row in rows]
    inputs = {
        "codepoints": np.array([row + [0] * (length - len(row)) for row in joined]),
        "mask": np.array([[place < len(row) for place in range(length)] for row in joined]),
        "unit_ends": np.array([row + row[-1:] * (units - len(row)) for row in ends]),
    }
    ours = load_encoder(tmp_path / "run")(texts)
    session: Any = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    names = ["words", "word_mask", "mean", "cls_max"]
    for name, found in zip(names, session.run(names, inputs), strict=True):
        assert np.abs(found.astype(np.float32) - getattr(ours, name).float().numpy()).max() < 1e-5, name


@pytest.mark.slow
@pytest.mark.usefixtures("_packages")
@pytest.mark.parametrize(
    "name",
    [
        "canine-c-ngrams-tiny",
        "canine-s-character-vocabulary-tiny",
        "canine-s-longformer-separate-tiny",
        "canine-s-rate-5-tiny",
        "char-bert-tiny",
        "bert-diet_abs_lin-tiny",
        "bert-diet_rel-tiny",
        "bert-shaw-tiny",
        "bert-tupe-tiny",
        "byte2word-cnn-tiny",
        "ms-transformer-tiny",
    ],
)
def test_graphs_of_all_kinds_of_parts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenfree.train.huggingface.onnx.TOLERANCE", 2e-5)
    recipe = build(PretrainRecipe, library.read_based(name), source=name)
    torch.manual_seed(0)
    graph = EncoderGraph(recipe.model.build(), pooled_is_trained=True)
    length = recipe.train.length
    write_graph(graph, example(graph, 3, length, np.random.default_rng(0)), tmp_path / "model.onnx")
    assert check_graph(graph, tmp_path / "model.onnx", length) > 10


def test_a_graph_that_is_another_is_not_exported(
    run: str, exported: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_other(graph: EncoderGraph, inputs: Any, path: Path) -> None:
        shutil.copy(exported[0] / "model.onnx", path)
        with torch.no_grad():
            graph.encoder.upsampler.final.norm.bias.add_(0.001)

    monkeypatch.setattr("tokenfree.train.huggingface.onnx.write_graph", write_other)
    with pytest.raises(
        UserError, match=r"the graph is not the model: \w+ of inputs of shape \[1, 1\] differs by"
    ):
        export_graph(run, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_packages_that_are_missing(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tokenfree.train.huggingface.onnx.NEEDED", ("onnx", "no_such_package"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["export", run, "--to", "onnx", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"not installed: onnx, no_such_package. Run pip install '{REPOSITORY}[onnx]'.")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_files_is_refused(
    run: str, exported: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", run, "--to", "onnx", str(exported[0])]) == 2
    assert "is there already; give a new or empty folder" in capsys.readouterr().err
