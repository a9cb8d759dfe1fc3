"""The work of planning settings and of recording events, which is counted in calls because seconds vary."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.train.sweep.conftest import LookedUp
from tokenfree.core.settings import build
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.batches.base import Pool
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.objectives import canine_s
from tokenfree.train.sweep.history import History
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.search import Proposer, SweepJournal, plan
from tokenfree.train.sweep.subjects import PretrainingSubject
from tokenfree.train.sweep.tune import find_placement

MakeRecipe = Callable[..., PretrainRecipe]
# Calls of Python and C functions for a setting. It takes 5,000; 40,000 if the annotations of the recipe's classes are
# read for each one.
MAX_CALLS_PER_SETTING = 8_000


def make_proposer(recipe: PretrainRecipe, corpus: str, searcher: str, trials: int) -> Proposer:
    space = {
        "train.seed": {"integer": [0, 9_999]},
        "model.embedder.hashes": {"choice": [2, 3, 4]},
        "objective.mask_fraction": {"choice": [0.1, 0.15, 0.2]},
    }
    mapping = {"base": to_mapping(recipe), "space": space, "searcher": searcher, "trials": trials}
    return Proposer(build(SweepRecipe, mapping, source="test"), PretrainingSubject(corpus))


def num_calls(function: Callable[[], Any]) -> int:
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    previous = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(previous)
    return calls


@pytest.mark.parametrize("searcher", ["even", "grid", "random"])
def test_plan_works_in_proportion_to_the_number_of_trials(
    searcher: str, corpus: str, make_recipe: MakeRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = []

    def make_pool(pieces: list[str]) -> Pool:
        pools.append(pieces)
        return Pool(pieces)

    monkeypatch.setattr(canine_s, "Pool", make_pool)

    def plan_and_place(trials: int) -> None:
        proposer = make_proposer(make_recipe(), corpus, searcher, trials)
        planned = plan(proposer)
        assert len(planned.proposed) == trials
        find_placement(proposer.sweep, planned.proposed, [{"CPU": 2.0}])

    # What is read once a process.
    plan_and_place(2)
    calls = {trials: num_calls(lambda trials=trials: plan_and_place(trials)) for trials in (30, 60, 120)}
    assert calls[120] - calls[60] < 2.1 * (calls[60] - calls[30])
    assert calls[120] - calls[60] < 60 * MAX_CALLS_PER_SETTING
    assert not pools, "tables of the vocabulary, which only batches need"


@pytest.mark.parametrize("searcher", ["even", "random"])
def test_events_do_not_read_all_trials(
    searcher: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    proposer = make_proposer(make_recipe(), corpus, searcher, 40)
    heard: list[str] = []

    def hear(event: Any, history: History) -> None:
        heard.append(event["event"])

    journal = SweepJournal(proposer, plan(proposer), tmp_path, hear)
    journal.start()
    journal.history.trials = LookedUp()

    def run_trial(number: int) -> None:
        trial = journal.next_trial()
        assert trial is not None
        report = {"report": 1, "step": 1, "validation_loss": 1 / (1 + number)}
        journal.report(trial.name, report, stop=number % 2 == 0)
        if number % 2:
            for _ in range(2):
                journal.failed(trial.name, "ValueError: no")

    calls = [num_calls(lambda number=number: run_trial(number)) for number in range(40)]
    assert journal.next_trial() is None
    assert journal.history.all_ended
    journal.close()
    assert len(heard) == 1 + heard.count("skip") + 40 * 4
    assert max(calls[-10:]) < 1.2 * max(calls[:10])
