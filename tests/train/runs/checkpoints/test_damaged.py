"""Commands that read a run whose last checkpoint is damaged: no other one takes its place unasked."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.train.conftest import RECIPE
from tokenfree import load_encoder, load_predictor
from tokenfree.core.errors import JobError
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain
from tokenfree.workflows import cli

COMMANDS = {
    "embed": ["embed", "RUN", "texts", "--output", "out"],
    "evaluate": ["evaluate", "RUN", "--data", "DATA", "--json"],
    "predict": ["predict", "RUN", "a [MASK] b", "--json"],
    "analyze": ["analyze", "attention", "RUN", "--data", "texts", "--json", "--output", "out.json"],
    "export": ["export", "RUN", "--to", "huggingface", "out"],
    "report": ["report", "RUN", "--output", "out.html"],
}


@pytest.fixture(scope="module")
def run(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A finished run with checkpoints after steps 3, 6 and 8."""
    folder = str(tmp_path_factory.mktemp("whole") / "run")
    pretrain(
        build(PretrainRecipe, {**RECIPE, "objective": {"name": "canine_s"}}, source="test"), corpus, folder
    )
    return folder


@pytest.fixture
def damaged(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its copy, with a flipped bit in the last checkpoint; the working directory."""
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    weights = copy / "checkpoints" / "step_00000008" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    monkeypatch.chdir(tmp_path)
    Path("texts").write_text("Some words.\nAnd a few more.\n")
    return copy


def words(command: Sequence[str], data: str) -> list[str]:
    return [{"RUN": "run", "DATA": data}.get(word, word) for word in command]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_damaged_last_checkpoint_is_named_and_never_replaced_unasked(
    name: str,
    damaged: Path,
    corpus: str,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    command = words(COMMANDS[name], corpus)
    assert cli.main(command) == 1
    said = capsys.readouterr()
    assert "step_00000008 is damaged: model.safetensors does not match" in said.err
    assert "Its steps: 3, 6." in said.err
    assert said.err.count("\n") == 1
    assert not list(Path().glob("out*"))

    assert cli.main([*command, "--step", "3"]) == 0
    assert recorded(name, capsys.readouterr()) == {"step": 3}
    for made in Path().glob("out*"):
        shutil.rmtree(made) if made.is_dir() else made.unlink()

    (damaged / "result.json").unlink()  # as of a run that is still trained
    assert cli.main(command) == 0
    found = recorded(name, capsys.readouterr())
    assert found["step"] == 6
    assert "step_00000008 is damaged" in "".join(found.get("damaged", ["step_00000008 is damaged"]))
    assert "step_00000008 is damaged" in caplog.text


def recorded(name: str, said: Any) -> dict[str, Any]:
    """What a command says of the checkpoint, in its output or in what it has written."""
    if name in ("evaluate", "predict", "analyze"):
        found = json.loads(said.out)
        if name == "analyze":
            assert json.loads(Path("out.json").read_text()) == found
    elif name == "embed":
        found = json.loads(Path("out/vectors.json").read_text())
        assert f"step        {found['step']}" in said.out
    elif name == "export":
        step = int(said.out.split("  step        ")[1].split()[0])
        assert f"| steps | {step} |" in Path("out/README.md").read_text()
        found = {"step": step}
    else:
        (step,) = (each for each in (3, 6) if f"Step {each}: " in Path("out.html").read_text())
        found = {"step": step}
    return {key: found[key] for key in ("step", "damaged") if key in found}


@pytest.mark.parametrize("load", [load_encoder, load_predictor])
def test_the_same_rule_from_python(load: Any, damaged: Path) -> None:
    with pytest.raises(JobError, match="step_00000008 is damaged"):
        load("run")
    assert load("run", step=6).checkpoint.record() == {"step": 6}
