import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import train
from preprocess.errors import UserError
from train import load_encoder, load_windows
from train.config import PretrainRecipe
from train.evaluate import evaluate
from train.pretrain import PretrainResult, pretrain

MakeRecipe = Callable[..., PretrainRecipe]
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def result(corpus: str, make_recipe: MakeRecipe, tmp_path_factory: pytest.TempPathFactory) -> PretrainResult:
    return pretrain(make_recipe(), corpus, str(tmp_path_factory.mktemp("run")))


def test_vectors_of_texts(result: PretrainResult) -> None:
    out = load_encoder(result.run)(["any text", "日本語"])
    assert out.characters.shape == (2, 10, 16)
    assert out.mask.tolist() == [[True] * 10, [True] * 5 + [False] * 5]
    assert out.pooled.shape == (2, 16)
    assert not out.pooled.requires_grad


def test_a_text_does_not_depend_on_its_neighbours(result: PretrainResult) -> None:
    encoder = load_encoder(result.run)
    together, alone = encoder(["short", "x" * encoder.max_characters]), encoder(["short"])
    torch.testing.assert_close(together.characters[0, :7], alone.characters[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together.pooled[0], alone.pooled[0], rtol=1e-4, atol=1e-5)


def test_texts_that_cannot_be_read(result: PretrainResult) -> None:
    encoder = load_encoder(result.run)
    with pytest.raises(UserError, match=f"text 1 has 99 characters and this model reads {encoder.max_characters}"):
        encoder(["a", "b" * 99])
    for nothing in ([], "one text"):
        with pytest.raises(UserError, match="list of at least one text"):
            encoder(nothing)
    assert encoder([""]).characters.shape == (1, 2, 16)


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run"):
        load_encoder(tmp_path)


def test_evaluation_repeats_the_validation(result: PretrainResult, corpus: str) -> None:
    found = evaluate(result.run, corpus)
    assert found["step"] == 8
    for name in ("validation_loss", "validation_accuracy", "validation_targets", "unigram_entropy"):
        assert found[name] == dataclasses.asdict(result)[name]
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
    with pytest.raises(UserError, match=r"no sound checkpoint.*step_00000003 is damaged"):
        evaluate(str(copy_of_run), corpus)
    with pytest.raises(UserError, match="no sound checkpoint"):
        load_encoder(copy_of_run)


def test_the_package_is_light() -> None:
    code = "import sys, train; print(sorted({'torch', 'ray', 'pyarrow'} & set(sys.modules)))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert process.stdout == "[]\n"


def test_what_the_package_offers(corpus: str) -> None:
    window = next(iter(load_windows(corpus)))
    assert window["language"] == "en"
    with pytest.raises(AttributeError, match="load_everything"):
        _ = train.load_everything
