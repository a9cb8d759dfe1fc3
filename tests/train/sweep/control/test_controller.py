"""The course of a sweep under every scheduler, with trials that only pretend to train, and kills in between."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preprocess.settings import Slot, build
from train.sweep.conductor import Conductor
from train.sweep.config import SweepRecipe
from train.sweep.history import Record
from train.sweep.proposals import Plan, Proposer

SCHEDULERS = Slot("train.sweep.schedulers", "asha").names()
KEY = "train.learning_rate"
Loss = Callable[[Record, int], float]


def make_sweep(scheduler: Any, *, trials: int, reports: int, seeds: int = 1) -> SweepRecipe:
    space = {KEY: {"uniform": [0.0, 1.0]}}
    mapping = {"base": {}, "space": space, "scheduler": scheduler, "trials": trials, "reports": reports, "seeds": seeds}
    return build(SweepRecipe, mapping, source="test")


def conduct(sweep: SweepRecipe, folder: Path, told: list[dict[str, Any]], *, concurrent: int = 2) -> Conductor:
    folder.mkdir(exist_ok=True)
    settings = tuple({KEY: (index * 7 % 10) / 10} for index in range(sweep.trials or 0))
    plan = Plan(len(settings), settings, {}, ())
    proposer = Proposer(sweep, manifest=None, vocabulary=None)  # pyright: ignore[reportArgumentType]
    return Conductor(proposer, plan, folder, concurrent, lambda line: told.append(dict(line)))


def by_rate(trial: Record, place: int) -> float:
    """Low rates are good from the start."""
    return trial.values[KEY] + 1 / place


def play(conductor: Conductor, *, loss: Loss = by_rate, order: int = 0, ticks: int | None = None) -> list[str]:
    """Run pretended trials, those that run in an order drawn from the seed `order`; the trial of each report.

    A trial's checkpoint is a file with its name and the number of its report. After `ticks` reports all is left as a
    kill would leave it.
    """
    draw = random.Random(order)
    running: list[Record] = []
    seen: list[str] = []
    while ticks is None or len(seen) < ticks:
        while (trial := conductor.next_leg()) is not None:
            running.append(trial)
        if not running:
            assert conductor.all_ended
            break
        trial = running[draw.randrange(len(running))]
        place = trial.place + 1
        checkpoint = conductor.folder(trial.name) / "checkpoints" / "state"
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.write_text(f"{trial.name} {place}")
        report = {"report": place, "step": place, "validation_loss": loss(trial, place)}
        seen.append(trial.name)
        if not conductor.report(trial.name, report):
            running.remove(trial)
    conductor.close()
    return seen


def outcome(conductor: Conductor) -> dict[str, Any]:
    return {trial.name: (trial.state, trial.place, trial.values) for trial in conductor.history.trials.values()}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("concurrent", [1, 3])
def test_a_sweep_that_is_killed_again_and_again_ends_as_an_undisturbed_one(
    scheduler: str, concurrent: int, tmp_path: Path
) -> None:
    sweep = make_sweep(scheduler, trials=12, reports=9)
    told: list[dict[str, Any]] = []
    whole = conduct(sweep, tmp_path / "whole", told, concurrent=concurrent)
    reports = play(whole)
    assert [line["trial"] for line in told if line["event"] == "end"]
    assert told[-1]["ended"] == told[-1]["trials"] == 12

    count = 0
    for life in range(1000):
        killed = conduct(sweep, tmp_path / "killed", [], concurrent=concurrent)
        done = play(killed, order=life, ticks=5)
        count += len(done)
        if killed.all_ended:
            break
    if concurrent == 1 or scheduler in ("none", "hyperband", "pbt"):  # the others ask who came first
        assert outcome(killed) == outcome(whole)
        assert count == len(reports)  # nothing is trained twice where the journal has all reports
    assert all(trial.ended for trial in killed.history.trials.values())
    assert len(killed.history.trials) == 12


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_best_trial_is_never_stopped(scheduler: str, tmp_path: Path) -> None:
    conductor = conduct(make_sweep(scheduler, trials=10, reports=9), tmp_path / "sweep", [])
    play(conductor)
    trials = conductor.history.trials.values()
    best = [trial for trial in trials if trial.values[KEY] == 0.0]
    assert best
    assert all((trial.state, trial.place) == ("finished", 9) for trial in best)
    if scheduler not in ("none", "pbt"):
        assert sum(trial.state == "stopped" for trial in trials) >= 3


def test_asha_keeps_its_rungs_over_a_kill(tmp_path: Path) -> None:
    """The losses before the kill count: later trials are judged against them."""
    sweep = make_sweep({"name": "asha", "grace": 1, "reduction": 2}, trials=4, reports=4)
    losses = {"trial_000": 1.0, "trial_001": 2.0, "trial_002": 0.5, "trial_003": 3.0}
    before = conduct(sweep, tmp_path / "sweep", [], concurrent=1)
    assert play(before, loss=lambda trial, place: losses[trial.name], ticks=5) == ["trial_000"] * 4 + ["trial_001"]
    assert before.history.trials["trial_001"].state == "stopped"
    after = conduct(sweep, tmp_path / "sweep", [], concurrent=1)
    assert play(after, loss=lambda trial, place: losses[trial.name]) == ["trial_002"] * 4 + ["trial_003"]


def test_hyperband_has_the_brackets_of_the_paper(tmp_path: Path) -> None:
    conductor = conduct(make_sweep("hyperband", trials=17, reports=9), tmp_path / "sweep", [])
    play(conductor, loss=lambda trial, place: int(trial.name[-3:]) + 1 / place)
    places = [trial.place for trial in conductor.history.trials.values()]
    assert places[:9] == [9, 3, 3, 1, 1, 1, 1, 1, 1]
    assert places[9:14] == [9, 3, 3, 3, 3]
    assert places[14:] == [9, 9, 9]


def test_trials_of_pbt_take_over_weights_and_change_values(tmp_path: Path) -> None:
    sweep = make_sweep({"name": "pbt", "quantile": 0.25}, trials=8, reports=3)
    conductor = conduct(sweep, tmp_path / "sweep", [])
    play(conductor)
    lines = [json.loads(line) for line in (tmp_path / "sweep" / "journal.jsonl").read_text().splitlines()]
    exploits = [line for line in lines if line["event"] == "exploit"]
    assert [line["report"] for line in exploits] == [1, 1, 2, 2]
    for line in exploits[:2]:
        donor = conductor.history.proposed[int(line["donor"][-3:])][KEY]
        loser = conductor.history.proposed[int(line["trial"][-3:])][KEY]
        assert donor < loser
        assert line["values"][KEY] != donor or donor == 0.0
    first = conduct(sweep, tmp_path / "first", [])
    play(first, ticks=8)
    again = conduct(sweep, tmp_path / "first", [])
    again.next_leg()
    for line in exploits[:2]:
        content = (again.folder(line["trial"]) / "checkpoints" / "state").read_text()
        assert content == f"{line['donor']} 1"
    again.close()


def test_a_kill_between_the_copies_of_pbt_copies_again(tmp_path: Path) -> None:
    sweep = make_sweep({"name": "pbt", "quantile": 0.5}, trials=4, reports=2)
    whole = conduct(sweep, tmp_path / "whole", [])
    play(whole)
    lines = (tmp_path / "whole" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    second = [number for number, line in enumerate(lines) if b'"exploit"' in line][1]
    killed = conduct(sweep, tmp_path / "killed", [])
    play(killed, ticks=4)
    (tmp_path / "killed" / "journal.jsonl").write_bytes(b"".join(lines[:second]) + lines[second][:20])
    again = conduct(sweep, tmp_path / "killed", [])
    play(again)
    assert outcome(again) == outcome(whole)
    assert (tmp_path / "killed" / "journal.jsonl").read_bytes().count(b'"exploit"') == 2


def test_a_trial_that_fails_is_tried_once_more_and_then_reported(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    sweep = make_sweep("hyperband", trials=3, reports=3)
    conductor = conduct(sweep, tmp_path / "sweep", told, concurrent=3)
    for attempt in (1, 2):
        legs = [conductor.next_leg() for _ in range(3)]
        name = next(leg.name for leg in legs if leg is not None)
        assert name == "trial_000"
        conductor.failed(name, f"ValueError: attempt {attempt}")
        if attempt == 1:
            conductor.close()
            conductor = conduct(sweep, tmp_path / "sweep", told, concurrent=3)
    assert conductor.history.trials[name].state == "failed"
    conductor.close()
    ended = conduct(sweep, tmp_path / "sweep", told)
    play(ended)
    assert [(line["trial"], line["error"]) for line in told if line["event"] == "error"] == [
        ("trial_000", "ValueError: attempt 2")
    ]
    assert ended.all_ended


def test_seeds_are_trials_of_their_own(tmp_path: Path) -> None:
    conductor = conduct(make_sweep("none", trials=2, reports=1, seeds=2), tmp_path / "sweep", [])
    play(conductor)
    assert [(t.name, t.setting, t.seed) for t in conductor.history.trials.values()] == [
        ("trial_000_seed_0", 0, 0),
        ("trial_000_seed_1", 0, 1),
        ("trial_001_seed_0", 1, 0),
        ("trial_001_seed_1", 1, 1),
    ]
