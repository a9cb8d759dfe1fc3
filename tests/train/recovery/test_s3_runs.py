"""Runs on the real S3 API, served on this machine: whole, killed, damaged, locked, with a store that fails."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tokenfree import load_encoder
from tokenfree.core import storage as store_retry
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.storage import Storage
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.evaluate import evaluate
from tokenfree.train.pretrain import pretrain
from tokenfree.train.ray.child import ray_processes
from tokenfree.train.runs.config import read_config
from tokenfree.train.runs.hashes import verify_folder
from tokenfree.train.runs.run import Run
from tokenfree.workflows.report.page import write_report

MakeRecipe = Callable[..., PretrainRecipe]
History = Callable[[Path], list[dict[str, Any]]]


def names(run: str) -> list[str]:
    return Storage.at(run).find()


def steps(run: str) -> list[int]:
    return [int(name.split("/")[1].removeprefix("step_")) for name in names(run) if name.endswith("/COMMIT")]


def fetched(run: str) -> Path:
    stored = Run(run)
    stored.fetch()
    return stored.folder


def test_a_whole_run(
    corpus: str, make_recipe: MakeRecipe, bucket: str, tmp_path: Path, history: History
) -> None:
    run = f"{bucket}/runs/one"
    lines: list[Any] = []
    result = pretrain(make_recipe(), corpus, run, progress=lines.append)
    here = pretrain(make_recipe(), corpus, str(tmp_path / "here"))
    assert (result.run, result.loss, result.restarts) == (run, here.loss, 0)
    assert result.checkpoint == f"{run}/checkpoints/step_00000008"
    assert steps(run) == [3, 6, 8]
    found = {name.split("/")[0] for name in names(run)} - {"_lock"}
    assert found == {
        *(
            "config.yaml",
            "checkpoints",
            "metrics.jsonl",
            "events.jsonl",
            "result.json",
            "tensorboard",
            "hashes.json",
        )
    }
    assert len(verify_folder(run).checkpoints) == 3
    assert verify_folder(run).unhashed == ()
    assert history(fetched(run)) == history(tmp_path / "here")
    assert [line["event"] for line in lines if "event" in line] == ["start", "complete"]
    assert not list((tmp_path / "cache" / "runs").rglob("train/*/*"))  # nothing stays on this machine

    assert pretrain(make_recipe(), corpus, run).already_complete
    with pytest.raises(UserError, match=rf"{run} is a run of other settings: train.seed is 1, was 0"):
        pretrain(make_recipe(seed=1), corpus, run)
    assert read_config(run).recipe == make_recipe()
    assert load_encoder(run)(["x"]).pooled.tolist() == load_encoder(tmp_path / "here")(["x"]).pooled.tolist()
    assert evaluate(run, corpus)["validation_loss"] == here.validation_loss
    page = write_report([run, str(tmp_path / "here")], str(tmp_path / "report.html")).read_text()
    assert "one" in page


def test_a_killed_command_goes_on(
    corpus: str, make_recipe: MakeRecipe, bucket: str, tmp_path: Path, start: Any, history: History
) -> None:
    recipe = make_recipe(steps=60, checkpoint_every_steps=7, validate_every_steps=10)
    run = f"{bucket}/killed"
    training = start(recipe, corpus, run)
    training.wait_for_step(17)
    training.process.kill()
    training.end()
    assert "_lock/00000001" in names(run)
    shutil.rmtree(tmp_path / "cache")  # as if resumed on another machine
    result = pretrain(recipe, corpus, run)
    pretrain(recipe, corpus, str(tmp_path / "undisturbed"))
    assert result.restarts == 1
    assert history(fetched(run)) == history(tmp_path / "undisturbed")
    assert steps(run)[-1] == 60
    assert [name for name in names(run) if "lock" in name] == ["_lock/00000003"]  # free


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_workers_of_which_one_is_killed(
    corpus: str, make_recipe: MakeRecipe, bucket: str, tmp_path: Path, start: Any, history: History
) -> None:
    recipe = make_recipe(steps=150, checkpoint_every_steps=20, validate_every_steps=50)
    run = f"{bucket}/two-workers"
    training = start(recipe, corpus, run, workers=(2, 2))
    training.wait_for_step(45)
    workers = ray_processes(training.process.pid, "ray::RayTrainW")
    os.kill(workers[0].pid, signal.SIGKILL)
    assert training.end() == 0
    assert [line["event"] for line in training.lines() if "event" in line][1:] == [
        "start", "worker_lost", "resume", "complete"]  # fmt: skip
    assert [line["event"] for line in Run(run).events()] == ["start", "worker_lost", "resume", "complete"]
    assert any(name.startswith("ray/attempt_0001/logs/") for name in names(run))
    pretrain(recipe, corpus, str(tmp_path / "undisturbed"), workers=(2, 2))
    assert history(fetched(run)) == history(tmp_path / "undisturbed")


def test_sigterm_saves_to_the_store_first(
    corpus: str, make_recipe: MakeRecipe, bucket: str, start: Any, history: History
) -> None:
    recipe = make_recipe(steps=2000, checkpoint_every_steps=10_000, validate_every_steps=2000)
    run = f"{bucket}/noticed"
    training = start(recipe, corpus, run)
    training.wait_for_step(5)
    os.kill(training.process.pid, signal.SIGTERM)
    assert training.end() == 1
    (step,) = steps(run)
    assert f"stopped by SIGTERM after step {step}; the same command resumes it" in training.log.read_text()
    assert history(fetched(run))[-1]["step"] == step


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    corpus: str, make_recipe: MakeRecipe, bucket: str
) -> None:
    run = f"{bucket}/damaged"
    first = pretrain(make_recipe(), corpus, run)
    fs = fsspec.filesystem("s3")
    fs.rm(f"{run}/result.json")
    path = f"{run}/checkpoints/step_00000008/model.safetensors"
    content = bytearray(fs.cat_file(path))
    content[-1] ^= 1
    fs.pipe_file(path, bytes(content))
    fs.pipe_file(f"{run}/checkpoints/step_00000009/model.safetensors", b"cut short: there is no COMMIT")
    messages: list[str] = []
    again = pretrain(
        make_recipe(), corpus, run, progress=lambda line: messages.append(line.get("message", ""))
    )
    assert f"{run}/checkpoints/step_00000008 is damaged: model.safetensors" in messages[0]
    assert "step 6 of 8" in messages[1]
    assert (again.loss, again.validation_loss) == (first.loss, first.validation_loss)
    assert steps(run) == [3, 6, 8]


def test_puts_that_fail_now_and_then(
    corpus: str, make_recipe: MakeRecipe, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = Storage.at(bucket).fs
    put, calls = fs.put_file, [0]

    def throttled(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] % 5:
            raise OSError(5, "SlowDown: reduce your request rate")
        return put(*arguments, **options)

    monkeypatch.setattr(fs, "put_file", throttled)
    monkeypatch.setattr("tokenfree.core.storage.time.sleep", lambda seconds: None)
    pretrain(make_recipe(), corpus, f"{bucket}/throttled")
    assert calls[0] > 100
    assert steps(f"{bucket}/throttled") == [3, 6, 8]


def test_a_store_that_is_lost_leaves_the_last_good_checkpoint(
    corpus: str, make_recipe: MakeRecipe, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = Storage.at(bucket).fs
    put, run = fs.put_file, f"{bucket}/lost"

    def broken(source: str, target: str, **options: Any) -> Any:
        if "step_00000006/optimizer" in target:
            raise OSError(5, "the connection broke")
        return put(source, target, **options)

    with monkeypatch.context() as patch:
        patch.setattr(fs, "put_file", broken)
        patch.setattr(store_retry, "SECONDS", 0.5)
        patch.setattr("tokenfree.core.storage.time.sleep", lambda seconds: None)
        with pytest.raises(JobError, match=r"the connection broke.*resumes from its last commit"):
            pretrain(make_recipe(), corpus, run)
    assert steps(run) == [3]
    assert pretrain(make_recipe(), corpus, run).restarts == 1
    assert steps(run) == [3, 6, 8]


def test_two_commands_on_one_run(corpus: str, make_recipe: MakeRecipe, bucket: str) -> None:
    run = f"{bucket}/two"
    stored = Run(run)
    with stored.claimed() as number:
        with pytest.raises(UserError, match=f"{run} is being trained by another command"):
            pretrain(make_recipe(), corpus, run)
        Run(run, number).publish()
        # Which took this one for dead.
        stored.storage.write_json("_lock/00000002", {"host": "another machine"})
        with pytest.raises(JobError, match="was taken over by another command on another machine"):
            Run(run, number).publish()


def test_places_that_will_not_do(corpus: str, make_recipe: MakeRecipe, bucket: str) -> None:
    fsspec.filesystem("s3").pipe_file(f"{bucket}/full/photo.jpg", b"")
    with pytest.raises(UserError, match="full holds other files and no run"):
        pretrain(make_recipe(), corpus, f"{bucket}/full")
    with pytest.raises(UserError, match="s3://nowhere/run: cannot write here"):
        pretrain(make_recipe(), corpus, "s3://nowhere/run")
    with pytest.raises(UserError, match=f"{bucket}/none holds no run"):
        load_encoder(f"{bucket}/none")
    with pytest.raises(UserError, match="no file system for this address"):
        pretrain(make_recipe(), corpus, "nosuch://bucket/run")


@pytest.mark.slow
def test_given_weights_and_more_steps(
    corpus: str, make_recipe: MakeRecipe, bucket: str, tmp_path: Path, start: Any, history: History
) -> None:
    recipe = make_recipe(steps=40, checkpoint_every_steps=30, validate_every_steps=20)
    source, run = f"{bucket}/source", f"{bucket}/run"
    pretrain(make_recipe(), corpus, source)
    training = start(recipe, corpus, run, options={"init_from": source})
    training.wait_for_step(9)
    training.process.kill()
    training.end()
    assert steps(run) == [0]
    shutil.rmtree(tmp_path / "cache")  # as if resumed on another machine
    pretrain(recipe, corpus, run, init_from=source)
    assert pretrain(recipe, corpus, run, init_from=source, extend_to=60).steps == 60
    assert [line["event"] for line in Run(run).events()] == [
        "init_from", "start", "start", "complete", "extend", "resume", "complete"]  # fmt: skip
    here = tmp_path / "here"
    pretrain(make_recipe(), corpus, str(tmp_path / "source"))
    pretrain(recipe, corpus, str(here), init_from=str(tmp_path / "source"))
    pretrain(recipe, corpus, str(here), init_from=str(tmp_path / "source"), extend_to=60)
    assert history(fetched(run)) == history(here)
    assert (read_config(run).recipe, read_config(run).data) == (read_config(here).recipe, corpus)
    assert read_config(run).init_from is not None
    assert not list((tmp_path / "cache" / "runs").rglob("train/*/*"))  # nothing stays on this machine
