"""Whole runs in one process: finished, killed, damaged, repeated."""

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import pytest
import torch

from tests.conftest import read_json_lines
from tests.train.fork_server import Forked, fork
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import lock
from tokenfree.core.machine import cores
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.config import read_config
from tokenfree.train.runs.hashes import verify_folder

MakeRecipe = Callable[..., PretrainRecipe]
COMMAND = """
import json, sys
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain

mapping, data, run = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
pretrain(build(PretrainRecipe, mapping, source="test"), data, run)
"""


def history(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what the clock says."""
    lines = read_json_lines(run / "metrics.jsonl")
    clock = ("seconds", "data_wait", "utilisation")
    return [{name: value for name, value in line.items() if name not in clock} for line in lines]


def events(run: Path) -> list[str]:
    return [line["event"] for line in read_json_lines(run / "events.jsonl")]


def start(recipe: PretrainRecipe, corpus: str, run: Path, stderr: IO[str] | None = None) -> Forked:
    return fork(COMMAND, json.dumps(to_mapping(recipe)), corpus, str(run), stderr=stderr)


def wait_for_step(run: Path, step: int, process: Forked) -> None:
    path = run / "metrics.jsonl"
    until = time.monotonic() + 200  # a busy machine takes a minute to start a process
    while not path.exists() or path.read_bytes().count(b"\n") < step:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.005)


def test_a_whole_run(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    run = tmp_path / "run"
    lines: list[Any] = []
    recipe = make_recipe()
    result = pretrain(recipe, corpus, str(run), progress=lines.append)

    assert [line["step"] for line in history(run) if "loss" in line] == list(range(1, 9))
    assert [line["step"] for line in history(run) if "validation_loss" in line] == [4, 8]
    assert lines == sorted(
        read_json_lines(run / "metrics.jsonl") + read_json_lines(run / "events.jsonl"), key=lines.index
    )
    assert checkpoints.steps(run / "checkpoints") == [3, 6, 8]
    assert result.checkpoint == str(run / "checkpoints" / "step_00000008")
    assert (result.steps, result.restarts, result.already_complete) == (8, 0, False)
    assert result.loss == history(run)[-2]["loss"]
    assert result.validation_loss == history(run)[-1]["validation_loss"]
    assert result.unigram_entropy is not None
    assert result.characters == sum(line.get("characters", 0) for line in history(run))
    verified = verify_folder(str(run))
    assert (verified.complete, len(verified.checkpoints), verified.unhashed) == (True, 3, ())
    assert not (run / "_tmp").exists()
    assert (run / "tensorboard").is_dir()
    config = read_config(run)
    assert (config.recipe, config.data) == (recipe, corpus)


def test_losses_and_events_are_logged(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tokenfree")
    result = pretrain(make_recipe(steps=2), corpus, str(tmp_path / "run"))
    first, loss, *_, validation, last = [record.getMessage() for record in caplog.records]
    assert (first, last) == ("step 0: start", "step 2: complete")
    assert loss.startswith("step 1: loss ")
    assert validation == f"step 2: held-out loss {result.validation_loss:.3f}"


def test_a_notebook_shows_a_bar(
    corpus: str,
    make_recipe: MakeRecipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pretrain(make_recipe(steps=2), corpus, str(tmp_path / "script"))
    assert not capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    result = pretrain(make_recipe(steps=2), corpus, str(tmp_path / "notebook"))
    last = capsys.readouterr().err.rpartition("\r")[2]
    assert "| 2/2 [" in last
    assert f"loss={result.loss:.3f}" in last


def test_a_complete_run_stays_as_it_is(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    first = pretrain(make_recipe(), corpus, str(tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    again = pretrain(make_recipe(), corpus, str(tmp_path), progress=lambda line: pytest.fail(str(line)))
    assert again.already_complete
    assert again.validation_loss == first.validation_loss
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.fixture(scope="module")
def undisturbed(corpus: str, make_recipe: MakeRecipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 120 steps."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    pretrain(make_recipe(steps=120, checkpoint_every_steps=7, validate_every_steps=10), corpus, str(run))
    return run


# Before the first checkpoint, and after some.
@pytest.mark.parametrize("at", [1, 40, pytest.param(90, marks=pytest.mark.slow)])
def test_killed_at_a_random_moment(undisturbed: Path, corpus: str, tmp_path: Path, at: int) -> None:
    recipe = read_config(undisturbed).recipe
    run = tmp_path / "killed"
    process = start(recipe, corpus, run)
    wait_for_step(run, at, process)
    process.kill()
    process.wait()
    assert len(read_json_lines(run / "metrics.jsonl")) < 132

    result = pretrain(recipe, corpus, str(run))
    assert history(run) == history(undisturbed)
    assert result.restarts == 1
    assert result.characters == sum(line.get("characters", 0) for line in history(run))


def test_sigterm_saves_first(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = make_recipe(steps=2000, checkpoint_every_steps=10_000, validate_every_steps=2000)
    with tempfile.TemporaryFile("w+") as stderr:
        process = start(recipe, corpus, tmp_path, stderr)
        wait_for_step(tmp_path, 5, process)
        process.send_signal(signal.SIGTERM)
        process.wait()
        stderr.seek(0)
        message = stderr.read()
    (step,) = checkpoints.steps(tmp_path / "checkpoints")
    assert f"stopped by SIGTERM after step {step}; the same command resumes it" in message
    assert history(tmp_path)[-1]["step"] == step >= 5


def test_a_damaged_checkpoint_is_named(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    for folder in (undisturbed, run):
        pretrain(make_recipe(), corpus, str(folder))
    (run / "result.json").unlink()
    newest = run / "checkpoints" / checkpoints.checkpoint_name(8) / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"\x00")

    messages: list[str] = []
    pretrain(make_recipe(), corpus, str(run), progress=lambda line: messages.append(line.get("message", "")))
    assert f"{run / 'checkpoints' / checkpoints.checkpoint_name(8)} is damaged" in messages[0]
    assert "step 6 of 8" in messages[1]
    assert events(run) == ["start", "complete", "damaged_checkpoint", "resume", "complete"]
    assert history(run) == history(undisturbed)


def test_killed_between_the_last_checkpoint_and_the_result(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    first = pretrain(make_recipe(), corpus, str(tmp_path))
    before = history(tmp_path)
    (tmp_path / "result.json").unlink()
    again = pretrain(make_recipe(), corpus, str(tmp_path))
    assert (again.validation_loss, again.loss, again.seconds) == (
        first.validation_loss,
        first.loss,
        first.seconds,
    )
    assert history(tmp_path) == before


def test_other_settings_under_the_same_run(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    pretrain(make_recipe(), corpus, str(tmp_path))
    with pytest.raises(UserError) as caught:
        pretrain(make_recipe(seed=1, steps=16, model={"width": 32}), corpus, str(tmp_path))
    for part in (
        "model.width is 32, was 16",
        "train.seed is 1, was 0",
        "train.steps is 16, was 8",
        "--output",
    ):
        assert part in str(caught.value)
    assert pretrain(make_recipe(keep_checkpoints=1, micro_batch=4), corpus, str(tmp_path)).already_complete


def test_other_data_under_the_same_run(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    pretrain(make_recipe(), corpus, str(tmp_path / "run"))
    config = (tmp_path / "run" / "config.yaml").read_text()
    manifest = read_config(tmp_path / "run").manifest
    (tmp_path / "run" / "config.yaml").write_text(config.replace(manifest, "a" * 32))
    (tmp_path / "run" / "hashes.json").unlink()
    with pytest.raises(UserError, match="the data differ"):
        pretrain(make_recipe(), corpus, str(tmp_path / "run"))


def test_every_command_that_trains_leaves_what_it_was_made_with(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It adds to what earlier ones left, and nothing of the run depends on it."""
    run = str(tmp_path / "run")
    monkeypatch.setattr("sys.argv", ["tokenfree", "first"])
    pretrain(make_recipe(), corpus, run)
    (first,) = read_config(run).attempts
    assert (first["command"], first["machine"]["cores"]) == ("tokenfree first", cores())
    assert read_json_lines(tmp_path / "run" / "events.jsonl")[0]["machine"] == first["machine"]
    monkeypatch.setattr("sys.argv", ["tokenfree", "second"])
    pretrain(make_recipe(keep_checkpoints=1), corpus, run)  # there is nothing to do
    assert read_config(run).attempts == (first,)
    assert read_config(run).recipe.train.keep_checkpoints == 1
    assert verify_folder(run).unhashed == ()
    (tmp_path / "run" / "hashes.json").unlink()  # killed before they were written
    pretrain(make_recipe(), corpus, run)
    assert verify_folder(run).unhashed == ()
    (tmp_path / "run" / "result.json").unlink()
    pretrain(make_recipe(), corpus, run)
    pretrain(make_recipe(), corpus, run, extend_to=9)
    assert [each["command"] for each in read_config(run).attempts] == [
        "tokenfree first",
        *["tokenfree second"] * 2,
    ]


def test_a_run_that_is_being_trained(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    with (
        lock(tmp_path / "lock", seconds=0, held=AssertionError()),
        pytest.raises(UserError, match="another command"),
    ):
        pretrain(make_recipe(), corpus, str(tmp_path))


def test_not_a_number(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="not a number at step 2"):
        pretrain(make_recipe(learning_rate=1e30), corpus, str(tmp_path))
    samples = json.loads((tmp_path / "incidents" / "batch_00000001.json").read_text())
    assert samples == {"kind": "not_a_number", "step": 2, "batch": 1, "loss": samples["loss"],
                       "sample_ids": list(range(8, 16)), "checkpoint": None, "left_out": []}  # fmt: skip
    assert [line["step"] for line in history(tmp_path)] == [1]


def test_a_held_out_loss_that_is_no_number(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    """After the only step, of which the loss was one; no line of the run holds what JSON cannot."""
    with pytest.raises(JobError, match="the held-out loss is not a number at step 1"):
        pretrain(make_recipe(steps=1, warmup=0.0, learning_rate=1e38), corpus, str(tmp_path))
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()
    assert not checkpoints.steps(tmp_path / "checkpoints")


def test_bad_places(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "photo.jpg").write_text("")
    with pytest.raises(UserError, match=r"manifest\.json"):
        pretrain(make_recipe(), str(tmp_path / "no-data"), str(tmp_path / "run"))
    with pytest.raises(UserError, match="cannot write the run folder"):
        pretrain(make_recipe(), corpus, str(tmp_path / "file"))
    with pytest.raises(UserError, match="holds other files and no run"):
        pretrain(make_recipe(), corpus, str(tmp_path / "full"))
    assert not (tmp_path / "run").exists()
    assert os.listdir(tmp_path / "full") == ["photo.jpg"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs")
@pytest.mark.parametrize(
    ("workers", "words"), [((1, 1), "a GPU per worker: 1\\."), ((2, 4), "a GPU per worker: 2\\.")]
)
def test_gpus_that_are_not_there_are_told_before_anything_is_written(
    workers: tuple[int, int], words: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"cuda needs {words} torch finds 0 on this machine"):
        pretrain(make_recipe(device="cuda"), corpus, str(tmp_path / "run"), workers=workers)
    assert not (tmp_path / "run").exists()


def test_a_command_killed_before_its_first_file_is_no_run_of_others(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    (tmp_path / "_tmp_config.yaml_1").write_text("recipe:")
    assert pretrain(make_recipe(steps=1, warmup=0.0), corpus, str(tmp_path)).steps == 1


def test_problems_come_before_anything_is_written(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"model\.trunk\.heads.*; train\.streams"):
        pretrain(make_recipe(streams=3, model={"trunk": {"heads": 3}}), corpus, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_the_best_checkpoint_is_kept(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = make_recipe(steps=30, learning_rate=3.0, warmup=1.0, validate_every_steps=1, checkpoint_every_steps=1,
                         keep_checkpoints=1)  # fmt: skip
    # The rate rises to the end and spoils the model on the way.
    result = pretrain(recipe, corpus, str(tmp_path))
    losses = {
        line["step"]: line["validation_loss"] for line in history(tmp_path) if "validation_loss" in line
    }
    assert result.best_step == min(losses, key=lambda step: losses[step]) < 30
    assert checkpoints.steps(tmp_path / "checkpoints") == [result.best_step, 30]


def test_checkpoints_by_time(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = make_recipe(checkpoint_every_steps=1000, checkpoint_every_seconds=1e-6, keep_checkpoints=100)
    pretrain(recipe, corpus, str(tmp_path))
    assert checkpoints.steps(tmp_path / "checkpoints") == list(range(1, 9))
