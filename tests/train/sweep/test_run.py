"""Whole sweeps under Ray Tune: their results, failures, and real kills."""

import csv
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ray.exceptions import OutOfMemoryError

from tests.conftest import REPOSITORY
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.settings import build
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.ray.cluster import ray_session
from tokenfree.train.runs.formats import SWEEP_FORMAT
from tokenfree.train.runs.hashes import verify_folder
from tokenfree.train.sweep import run, tune
from tokenfree.train.sweep.history import journal_line, read_history
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.run import run_sweep
from tokenfree.train.sweep.search import Proposer
from tokenfree.train.sweep.subjects import open_subject
from tokenfree.train.sweep.tune import run_trials
from tokenfree.workflows import cli

SPACE = {"model.embedder.buckets": {"choice": [16, 32, 64]}, "model.embedder.hashes": {"integer": [2, 4]}}
MakeRecipe = Callable[..., PretrainRecipe]


@pytest.fixture(autouse=True, scope="module")
def ray_of_all_sweeps() -> Iterator[None]:
    """One local cluster for all sweeps of this process: its start takes longer than they do."""
    with ray_session(2):
        yield


def make_sweep(recipe: PretrainRecipe, **over: Any) -> SweepRecipe:
    mapping = {"base": to_mapping(recipe), "space": SPACE, "trials": 4, "budget": {"steps": 6}, "reports": 3}
    return build(SweepRecipe, {**mapping, "scheduler": {"reduction": 2}, **over}, source="test")


@pytest.mark.parametrize(
    ("scheduler", "states"),
    [
        # Which trials its brackets hold depends on timing.
        ({"name": "hyperband", "reduction_factor": 2}, None),
        ({"name": "median", "min_samples_required": 1}, {"finished", "stopped"}),
        # It pauses trials instead of stopping them.
        ({"name": "median", "min_samples_required": 1, "hard_stop": False}, {"finished"}),
        ("ray.tune.schedulers.FIFOScheduler", {"finished"}),
    ],
)
def test_schedulers_of_ray_stop_and_pause_trials(
    scheduler: Any, states: set[str] | None, corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    # Better rates come first, so that a later trial is stopped.
    space = {"train.learning_rate": {"grid": [0.02, 0.015, 0.01, 0.005, 0.001, 0.0001]}}
    over: dict[str, Any] = {"space": space, "scheduler": scheduler, "trials": 6, "budget": {"steps": 12},
                            "reports": 4, "searcher": "grid"}  # fmt: skip
    result = run_sweep(make_sweep(make_recipe(), **over), corpus, str(tmp_path / "sweep"))
    assert states in (None, {trial.state for trial in result.trials})
    assert all(trial.state in ("finished", "stopped") for trial in result.trials)
    for trial in result.trials:
        numbers = [report["report"] for report in trial.reports]
        assert numbers == list(range(1, len(numbers) + 1))


def test_a_sweep_ends_in_a_table_and_a_recipe_and_is_not_run_twice(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="tokenfree")
    told: list[Any] = []  # events with the history after them

    def tell(*news: Any) -> None:
        told.append(news)

    sweep = make_sweep(make_recipe())
    result = run_sweep(sweep, corpus, str(tmp_path / "sweep"), progress=tell)
    rows = list(csv.DictReader((tmp_path / "sweep" / "sweep.csv").open(encoding="utf-8")))
    assert [row["trial"] for row in rows] == ["trial_000", "trial_001", "trial_002", "trial_003"]
    assert {row["state"] for row in rows} <= {"finished", "stopped"}
    assert any(row["step"] == "6" for row in rows)
    assert len({(row["model.embedder.buckets"], row["model.embedder.hashes"]) for row in rows}) == 4
    assert {row["model.embedder.hashes"] for row in rows} <= {"2", "4"}  # 3 does not divide the width
    assert sum(result.skipped.values()) >= 1
    events = [event for event, _ in told]
    assert (tmp_path / "sweep" / "journal.jsonl").read_bytes() == b"".join(map(journal_line, events))
    logged = [line for line in caplog.messages if line.startswith("trial_")]
    assert len(logged) == sum(event["event"] == "report" for event in events)
    assert "of 3: validation_loss " in logged[0]
    assert told[-1][1].all_ended
    assert not (tmp_path / "sweep" / "ray").exists()
    assert yaml.safe_load((tmp_path / "sweep" / "sweep.yaml").read_text())["format"] == SWEEP_FORMAT
    assert verify_folder(str(tmp_path / "sweep")).unhashed == ()

    best = yaml.safe_load((tmp_path / "sweep" / "best.yaml").read_text(encoding="utf-8"))
    again = build(PretrainRecipe, best, source="best.yaml")
    assert again.train.steps == make_recipe().train.steps  # the base's own, not the trials' budget
    assert result.best is not None
    assert again.model.embedder.buckets == result.best.values["model.embedder.buckets"]

    before = (tmp_path / "sweep" / "sweep.csv").read_bytes()
    told.clear()
    assert run_sweep(sweep, corpus, str(tmp_path / "sweep"), progress=tell).already_complete
    assert (tmp_path / "sweep" / "sweep.csv").read_bytes() == before
    assert not told
    assert verify_folder(str(tmp_path / "sweep")).complete
    (attempt,) = yaml.safe_load((tmp_path / "sweep" / "sweep.yaml").read_text(encoding="utf-8"))["attempts"]
    assert "ray" in attempt["packages"]
    reports = [event["report"] for event in events if event["event"] == "report"]
    assert all(report["machine"] == attempt["machine"] for report in reports)
    assert "machine" not in rows[0]
    with pytest.raises(UserError, match="another sweep"):
        run_sweep(make_sweep(make_recipe(), trials=3), corpus, str(tmp_path / "sweep"))


def test_what_cannot_work_is_refused_before_anything_starts(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    output = str(tmp_path / "sweep")
    with pytest.raises(UserError, match=r"model\.embedder\.bukets.*did you mean 'model\.embedder\.buckets'"):
        run_sweep(make_sweep(make_recipe(), space={"model.embedder.bukets": {"choice": [1]}}), corpus, output)
    rates = {"model.embedder.hashes": {"choice": [3, 4, 5]}, "train.seed": {"choice": [1]}}
    with pytest.raises(UserError, match=r"only 1 of the settings can be run"):
        run_sweep(make_sweep(make_recipe(), space=rates), corpus, output)
    fractions = {"objective.validation_mask_fraction": {"choice": [0.15, 0.3]}}
    measures = {"train.validation_windows": {"choice": [8, 16]}, **fractions}
    with pytest.raises(
        UserError, match=r"only 1 of the.*objective: other values would change what is validated"
    ):
        run_sweep(make_sweep(make_recipe(), space=measures, trials=2), corpus, output)
    assert not (tmp_path / "sweep").exists()


def test_mask_fraction_in_training_is_searched(corpus: str, make_recipe: MakeRecipe) -> None:
    """Held-out targets are chosen at the fraction of validation, so such trials can be compared."""
    sweep = make_sweep(make_recipe(), space={"objective.mask_fraction": {"grid": [0.15, 0.3]}}, trials=None)
    proposer = Proposer(sweep, open_subject(sweep, corpus, "")[1])
    assert not proposer.problems({"objective.mask_fraction": 0.3})


@pytest.mark.slow
def test_a_trial_that_fails_is_tried_again_and_reported_with_its_own_error(
    corpus: str,
    make_recipe: MakeRecipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A learning rate at which the loss is not a number, beside one that works."""
    space = {"train.learning_rate": {"grid": [0.01, 1e30]}}
    recipe = make_recipe(warmup=0)
    sweep = make_sweep(recipe, space=space, searcher="grid", scheduler="none", trials=None)
    result = run_sweep(sweep, corpus, str(tmp_path / "sweep"))
    assert [trial.state for trial in result.trials] == ["finished", "failed"]
    assert "NotANumber" in result.trials[1].error
    events = [json.loads(line) for line in (tmp_path / "sweep" / "journal.jsonl").read_text().splitlines()]
    assert [event["trial"] for event in events if event["event"] == "failure"] == ["trial_001"] * 2
    for _ in range(2):
        assert cli.main(["sweep", "--output", str(tmp_path / "sweep")]) == 0, "a complete sweep"
        assert "\ntrial_001 failed: NotANumber: the loss" in capsys.readouterr().out

    failed = {"trial_000": result.trials[1]}
    monkeypatch.setattr(
        run, "_run", lambda proposer, planned, *_: dataclasses.replace(planned, trials=failed)
    )
    with pytest.raises(JobError, match=r"no trial succeeded; trial_001: NotANumber"):
        run_sweep(sweep, corpus, str(tmp_path / "failing"))


class InThisProcess:
    """In place of a process of its own, so that what a test puts in the place of Tune is used."""

    def __init__(self, function: str, *, take: Callable[[Any], None], **named: Any) -> None:
        self._take = take

    def call(self, *arguments: Any) -> str | None:
        link: Any = SimpleNamespace(listen=lambda take: None, send=self._hear)
        return run_trials(link, *arguments)

    def _hear(self, message: Any) -> None:
        if not isinstance(message, bytes):  # the session
            self._take(message)


def test_a_machine_without_memory_is_no_failure_of_trials(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Tune raises where Ray ends a process to save the machine."""
    monkeypatch.setattr(run, "RayChild", InThisProcess)

    def short_of_memory() -> None:
        raise RuntimeError("Caught unexpected exception") from OutOfMemoryError("2 worker(s) were killed")

    monkeypatch.setattr(tune, "_tuner", lambda *arguments: SimpleNamespace(fit=short_of_memory))
    with pytest.raises(JobError, match=r"memory ran out.*lower --concurrent"):
        run_sweep(make_sweep(make_recipe(), trials=2), corpus, str(tmp_path / "sweep"))
    assert "failure" not in (tmp_path / "sweep" / "journal.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_seeds_and_tpe_under_ray(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    sweep = make_sweep(
        make_recipe(), trials=3, seeds=2, searcher={"name": "tpe", "startup": 2}, scheduler="none"
    )
    result = run_sweep(sweep, corpus, str(tmp_path / "seeds"))
    assert [(trial.setting, trial.seed) for trial in result.trials] == [
        (s, k) for s in range(3) for k in range(2)
    ]
    assert all(trial.last["seed"] == trial.seed for trial in result.trials)
    pairs = [trial.last["validation_loss"] for trial in result.trials]
    assert len(set(pairs)) == 6


COMMAND = """
import json, sys
sys.path.insert(0, {repository!r})
from tokenfree.core.settings import build
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.run import run_sweep
from tokenfree.train.sweep.search import Proposer
from tokenfree.train.sweep.subjects import open_subject
sweep = build(SweepRecipe, json.load(open({recipe!r})), source="test")
run_sweep(sweep, {data!r}, {output!r})
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scheduler", ["none", "asha"])
def test_a_driver_that_is_killed_goes_on(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, scheduler: str
) -> None:
    """Ctrl-C and SIGKILL at random moments: every trial ends, no report is made twice, and losses are those of
    trials that were never disturbed, bit for bit.
    """
    space = {"train.learning_rate": {"log_uniform": [0.0001, 0.05]}}
    over: dict[str, Any] = {"space": space, "budget": {"steps": 200}, "reports": 10}
    recipe = make_recipe(validation_windows=64)
    whole = run_sweep(make_sweep(recipe, scheduler="none", **over), corpus, str(tmp_path / "whole"))

    sweep = make_sweep(recipe, scheduler=scheduler, **over)
    output = tmp_path / "killed"
    (tmp_path / "recipe.json").write_text(json.dumps(to_mapping(sweep)))
    places = {"repository": str(REPOSITORY), "recipe": str(tmp_path / "recipe.json"), "data": corpus}
    command = [sys.executable, "-c", COMMAND.format(**places, output=str(output))]
    draw = random.Random(scheduler)
    for kill, number in enumerate((signal.SIGINT, signal.SIGKILL, signal.SIGKILL)):
        driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _wait_for_reports(output, 3 + (9 if scheduler == "none" else 4) * kill, driver)
        time.sleep(draw.random() * (1.5 if scheduler == "none" else 0.3))
        os.kill(driver.pid, number)
        driver.wait(120)
    assert not (output / "sweep.csv").exists()
    subprocess.run(command, check=True, timeout=600)
    events = [json.loads(line) for line in (output / "journal.jsonl").read_text().splitlines()]
    reports = [(event["trial"], event["report"]["report"]) for event in events if event["event"] == "report"]
    assert len(reports) == len(set(reports))  # none is repeated
    assert len(yaml.safe_load((output / "sweep.yaml").read_text(encoding="utf-8"))["attempts"]) == 4
    history = read_history(output, seeds=1, reports=10)
    assert (output / "sweep.csv").is_file()
    assert {trial.state for trial in history.trials.values()} <= {"finished", "stopped"}
    assert len(reports) == 40 if scheduler == "none" else len(reports) < 40
    for before, after in zip(whole.trials, history.trials.values(), strict=True):
        assert (before.name, before.values) == (after.name, after.values)
        losses = [[report["validation_loss"] for report in trial.reports] for trial in (before, after)]
        assert losses[0][: len(losses[1])] == losses[1]


def _wait_for_reports(output: Path, number: int, driver: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 600
    while time.monotonic() < until:
        journal = output / "journal.jsonl"
        if journal.exists() and journal.read_bytes().count(b'"event": "report"') >= number:
            return
        assert driver.poll() is None, "the sweep ended before it could be killed"
        time.sleep(0.05)
    raise AssertionError("no reports")


def test_a_command_killed_before_its_first_file_is_no_sweep_of_others(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    (tmp_path / "_tmp").mkdir()
    (tmp_path / "_tmp" / "half").write_text("recipe:")
    run._claim(tmp_path, *run.open_subject(make_sweep(make_recipe()), corpus, str(tmp_path)))
    assert (tmp_path / "sweep.yaml").is_file()
