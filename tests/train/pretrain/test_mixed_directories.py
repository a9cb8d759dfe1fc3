"""A run on several data directories: killed, resumed, evaluated, used."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.train.conftest import MakeRecipe
from tests.train.fork_server import fork
from tests.train.ray.test_driver import KillsAWorker
from tests.train.test_pretrain import history, wait_for_step
from tokenfree import load_encoder
from tokenfree.core.errors import UserError
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.data.mixture import Mixture
from tokenfree.train.evaluate import evaluate
from tokenfree.train.inference.predictor import load_predictor
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs.config import read_config
from tokenfree.workflows import cli

COMMAND = """
import json, sys
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain

mapping, words, run = json.loads(sys.argv[1])
pretrain(build(PretrainRecipe, mapping, source="test"), words, run)
"""


@pytest.fixture
def words(corpus: str, other_corpus: str) -> list[str]:
    return [f"{corpus}:0.7", f"{other_corpus}:0.3"]


def test_a_killed_run_goes_on_as_if_nothing_had_been(
    words: list[str], corpus: str, other_corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    recipe = make_recipe(steps=40, validate_every_steps=20)
    whole = pretrain(recipe, words, str(tmp_path / "whole"))
    run = tmp_path / "killed"
    argument = json.dumps([to_mapping(recipe), words, str(run)])
    process = fork(COMMAND, argument)
    wait_for_step(run, 8, process)
    process.kill()
    process.wait()
    resumed = pretrain(recipe, Mixture((corpus, other_corpus), (7, 3)), str(run))
    assert history(run) == history(tmp_path / "whole")
    assert resumed.validation_loss == whole.validation_loss

    last = history(run)[-1]
    each = [last["validation_loss_data_1"], last["validation_loss_data_2"]]
    assert min(each) < last["validation_loss"] < max(each)
    assert read_config(run).data == Mixture((corpus, other_corpus), (7.0, 3.0))
    with pytest.raises(UserError, match=f"the data differ from those of {corpus}:7.0 {other_corpus}:3.0"):
        pretrain(recipe, [f"{corpus}:0.6", f"{other_corpus}:0.4"], str(run))
    with pytest.raises(UserError, match="the data differ"):
        pretrain(recipe, corpus, str(run))

    found = evaluate(str(run), words)
    assert found["validation_loss"] == pytest.approx(last["validation_loss"])
    assert found["validation_loss_data_2"] == pytest.approx(each[1])
    assert evaluate(str(run), other_corpus)["validation_targets"] > 0
    assert load_predictor(run)("the [MASK] of a string", 2)
    assert load_encoder(run)(["any text"]).pooled.shape == (1, 16)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_workers_take_the_same_samples_and_one_that_is_killed_changes_nothing(
    words: list[str], make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    options: Any = {"steps": 400, "micro_batch": 2, "checkpoint_every_steps": 20, "validate_every_steps": 20}
    recipe, one, quiet, run = (
        make_recipe(**options),
        tmp_path / "one",
        tmp_path / "quiet",
        tmp_path / "killed",
    )
    pretrain(recipe, words, str(one))
    pretrain(recipe, words, str(quiet), workers=(2, 2))
    killed = pretrain(recipe, words, str(run), workers=(2, 2), progress=KillsAWorker(step=50))
    assert killed.restarts == 1
    assert history(run) == history(quiet)
    for name in ("loss", "validation_loss", "validation_loss_data_1", "validation_loss_data_2"):
        lines = [[line for line in history(of) if line["step"] <= 20] for of in (quiet, one)]
        both, alone = ([line[name] for line in each if name in line] for each in lines)
        assert both
        assert both == pytest.approx(alone, rel=1e-4)  # later, rounding in another order has grown


def test_the_command_says_shares_and_losses_of_each(
    words: list[str], corpus: str, other_corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["pretrain", "canine-s-tiny", "--data", *words, "--output", str(tmp_path / "run")]
    small: dict[str, Any] = {
        "steps": 2,
        "global_batch": 4,
        "length": 64,
        "validation_windows": 8,
        "threads": 1,
    }
    keys = [word for key, value in small.items() for word in (f"--train.{key}", str(value))]
    assert cli.main([*command, *keys, "--dry-run"]) == 0
    assert f"fits the data {' '.join(words)} and " in capsys.readouterr().out
    assert cli.main([*command, *keys]) == 0
    out = capsys.readouterr().out
    assert f"held-out loss of each: {corpus} " in out
    assert f"evaluate {tmp_path}/run --data {words[0]} {words[1]}" in out
    assert cli.main(["report", str(tmp_path / "run"), "--output", str(tmp_path / "report.html")]) == 0
    assert "example predictions" in (tmp_path / "report.html").read_text()
    assert "its data are not in" not in (tmp_path / "report.html").read_text()


def test_a_sweep_and_a_plan_take_the_same_words(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [
        "--overrides.train.length",
        "64",
        "--overrides.train.global_batch",
        "4",
        "--overrides.train.validation_windows",
        "8",
    ]
    command = [
        "sweep",
        "three-knobs-tiny",
        "--data",
        *words,
        "--output",
        str(tmp_path / "sweep"),
        "--trials",
        "2",
    ]
    assert cli.main([*command, *small, "--dry-run"]) == 0
    assert cli.main(["plan", "canine-s-tiny", "--gpus", "1", "--data", *words, "--json"]) == 0
    assert f"256 examples of {' '.join(words)}" in capsys.readouterr().out


def test_the_option_for_data_may_be_repeated(words: list[str], tmp_path: Path, capsys: Any) -> None:
    told = []
    for data in (["--data", *words], ["--data", words[0], "--data", words[1]]):
        command = ["pretrain", "canine-s-tiny", *data, "--output", str(tmp_path / "run"), "--dry-run"]
        assert cli.main(command) == 0
        told.append(capsys.readouterr().out.splitlines()[0])
    assert told[0] == told[1]
    assert told[0].startswith("recipe canine-s-tiny: fits the data ")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([":0.7", ":0"], "the weight must be a number above 0, such as "),
        ([":0.7", ""], "has no weight; "),
    ],
)
@pytest.mark.parametrize("name", ["pretrain", "sweep", "evaluate", "plan"])
def test_wrong_weights_are_one_line(
    name: str, given: list[str], said: str, corpus: str, other_corpus: str, tmp_path: Path, capsys: Any
) -> None:
    words = [f"{path}{weight}" for path, weight in zip((corpus, other_corpus), given, strict=True)]
    more = {
        "pretrain": ["--output", "r"],
        "sweep": ["--output", "r"],
        "plan": ["--gpus", "1"],
        "evaluate": [],
    }[name]
    subject = {"sweep": "three-knobs-tiny", "evaluate": str(tmp_path)}.get(name, "canine-s-tiny")
    if name == "evaluate":
        (tmp_path / "config.yaml").write_text("format: 1\nrecipe: {}\ndata: a\nmanifest: b\n")
    assert cli.main([name, subject, "--data", *words, *more]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1
