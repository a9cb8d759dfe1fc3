"""The course of a sweep under every scheduler, with trials that only pretend to train, and kills in between."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tokenfree.core.settings import Slot, build
from tokenfree.train.sweep.control.controller import SweepController
from tokenfree.train.sweep.control.history import Event, History, TrialState
from tokenfree.train.sweep.control.journal import read_history
from tokenfree.train.sweep.control.proposals import Plan, Proposer
from tokenfree.train.sweep.space.recipe import SweepRecipe

SCHEDULERS = Slot("tokenfree.train.sweep.schedulers", "asha").names()
KEY = "train.learning_rate"
Loss = Callable[[TrialState, int], float]
Told = list[tuple[Event, History]]


def make_sweep(scheduler: Any, *, trials: int, reports: int, seeds: int = 1) -> SweepRecipe:
    space = {KEY: {"uniform": [0.0, 1.0]}}
    mapping = {"base": {}, "space": space, "scheduler": scheduler, "trials": trials, "reports": reports, "seeds": seeds}
    return build(SweepRecipe, mapping, source="test")


def control(sweep: SweepRecipe, folder: Path, told: Told | None = None, *, concurrent: int = 2) -> SweepController:
    """The controller of a sweep that begins, or goes on, in `folder`; `told` hears of what it tells."""
    folder.mkdir(exist_ok=True)
    settings = tuple({KEY: (index * 7 % 10) / 10} for index in range(sweep.trials or 0))
    plan = Plan(len(settings), settings, {}, ())
    proposer = Proposer(sweep, subject=None)  # pyright: ignore[reportArgumentType]
    heard = told if told is not None else []
    controller = SweepController(proposer, plan, folder, concurrent, lambda *news: heard.append(news))
    controller.start()
    return controller


def by_rate(trial: TrialState, report_number: int) -> float:
    """Low rates are good from the start."""
    return trial.values[KEY] + 1 / report_number


def play(controller: SweepController, *, loss: Loss = by_rate, order: int = 0, ticks: int | None = None) -> list[str]:
    """Run pretended trials, those that run in an order drawn from the seed `order`; the trial of each report.

    A trial's checkpoint is a file with its name and the number of its report. After `ticks` reports all is left as a
    kill would leave it.
    """
    draw = random.Random(order)
    running: list[str] = []
    seen: list[str] = []
    while ticks is None or len(seen) < ticks:
        while (begun := controller.next_segment()) is not None:
            running.append(begun.name)
        if not running:
            assert controller.history.all_ended
            break
        trial = controller.history.trials[running[draw.randrange(len(running))]]
        number = trial.report_number + 1
        checkpoint = controller.folder(trial.name) / "checkpoints" / "state"
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.write_text(f"{trial.name} {number}")
        seen.append(trial.name)
        if not controller.report(
            trial.name, {"report": number, "step": number, "validation_loss": loss(trial, number)}
        ):
            running.remove(trial.name)
    controller.close()
    return seen


def outcome(controller: SweepController) -> dict[str, Any]:
    return {
        trial.name: (trial.state, trial.report_number, trial.values) for trial in controller.history.trials.values()
    }


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("concurrent", [1, 3])
def test_a_sweep_that_is_killed_again_and_again_ends_as_an_undisturbed_one(
    scheduler: str, concurrent: int, tmp_path: Path
) -> None:
    sweep = make_sweep(scheduler, trials=12, reports=9)
    whole = control(sweep, tmp_path / "whole", concurrent=concurrent)
    reports = play(whole)
    assert len(whole.history.trials) == whole.history.total == 12

    count = 0
    for life in range(1000):
        killed = control(sweep, tmp_path / "killed", concurrent=concurrent)
        done = play(killed, order=life, ticks=5)
        count += len(done)
        if killed.history.all_ended:
            break
    assert outcome(killed) == outcome(whole)
    assert count == len(reports)  # nothing is trained twice where the journal has all reports
    assert all(trial.ended for trial in killed.history.trials.values())
    assert len(killed.history.trials) == 12


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_best_trial_is_never_stopped(scheduler: str, tmp_path: Path) -> None:
    controller = control(make_sweep(scheduler, trials=10, reports=9), tmp_path / "sweep")
    play(controller)
    trials = controller.history.trials.values()
    best = [trial for trial in trials if trial.values[KEY] == 0.0]
    assert best
    assert all((trial.state, trial.report_number) == ("finished", 9) for trial in best)
    if scheduler not in ("none", "pbt"):
        assert sum(trial.state == "stopped" for trial in trials) >= 3


def test_asha_keeps_its_rungs_over_a_kill(tmp_path: Path) -> None:
    """The losses before the kill count: later trials are judged against them."""
    sweep = make_sweep({"name": "asha", "grace": 1, "reduction": 2}, trials=4, reports=4)
    losses = {"trial_000": 1.0, "trial_001": 2.0, "trial_002": 0.5, "trial_003": 3.0}
    before = control(sweep, tmp_path / "sweep", concurrent=1)
    assert play(before, loss=lambda trial, number: losses[trial.name], ticks=5) == ["trial_000"] * 4 + ["trial_001"]
    assert before.history.trials["trial_001"].state == "stopped"
    after = control(sweep, tmp_path / "sweep", concurrent=1)
    assert play(after, loss=lambda trial, number: losses[trial.name]) == ["trial_002"] * 4 + ["trial_003"]


def test_hyperband_has_the_brackets_of_the_paper(tmp_path: Path) -> None:
    controller = control(make_sweep("hyperband", trials=17, reports=9), tmp_path / "sweep")
    play(controller, loss=lambda trial, number: int(trial.name[-3:]) + 1 / number)
    reached = [trial.report_number for trial in controller.history.trials.values()]
    assert reached[:9] == [9, 3, 3, 1, 1, 1, 1, 1, 1]
    assert reached[9:14] == [9, 3, 3, 3, 3]
    assert reached[14:] == [9, 9, 9]


def test_trials_of_pbt_take_over_weights_and_change_values(tmp_path: Path) -> None:
    sweep = make_sweep({"name": "pbt", "quantile": 0.25}, trials=8, reports=3)
    controller = control(sweep, tmp_path / "sweep")
    play(controller)
    lines = [json.loads(line) for line in (tmp_path / "sweep" / "journal.jsonl").read_text().splitlines()]
    exploits = [line for line in lines if line["event"] == "exploit"]
    assert [line["report"] for line in exploits] == [1, 1, 2, 2]
    for line in exploits[:2]:
        donor = controller.history.proposed[int(line["donor"][-3:])][KEY]
        loser = controller.history.proposed[int(line["trial"][-3:])][KEY]
        assert donor < loser
        assert line["values"][KEY] != donor or donor == 0.0
    first = control(sweep, tmp_path / "first")
    play(first, ticks=8)
    again = control(sweep, tmp_path / "first")
    again.next_segment()
    for line in exploits[:2]:
        content = (again.folder(line["trial"]) / "checkpoints" / "state").read_text()
        assert content == f"{line['donor']} 1"
    again.close()


def test_a_kill_between_the_copies_of_pbt_copies_again(tmp_path: Path) -> None:
    sweep = make_sweep({"name": "pbt", "quantile": 0.5}, trials=4, reports=2)
    whole = control(sweep, tmp_path / "whole")
    play(whole)
    lines = (tmp_path / "whole" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    second = [number for number, line in enumerate(lines) if b'"exploit"' in line][1]
    killed = control(sweep, tmp_path / "killed")
    play(killed, ticks=4)
    (tmp_path / "killed" / "journal.jsonl").write_bytes(b"".join(lines[:second]) + lines[second][:20])
    again = control(sweep, tmp_path / "killed")
    play(again)
    assert outcome(again) == outcome(whole)
    assert (tmp_path / "killed" / "journal.jsonl").read_bytes().count(b'"exploit"') == 2


def test_a_trial_that_fails_is_tried_once_more_and_then_left(tmp_path: Path) -> None:
    told: Told = []
    sweep = make_sweep("hyperband", trials=3, reports=3)
    controller = control(sweep, tmp_path / "sweep", told, concurrent=3)
    for attempt in (1, 2):
        begun = [controller.next_segment() for _ in range(3)]
        name = next(trial.name for trial in begun if trial is not None)
        assert name == "trial_000"
        controller.failed(name, f"ValueError: attempt {attempt}")
        controller.failed(name, "it is over already")
        if attempt == 1:
            assert controller.history.trials[name].state == "waiting"
            controller.close()
            controller = control(sweep, tmp_path / "sweep", told, concurrent=3)
    assert (controller.history.trials[name].state, controller.history.trials[name].error) == (
        "failed",
        "ValueError: attempt 2",
    )
    controller.close()
    ended = control(sweep, tmp_path / "sweep", told)
    play(ended)
    assert [event["error"] for event, _ in told if event["event"] == "failure"] == [
        "ValueError: attempt 1",
        "ValueError: attempt 2",
    ]
    assert ended.history.all_ended


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_journal_is_all_that_there_is_to_know(scheduler: str, tmp_path: Path) -> None:
    """What is told, what is known and what is read from the journal are the same at every moment, over a kill too."""
    told: Told = []
    sweep = make_sweep(scheduler, trials=6, reports=4)
    for ticks in (7, None):
        controller = control(sweep, tmp_path / "sweep", told)
        play(controller, ticks=ticks)
        assert read_history(tmp_path / "sweep", seeds=1, reports=4) == controller.history
    lines = (tmp_path / "sweep" / "journal.jsonl").read_text().splitlines()
    assert [event for event, _ in told] == [json.loads(line) for line in lines]
    assert told[-1][1] == controller.history
    assert len(told[0][1].trials) == 0  # histories that were told do not change


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_an_older_journal_goes_on(scheduler: str, tmp_path: Path) -> None:
    """One whose events are only those that verdicts depend on."""
    sweep = make_sweep(scheduler, trials=6, reports=4)
    whole = control(sweep, tmp_path / "whole", concurrent=1)
    play(whole)
    killed = control(sweep, tmp_path / "killed", concurrent=1)
    play(killed, ticks=7)
    journal = tmp_path / "killed" / "journal.jsonl"
    lines = [line for line in journal.read_text().splitlines() if json.loads(line)["event"] not in ("start", "begin")]
    journal.write_text("".join(line + "\n" for line in lines))
    before = read_history(tmp_path / "killed", seeds=1, reports=4)
    assert {name: trial.reports for name, trial in before.trials.items()} == {
        name: trial.reports for name, trial in killed.history.trials.items()
    }
    again = control(sweep, tmp_path / "killed", concurrent=1)
    play(again)
    assert outcome(again) == outcome(whole)


def test_when_ray_gives_up_its_trials_begin_again(tmp_path: Path) -> None:
    sweep = make_sweep("none", trials=2, reports=1)
    controller = control(sweep, tmp_path / "sweep")
    begun = [controller.next_segment() for _ in range(3)]
    assert [trial.name for trial in begun if trial is not None] == ["trial_000", "trial_001"]
    controller.restart()
    assert not any(trial.running for trial in controller.history.trials.values())
    play(controller)
    assert {trial.state for trial in controller.history.trials.values()} == {"finished"}
    assert not any(trial.failures for trial in controller.history.trials.values())


def test_a_space_that_holds_fewer_settings_than_are_asked_for_ends_the_sweep(tmp_path: Path) -> None:
    sweep = make_sweep("none", trials=5, reports=1)
    foreseen = Plan(5, ({KEY: 0.1}, {KEY: 0.2}), {"never": 1}, (({KEY: 0.4}, ("never",)),))
    proposer: Any = SimpleNamespace(sweep=sweep, next=lambda history: (None, [({KEY: 0.3}, ["no"])]))
    for _ in range(2):  # the second time it is known
        controller = SweepController(proposer, foreseen, tmp_path, concurrent=1)
        controller.start()
        play(controller)
        assert (controller.history.total, controller.history.all_ended) == (2, True)
        assert controller.history.reasons() == {"never": 1, "no": 1}
    assert (tmp_path / "journal.jsonl").read_text().count("exhausted") == 1


def test_only_trials_from_which_one_may_go_on_keep_their_checkpoints(tmp_path: Path) -> None:
    controller = control(make_sweep("asha", trials=6, reports=4), tmp_path / "sweep")
    play(controller)
    kept = {path.name for path in (tmp_path / "sweep" / "trials").iterdir()}
    assert kept == {trial.name for trial in controller.history.trials.values() if trial.state == "finished"}
    assert len(kept) < 6


def test_seeds_are_trials_of_their_own(tmp_path: Path) -> None:
    controller = control(make_sweep("none", trials=2, reports=1, seeds=2), tmp_path / "sweep")
    play(controller)
    assert [(t.name, t.setting, t.seed) for t in controller.history.trials.values()] == [
        ("trial_000_seed_0", 0, 0),
        ("trial_000_seed_1", 0, 1),
        ("trial_001_seed_0", 1, 0),
        ("trial_001_seed_1", 1, 1),
    ]
