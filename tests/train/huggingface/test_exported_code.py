"""Exported folders where tokenfree is not installed: the same outputs, and no more code than a model needs."""

import contextlib
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.train.conftest import RECIPE
from tests.train.finetune.conftest import MODELS, TRAIN
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, merge
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.data.shards import load_data_vocabulary
from tokenfree.train.huggingface.exported_folder import (
    Model,
    folder_head,
    folder_model,
    with_head,
    write_folder,
)
from tokenfree.train.inference.text_encoder import TextEncoder, WordEncoder
from tokenfree.train.objectives.byte2word import Config as Byte2Word
from tokenfree.train.tasks.heads import PlaceHead, encode_all
from tokenfree.train.tasks.inputs import text_inputs
from tokenfree.workflows.api import Recipe
from tokenfree.workflows.recipes import library

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

TEXTS = ["any text, häß", "日本語 \U0001f600 HTMLParser", "a", "Python is a programming language"]
MAX_LINES = 1200
QUICK = ("canine-s-tiny", "byte2word-tiny", "bert-shaw-tiny", "ms-transformer-tiny")
CUSTOM = """
import torch
from tokenfree.core.settings import settings
from tokenfree.train.model.common.attention import OffsetBias
from tokenfree.train.model.common.slots import Positions, PositionsConfig

SCALE = 2.0


@settings
class Ramp(PositionsConfig):
    name: str = "my_parts.Ramp"
    slope: float = 0.1

    def build(self, dimensions, trunk):
        return RampPositions(self)


class RampPositions(Positions):
    def __init__(self, config):
        super().__init__()
        self.slope = config.slope

    def forward(self, units, valid):
        count = units.shape[1]
        offsets = torch.arange(1 - count, count, device=units.device).abs()
        return [OffsetBias(-SCALE * self.slope * offsets[None].float(), 1)]

    def multiply_accumulates(self, num_units, pairs):
        return 0
"""
TASKS = {
    "classification": ({"name": "classification", "labels": ["a", "b"]}, "SequenceClassification"),
    "tagging": ({"name": "tagging", "labels": ["ADJ", "NOUN"], "scheme": "words"}, "TokenClassification"),
    "questions": (
        {"name": "qa_squad", "max_question": 20, "stride": 16, "max_answer": 10},
        "QuestionAnswering",
    ),
}
# Reads pairs of a folder and the suffix of a class from its arguments.
SCRIPT = """
import sys
sys.modules["tokenfree"] = None
sys.path.append(sys.argv[1])
import os, torch, transformers
transformers.dynamic_module_utils.HF_MODULES_CACHE = sys.argv[2]
sys.path.append(sys.argv[2])
texts = eval(sys.argv[3])
for folder, suffix in zip(sys.argv[4::2], sys.argv[5::2]):
    auto = getattr(transformers, "AutoModel" + suffix)
    model = auto.from_pretrained(folder, trust_remote_code=True).eval()
    inputs = {"input_ids": torch.arange(5, 45).reshape(4, 10)}
    if os.path.exists(folder + "/tokenizer_config.json"):  # of subwords, there is none without data
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        inputs = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        torch.save(dict(model(**inputs)), folder + "/outputs.pt")
"""


def outputs_without_tokenfree(folders: dict[Path, str], cache: Path) -> list[dict[str, torch.Tensor]]:
    """Return the outputs of `TEXTS` by models in a Python that has transformers, but not tokenfree."""
    arguments = [sysconfig.get_path("purelib"), str(cache), repr(TEXTS)]
    arguments += [argument for folder, suffix in folders.items() for argument in (str(folder), suffix)]
    subprocess.run([sys.executable, "-I", "-S", "-c", SCRIPT, *arguments], check=True)
    return [torch.load(folder / "outputs.pt") for folder in folders]


def write(folder: Path, recipe: Any, vocabulary: Vocabulary | None, task_head: Any = None) -> TextEncoder:
    """Write the folder of a model with large random weights."""
    torch.manual_seed(0)
    encoder = recipe.model.build()
    with torch.no_grad():
        for weight in encoder.parameters():
            weight += 0.02 * torch.randn_like(weight)
    objective: Any = None if task_head is not None else recipe.objective
    gives_words = isinstance(objective, Byte2Word)
    reader = (WordEncoder if gives_words else TextEncoder)(encoder, length=recipe.train.length)
    checkpoint: Any = SimpleNamespace(state=SimpleNamespace(vocabulary="0"))
    config: Any = SimpleNamespace(recipe=recipe)
    model = Model("", config, checkpoint, reader, vocabulary, None if task_head is None else recipe.task)
    folder.mkdir()
    if task_head is None:
        size = 0 if vocabulary is None else vocabulary.size
        head = objective.build(recipe.model.width, size)
        state, fields = folder_model(model, {})
        state |= {f"lm_head.{name}": weight.detach() for name, weight in head.state_dict().items()}
    else:
        description = folder_head(recipe.task, task_head)
        state, fields = folder_model(model, {"head": description.own}, has_port=description.has_port)
        state, fields = with_head(state, fields, description, task_head)
    write_folder(
        folder,
        state,
        fields,
        reader,
        "",
        vocabulary,
        objective,
        None if task_head is None else (recipe.task, task_head),
    )
    return reader


def num_lines(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.glob("*.py"))


@torch.no_grad()
def check_recipes(names: Sequence[str], corpus: str, tmp_path: Path) -> None:
    vocabulary = load_data_vocabulary(corpus)
    recipes = {name: Recipe.from_name(name) for name in names}
    readers = {
        tmp_path / name: write(tmp_path / name, recipe, vocabulary) for name, recipe in recipes.items()
    }
    results = outputs_without_tokenfree(dict.fromkeys(readers, ""), tmp_path / "cache")
    for (folder, reader), result in zip(readers.items(), results, strict=True):
        check_code(folder)
        config = reader.encoder.config
        inputs = text_inputs(config, reader.length, vocabulary)
        arrays = inputs.arrays([[inputs.encode(text)] for text in TEXTS])
        batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
        vectors, pooled = encode_all(reader.encoder, batch)
        assert (pooled - result["pooler_output"]).abs().max() < 1e-5
        assert (vectors[:, 0] - result["last_hidden_state"][:, 0]).abs().max() < 1e-5
        if config.embedder.symbols == "characters":
            assert (reader(TEXTS).mean - result["mean"]).abs().max() < 1e-5


def check_code(folder: Path) -> None:
    codes = [path.read_text() for path in folder.glob("*.py")]
    assert sum(len(code.splitlines()) for code in codes) <= MAX_LINES
    for code in codes:
        assert "import tokenfree" not in code
        assert "from tokenfree" not in code
        assert "# SPDX-License-Identifier: Apache-2.0" in code


def test_models_open_without_tokenfree(corpus: str, tmp_path: Path) -> None:
    check_recipes(QUICK, corpus, tmp_path)


@pytest.mark.slow
def test_all_tiny_models_open_without_tokenfree(corpus: str, tmp_path: Path) -> None:
    names = list[str]()
    for name in library.names():
        with contextlib.suppress(UserError):
            recipe = Recipe.from_name(name)
            # Other words are subwords, which no tokenizer of transformers gives.
            words = getattr(recipe.objective, "words", "rules")
            names += [name] if name.endswith("-tiny") and words == "rules" else []
    assert len(names) > 50
    check_recipes(names, corpus, tmp_path)


@pytest.mark.parametrize("model", ["canine", "words", "multi_scale"])
def test_heads_open_without_tokenfree(model: str, corpus: str, tmp_path: Path) -> None:
    folders, models = dict[Path, str](), list[Any]()
    for name, (task, suffix) in TASKS.items():
        mapping = {"model": merge(RECIPE["model"], MODELS[model]), "task": task, "train": TRAIN}
        recipe = build(FinetuneRecipe, mapping, source="test")
        head = recipe.task.build(recipe.model).eval()
        reader = write(tmp_path / name, recipe, None, head)
        models.append((reader.encoder, head, text_inputs(recipe.model, recipe.train.length, None)))
        folders[tmp_path / name] = f"For{suffix}"
    results = outputs_without_tokenfree(folders, tmp_path / "cache")
    for folder, result in zip(folders, results, strict=True):
        check_code(folder)
        encoder, head, inputs = models.pop(0)
        if isinstance(head, PlaceHead):
            # Below, because it reads whole words.
            continue
        arrays = inputs.arrays([[inputs.encode(text)] for text in TEXTS])
        batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
        with torch.no_grad():
            expected = next(iter(head.outputs(encoder, batch).values()))
        actual = result["logits"] if "logits" in result else result["start_logits"][:, 0]
        # The vector of CLS has the same place in all kinds of inputs.
        expected = expected if "logits" in result else expected[:, 0]
        assert (actual - expected).abs().max() < 1e-5


BIO = {"name": "tagging", "labels": ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]}
SENTENCES = ["Zoë met 東京 Tower, 😀 Bob's.", "A b", "  San  Francisco ", "word " * 22 + "word"]


def expected_tags(prediction: dict[str, Any], text: str) -> list[str]:
    """Return the tag of each character by the spans of a prediction."""
    tags = ["O"] * len(text)
    for span in prediction["spans"]:
        label, start, end = span["label"], span["start"], span["end"]
        tags[start:end] = [f"B-{label}"] + [f"I-{label}"] * (end - start - 1)
    return tags


@pytest.mark.parametrize(
    ("model", "task"),
    [
        ("canine", {}),
        ("canine", {"decoder": "crf"}),
        ("words", {"decoder": "crf"}),
        ("canine", {"targets": "word"}),
        ("multi_scale", {"targets": "all"}),
    ],
)
def test_argmax_gives_the_tags_of_predict(
    model: str, task: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "cache"))
    mapping = {"model": merge(RECIPE["model"], MODELS[model]), "task": {**BIO, **task}, "train": TRAIN}
    recipe: Any = build(FinetuneRecipe, mapping, source="test")
    torch.manual_seed(2)
    head = recipe.task.build(recipe.model).eval()
    with torch.no_grad():
        for weight in head.parameters():
            weight += 0.5 * torch.randn_like(weight)
    encoder = write(tmp_path / "out", recipe, None, head).encoder
    check_code(tmp_path / "out")
    collator = recipe.task.collator(text_inputs(recipe.model, recipe.train.length, None), 0)
    examples = [recipe.task.raw("", text) for text in SENTENCES]
    items = collator.items(examples, training=False)
    outputs = list[dict[str, np.ndarray]]()
    with torch.no_grad():
        for item in items:
            arrays = collator([item], np.zeros(1, dtype=np.int64))
            batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
            outputs.append({name: values[0].numpy() for name, values in head.outputs(encoder, batch).items()})
    predictions = recipe.task.predictions(examples, items, outputs)
    auto = transformers.AutoModelForTokenClassification
    exported = auto.from_pretrained(tmp_path / "out", trust_remote_code=True).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", trust_remote_code=True)
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        tags = exported(**inputs).logits.argmax(dim=-1)
    names = set[str]()
    for text, row, prediction in zip(SENTENCES, tags, predictions, strict=True):
        actual = [recipe.task.labels[tag] for tag in row[1 : len(text) + 1]]
        assert actual == expected_tags(prediction, text)
        names |= set(actual)
    assert len(names) > 2
    labels = torch.full_like(inputs["input_ids"], -100)
    labels[:, 1] = 0
    exported.train()(**inputs, labels=labels).loss.backward()
    assert exported.head.classifier.output.weight.grad.abs().sum() > 0


def test_custom_parts_come_along(corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_parts.py").write_text(CUSTOM)
    monkeypatch.chdir(tmp_path)
    recipe = Recipe.from_name(
        "canine-s-tiny",
        trust_code=True,
        model={"trunk": {"positions": {"name": "my_parts.Ramp", "slope": 0.3}}},
    )
    reader = write(tmp_path / "out", recipe, None)
    (result,) = outputs_without_tokenfree({tmp_path / "out": ""}, tmp_path / "cache")
    check_code(tmp_path / "out")
    assert (reader(TEXTS).mean - result["mean"]).abs().max() < 1e-5
