"""Journals of sweeps under Ray Tune's schedulers, with trials that only pretend to train, and kills in between."""

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tokenfree.core.settings import build
from tokenfree.train.sweep.history import Event, History, TrialState, journal_line, read_history
from tokenfree.train.sweep.recipe import SCHEDULER, SweepRecipe
from tokenfree.train.sweep.search import Proposer, SweepJournal
from tokenfree.train.sweep.tune import make_scheduler

SCHEDULERS = [name for name in SCHEDULER.names() if name != "hyperband"]  # which needs trials of Tune itself
KEY = "train.learning_rate"
CONTROLLER: Any = SimpleNamespace(get_live_trials=list)


class TuneTrial(SimpleNamespace):
    """What schedulers read of a trial of Tune, which can be a key."""

    __hash__ = object.__hash__  # pyright: ignore


Loss = Callable[[TrialState, int], float]
Told = list[tuple[Event, History]]


def make_sweep(scheduler: Any, *, trials: int, reports: int, seeds: int = 1) -> SweepRecipe:
    space = {KEY: {"uniform": [0.0, 1.0]}}
    mapping = {
        "base": {},
        "space": space,
        "scheduler": scheduler,
        "trials": trials,
        "reports": reports,
        "seeds": seeds,
    }
    return build(SweepRecipe, mapping, source="test")


def planned(num_settings: int, settings: list[dict[str, Any]]) -> History:
    return History(seeds=1, reports=1, num_settings=num_settings, proposed=list(settings))


def begin(sweep: SweepRecipe, folder: Path, told: Told | None = None) -> SweepJournal:
    """The journal of a sweep that begins, or resumes, in `folder`; `told` gets what it tells."""
    folder.mkdir(exist_ok=True)
    settings = [{KEY: (index * 7 % 10) / 10} for index in range(sweep.trials or 0)]
    proposer = Proposer(sweep, subject=None)  # pyright: ignore[reportArgumentType]
    heard = told if told is not None else []
    journal = SweepJournal(
        proposer, planned(len(settings), settings), folder, lambda *news: heard.append(news)
    )
    journal.start()
    return journal


def by_rate(trial: TrialState, report_number: int) -> float:
    """Low rates are good from the start."""
    return trial.values[KEY] + 1 / report_number


def play(
    journal: SweepJournal,
    *,
    concurrent: int = 2,
    loss: Loss = by_rate,
    order: int = 0,
    ticks: int | None = None,
) -> list[tuple[str, int]]:
    """Run pretended trials as Tune would, those that run in an order drawn from the seed `order`; each report.

    A trial's checkpoint is a file with the number of its report. After `ticks` reports all is left as a kill
    would leave it.
    """
    draw, scheduler = random.Random(order), make_scheduler(journal.sweep, journal.history)
    running: dict[str, Any] = {}  # Tune's trials, by our names
    seen: list[tuple[str, int]] = []
    while ticks is None or len(seen) < ticks:
        while len(running) < concurrent and (begun := journal.next_trial()) is not None:
            running[begun.name] = TuneTrial(
                trial_id=f"{order}{begun.name}", config={"segment": SimpleNamespace(name=begun.name)}
            )
            scheduler.on_trial_add(SimpleNamespace(), running[begun.name])  # pyright: ignore[reportArgumentType]
        if not running:
            assert journal.history.all_ended
            break
        name = list(running)[draw.randrange(len(running))]
        trial = journal.history.trials[name]
        checkpoint = journal.folder(name) / "state"
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        number = 1 + (int(checkpoint.read_text()) if checkpoint.exists() else 0)
        checkpoint.write_text(str(number))
        seen.append((name, number))
        result = {"report_number": number, "quality": loss(trial, number)}
        if number == journal.sweep.reports:
            scheduler.on_trial_complete(SimpleNamespace(), running[name], result)  # pyright: ignore[reportArgumentType]
            stop = True
        else:
            stop = scheduler.on_trial_result(CONTROLLER, running[name], result) == "STOP"  # pyright: ignore[reportArgumentType]
        journal.report(
            name, {"report": number, "step": number, "validation_loss": result["quality"]}, stop=stop
        )
        if stop:
            del running[name]
    journal.close()
    return seen


def outcome(journal: SweepJournal) -> dict[str, Any]:
    return {
        trial.name: (trial.state, trial.report_number, trial.values)
        for trial in journal.history.trials.values()
    }


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("concurrent", [1, 3])
def test_a_sweep_that_is_killed_again_and_again_ends_with_every_trial(
    scheduler: str, concurrent: int, tmp_path: Path
) -> None:
    """One after another, `asha` and `none` also have the outcome of an undisturbed sweep: rungs are as before."""
    sweep = make_sweep(scheduler, trials=12, reports=9)
    seen = list[tuple[str, int]]()
    for life in range(1000):
        killed = begin(sweep, tmp_path / "killed")
        seen += play(killed, concurrent=concurrent, order=life, ticks=5)
        if killed.history.all_ended:
            break
    assert len(killed.history.trials) == killed.history.total == 12
    assert len(seen) == len(set(seen))  # no report is made twice
    for name, trial in killed.history.trials.items():
        assert [number for other, number in seen if other == name] == list(range(1, trial.report_number + 1))
    # `median` compares with the reports since the last kill.
    if concurrent == 1 and scheduler != "median":
        whole = begin(sweep, tmp_path / "whole")
        play(whole, concurrent=1)
        assert outcome(killed) == outcome(whole)


def test_bad_trials_stop_and_the_best_does_not(tmp_path: Path) -> None:
    journal = begin(make_sweep("asha", trials=10, reports=9), tmp_path / "sweep")
    play(journal)
    trials = journal.history.trials.values()
    assert [trial.state for trial in trials if trial.values[KEY] == 0.0] == ["finished"]
    assert sum(trial.state == "stopped" for trial in trials) >= 3


def test_asha_keeps_its_rungs_over_a_kill(tmp_path: Path) -> None:
    """The losses before the kill count: later trials are judged against them."""
    sweep = make_sweep({"name": "asha", "grace": 1, "reduction": 2}, trials=4, reports=4)
    losses = {"trial_000": 1.0, "trial_001": 2.0, "trial_002": 0.5, "trial_003": 3.0}
    before = begin(sweep, tmp_path / "sweep")
    seen = play(before, concurrent=1, loss=lambda trial, number: losses[trial.name], ticks=5)
    assert [name for name, _ in seen] == ["trial_000"] * 4 + ["trial_001"]
    assert before.history.trials["trial_001"].state == "stopped"
    after = begin(sweep, tmp_path / "sweep")
    seen = play(after, concurrent=1, loss=lambda trial, number: losses[trial.name])
    assert [name for name, _ in seen] == ["trial_002"] * 4 + ["trial_003"]


def test_a_score_is_better_the_higher_it_is(tmp_path: Path) -> None:
    mapping = {
        "base": {"task": "classification"},
        "space": {KEY: {"choice": [1]}},
        "objectives": ["dev_score"],
    }
    sweep = build(SweepRecipe, {**mapping, "reports": 4, "scheduler": {"reduction": 2}}, source="test")
    history = History(seeds=1, reports=4, target=sweep.quality)
    for setting, score in enumerate((0.2, 0.9)):
        history.record({"event": "propose", "setting": setting, "values": {}})
        report = {"report": 1, "dev_score": score}
        name = f"trial_00{setting}"
        history.record({"event": "report", "trial": name, "verdict": "go", "report": report})
    scheduler = make_scheduler(sweep, history)
    decisions = []
    for name, score in (("a", 0.1), ("b", 0.95)):
        trial: Any = SimpleNamespace(config={"segment": SimpleNamespace(name=name)})
        nothing: Any = SimpleNamespace()
        scheduler.on_trial_add(nothing, trial)
        decisions.append(scheduler.on_trial_result(nothing, trial, {"report_number": 1, "quality": score}))
    assert decisions == ["STOP", "CONTINUE"]


def test_a_trial_that_fails_is_tried_once_more_and_then_left(tmp_path: Path) -> None:
    told: Told = []
    sweep = make_sweep("asha", trials=3, reports=3)
    journal = begin(sweep, tmp_path / "sweep", told)
    for attempt in (1, 2):
        trial = journal.next_trial()
        assert trial is not None
        assert trial.name == "trial_000"
        journal.failed(trial.name, f"ValueError: attempt {attempt}")
        if attempt == 1:
            assert journal.history.trials[trial.name].state == "waiting"
            journal.close()
            journal = begin(sweep, tmp_path / "sweep", told)
    failed = journal.history.trials["trial_000"]
    assert (failed.state, failed.error) == ("failed", "ValueError: attempt 2")
    journal.close()
    ended = begin(sweep, tmp_path / "sweep", told)
    play(ended)
    errors = [event["error"] for event, _ in told if event["event"] == "failure"]
    assert errors == ["ValueError: attempt 1", "ValueError: attempt 2"]
    assert ended.history.all_ended


def test_the_journal_is_all_that_there_is_to_know(tmp_path: Path) -> None:
    """The events, the history and what is read from the journal agree at every moment, also after a kill."""
    told: Told = []
    sweep = make_sweep("asha", trials=6, reports=4)
    path = tmp_path / "sweep" / "journal.jsonl"
    for ticks, torn in ((7, b'{"event": "beg'), (None, b"")):
        journal = begin(sweep, tmp_path / "sweep", told)
        play(journal, ticks=ticks)
        assert read_history(tmp_path / "sweep", seeds=1, reports=4) == journal.history
        path.write_bytes(path.read_bytes() + torn)
    assert path.read_bytes() == b"".join(journal_line(event) for event, _ in told)
    assert told[-1][1] == journal.history


def test_a_space_that_holds_fewer_settings_than_are_asked_for_ends_the_sweep(tmp_path: Path) -> None:
    sweep = make_sweep("none", trials=5, reports=1)
    foreseen = planned(5, [{KEY: 0.1}, {KEY: 0.2}])
    foreseen.record({"event": "skip", "values": {KEY: 0.4}, "reasons": ["never"]})
    proposer: Any = SimpleNamespace(
        sweep=sweep, subject=None, new_settings=lambda history: [({KEY: 0.3}, ["no"])]
    )
    for _ in range(2):  # the second time it is known
        journal = SweepJournal(proposer, foreseen, tmp_path, lambda event, history: None)
        journal.start()
        play(journal)
        assert (journal.history.total, journal.history.all_ended) == (2, True)
        assert journal.history.reasons() == {"never": 1, "no": 1}
    assert (tmp_path / "journal.jsonl").read_text().count("exhausted") == 1


def test_only_trials_that_may_resume_keep_their_checkpoints(tmp_path: Path) -> None:
    journal = begin(make_sweep("asha", trials=6, reports=4), tmp_path / "sweep")
    play(journal)
    kept = {path.name for path in (tmp_path / "sweep" / "trials").iterdir()}
    assert kept == {trial.name for trial in journal.history.trials.values() if trial.state == "finished"}
    assert len(kept) < 6


def test_seeds_are_trials_of_their_own(tmp_path: Path) -> None:
    journal = begin(make_sweep("none", trials=2, reports=1, seeds=2), tmp_path / "sweep")
    play(journal)
    assert [(t.name, t.setting, t.seed) for t in journal.history.trials.values()] == [
        ("trial_000_seed_0", 0, 0),
        ("trial_000_seed_1", 0, 1),
        ("trial_001_seed_0", 1, 0),
        ("trial_001_seed_1", 1, 1),
    ]
