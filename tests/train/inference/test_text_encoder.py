import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tokenfree
from tests.conftest import REPOSITORY
from tokenfree import load_encoder, load_windows
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.evaluate import evaluate
from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.pretrain import PretrainResult, pretrain

MakeRecipe = Callable[..., PretrainRecipe]


@pytest.fixture(scope="module")
def result(corpus: str, make_recipe: MakeRecipe, tmp_path_factory: pytest.TempPathFactory) -> PretrainResult:
    return pretrain(make_recipe(), corpus, str(tmp_path_factory.mktemp("run")))


def test_vectors_of_texts(result: PretrainResult) -> None:
    out = load_encoder(result.run)(["any text", "日本語"])
    assert out.characters.shape == (2, 10, 16)
    assert out.mask.tolist() == [[True] * 10, [True] * 5 + [False] * 5]
    assert out.pooled.shape == (2, 16)
    assert not out.pooled.requires_grad


def test_vectors_of_whole_texts(result: PretrainResult) -> None:
    encoder = load_encoder(result.run)
    out = encoder(["any text", "日本語", ""])
    assert out.mean.shape == out.cls.shape == (3, 16)
    assert out.cls_max.shape == (3, 32)
    for row, size in ((0, 8), (1, 3)):
        torch.testing.assert_close(out.mean[row], out.characters[row, 1 : size + 1].mean(dim=0))
        largest = out.characters[row, : size + 1].amax(dim=0)  # with CLS, without SEP
        torch.testing.assert_close(out.cls_max[row], torch.cat([out.cls[row], largest]))
    torch.testing.assert_close(out.mean[2], out.characters[2, 0])
    pooler = encoder.encoder.pooler
    torch.testing.assert_close(out.pooled, torch.tanh(pooler(out.cls)))
    alone = encoder(["日本語"])
    torch.testing.assert_close(out.cls_max[1], alone.cls_max[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pairs", [False, True])
def test_the_pooled_vector_is_trained_by_pairs_alone(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, pairs: bool
) -> None:
    recipe = make_recipe(objective={"next_sentence": pairs}, steps=2)
    fresh, run = recipe.model.build(), pretrain(recipe, corpus, str(tmp_path / "run")).run
    encoder = load_encoder(run)
    assert encoder(["a"]).pooled_is_trained == encoder.pooled_is_trained == pairs
    assert encoder.encoder.pooler.bias.any().item() == pairs  # biases begin at zero
    assert not fresh.pooler.bias.any()


def test_a_text_does_not_depend_on_its_neighbours(result: PretrainResult) -> None:
    encoder = load_encoder(result.run)
    together, alone = encoder(["short", "x" * encoder.max_characters]), encoder(["short"])
    torch.testing.assert_close(together.characters[0, :7], alone.characters[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together.pooled[0], alone.pooled[0], rtol=1e-4, atol=1e-5)


def test_a_rate_that_does_not_divide_the_length() -> None:
    """Texts of any length up to the longest are padded so that more padding would change nothing."""
    torch.manual_seed(0)
    model = {
        "width": 16,
        "embedder": {"buckets": 64, "max_characters": 80},
        "trunk": {"layers": 1, "heads": 2},
    }
    module = build(ModelConfig, {**model, "downsampler": {"rate": 5}}, source="test").build()
    encoder = TextEncoder(module, length=63)
    assert encoder.max_characters == 60 - 2 - 7
    roomier = TextEncoder(module, length=80)
    for size in (1, 14, 15, 16, encoder.max_characters):
        text, filler = "abcdefghij"[:size] * (size // 10 + 1), "x" * encoder.max_characters
        one, other = encoder([text[:size]]), roomier([text[:size], filler])
        torch.testing.assert_close(other.characters[0, : size + 2], one.characters[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(other.pooled[0], one.pooled[0], rtol=1e-4, atol=1e-5)


def test_texts_that_cannot_be_read(result: PretrainResult) -> None:
    encoder = load_encoder(result.run)
    with pytest.raises(
        UserError, match=f"text 1 has 99 characters and this model reads {encoder.max_characters}"
    ):
        encoder(["a", "b" * 99])
    nothing: Any
    for nothing in ([], "one text", 3):
        with pytest.raises(UserError, match="list of at least one text"):
            encoder(nothing)
    with pytest.raises(TypeError, match=r"texts\[1\]: should be a str, not int"):
        encoder(["a", nothing])
    assert encoder([""]).characters.shape == (1, 2, 16)


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run"):
        load_encoder(tmp_path)


def test_evaluation_repeats_the_validation(result: PretrainResult, corpus: str) -> None:
    found = evaluate(result.run, corpus)
    assert found["step"] == 8
    for name in ("validation_loss", "validation_accuracy", "validation_targets"):
        assert found[name] == dataclasses.asdict(result)[name]
    assert {name: found[f"baseline_{name}"] for name in result.baselines} == result.baselines
    assert found["validation_masked_only_loss"] == result.validation_means["validation_masked_only_loss"]
    assert evaluate(result.run, corpus, num_windows=2)["validation_targets"] < found["validation_targets"]


@pytest.fixture
def copy_of_run(result: PretrainResult, tmp_path: Path) -> Path:
    return Path(shutil.copytree(result.run, tmp_path / "copy"))


def test_evaluation_wants_the_same_vocabulary(copy_of_run: Path, corpus: str) -> None:
    folder = copy_of_run / "checkpoints" / "step_00000008"
    state = (folder / "state.json").read_text()
    (folder / "state.json").write_text(json.dumps({**json.loads(state), "vocabulary": "0" * 64}))
    (folder / "COMMIT").write_text(hashlib.sha256((folder / "state.json").read_bytes()).hexdigest() + "\n")
    with pytest.raises(UserError, match="another vocabulary than the data of"):
        evaluate(str(copy_of_run), corpus)


def test_no_sound_checkpoint(copy_of_run: Path, corpus: str) -> None:
    for mark in copy_of_run.rglob("COMMIT"):
        mark.unlink()
    with pytest.raises(JobError, match=r"step_00000008 is damaged.*Its steps: 3, 6"):
        evaluate(str(copy_of_run), corpus)
    (copy_of_run / "result.json").unlink()
    with pytest.raises(JobError, match=r"no sound checkpoint.*step_00000003 is damaged"):
        load_encoder(copy_of_run)


def test_the_package_is_light() -> None:
    code = "import sys, tokenfree; print(sorted({'torch', 'ray', 'pyarrow'} & set(sys.modules)))"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    assert process.stdout == "[]\n"


def test_what_the_package_offers(corpus: str) -> None:
    window = next(iter(load_windows(corpus)))
    assert window["language"] == "en"
    with pytest.raises(AttributeError, match="load_everything"):
        _ = tokenfree.load_everything
