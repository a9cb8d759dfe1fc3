"""How long a sweep takes: sums over its trials, bounds by its scheduler, and what is left of one that was killed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.sweep import planning
from tokenfree.train.sweep.history import JOURNAL, History, Journal
from tokenfree.train.sweep.planning import SweepTime, TrialCost, TrialSpeed, time_left
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.run import prepare
from tokenfree.workflows.terminal.sweep import describe

MakeSweep = Callable[..., SweepRecipe]
COSTS = [TrialCost(parameters=1, step_flops=flops, step_characters=1.0, steps=10) for flops in (1.0, 3.0)]
SPEED = TrialSpeed(seconds_per_flop=2.0, validation_seconds=1.0, source="by a sundial")
REPORT = {"report": 1, "step": 2, "validation_loss": 3.0, "flops": 4.0, "train_seconds": 8.0}


@pytest.fixture
def make_sweep(make_recipe: Callable[..., PretrainRecipe]) -> MakeSweep:
    """A sweep of two settings, with five reports a trial."""

    def make(**over: Any) -> SweepRecipe:
        space = {"train.learning_rate": {"grid": [0.01, 0.02]}}
        mapping = {"base": to_mapping(make_recipe()), "space": space, "searcher": "grid", "budget": {"steps": 10}}
        return build(SweepRecipe, {**mapping, "scheduler": "none", **over}, source="test")

    return make


def history(*events: dict[str, Any]) -> History:
    """Of two trials, after these events."""
    known = History(seeds=1, reports=5)
    begun = [{"event": "propose", "setting": number, "values": {"n": number}} for number in range(2)]
    for event in ({"event": "start", "settings": 2}, *begun, *events):
        known = known.after(event)
    return known


def report(trial: int, number: int, verdict: str = "go") -> dict[str, Any]:
    return {"event": "report", "trial": f"trial_00{trial}", "verdict": verdict, "report": {**REPORT, "report": number}}


def test_all_trials_with_their_validations(make_sweep: MakeSweep) -> None:
    none = History(seeds=1, reports=5)
    # 10 steps of 2 s and 5 validations of 1 s; the other setting has three times the arithmetic
    assert time_left(make_sweep(), COSTS, 2, SPEED, 1, none) == SweepTime(100.0, 100.0)
    assert time_left(make_sweep(), COSTS, 2, SPEED, 2, none) == SweepTime(75.0, 75.0)  # no shorter than the longest
    assert time_left(make_sweep(), COSTS, 3, SPEED, 1, none) == SweepTime(150.0, 150.0)  # with one like their mean
    assert time_left(make_sweep(seeds=2), COSTS, 4, SPEED, 1, none) == SweepTime(200.0, 200.0)
    seconds = [TrialCost(cost.parameters, cost.step_flops, 1.0, None) for cost in COSTS]
    assert time_left(make_sweep(budget={"seconds": 60}), seconds, 2, SPEED, 1, none).most == 120 + 5 + 15


@pytest.mark.parametrize(
    ("scheduler", "least"),
    [
        ({"name": "asha"}, 1),
        ({"name": "asha", "grace": 2}, 2),
        ({"name": "asha", "grace": 9}, 5),
        ({"name": "median_stopping", "grace": 3}, 3),
        ({"name": "none"}, 5),
    ],
)
def test_a_scheduler_may_stop_all_but_one(make_sweep: MakeSweep, scheduler: dict[str, Any], least: int) -> None:
    sweep = make_sweep(scheduler=scheduler)
    assert planning.least_reports(sweep) == least
    found = time_left(sweep, COSTS, 2, SPEED, 1, History(seeds=1, reports=5))
    assert found == SweepTime(pytest.approx(25 + 75 * least / 5), 100.0)  # pyright: ignore[reportArgumentType]


def test_what_is_left_of_a_sweep_that_goes_on(make_sweep: MakeSweep) -> None:
    sweep = make_sweep(scheduler={"name": "asha"})
    found = time_left(sweep, COSTS, 2, SPEED, 1, history(report(0, 5), report(1, 2)))
    assert (found.least, found.most) == (0.0, pytest.approx(75 * 3 / 5))
    stopped = time_left(sweep, COSTS, 2, SPEED, 1, history(report(0, 1, "stop")))
    assert (stopped.least, stopped.most) == (75.0, 75.0)  # the other one is the best


def test_a_dry_run_measures_or_asks_the_trials(
    corpus: str, make_sweep: MakeSweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = make_sweep(scheduler={"name": "asha"}, concurrent=1)
    line = list(describe(sweep, corpus, str(tmp_path)))[-1]
    assert line.startswith("time: ")
    assert " on this machine, one trial after another, validations included (measured on 6 steps, " in line
    journal = Journal(tmp_path / JOURNAL)
    journal.open()
    slow = {**REPORT, "train_seconds": 36e6, "flops": 1e9}
    journal.append({"event": "start", "settings": 2})
    journal.append({"event": "propose", "setting": 0, "values": {"train.learning_rate": 0.01}})
    journal.append({"event": "report", "trial": "trial_000", "verdict": "stop", "report": slow})
    journal.close()
    monkeypatch.setattr(planning, "seconds_of_step", None)  # nothing is trained
    line = list(describe(sweep, corpus, str(tmp_path)))[-1]
    assert line.startswith("time left: about ")
    assert line.endswith("(by the 2 steps that its trials have trained)")
    assert float(line.split()[3].replace(",", "")) > 1
    assert line.split()[4] == "hours"


def test_a_grid_of_which_half_cannot_be_run_is_refused(corpus: str, make_sweep: MakeSweep, tmp_path: Path) -> None:
    """Hashes must divide the width of 16."""
    key = "model.embedder.hashes"
    with pytest.raises(
        UserError, match=r"space: 2 of 4 settings of the grid cannot be run \(.*hashes: 5 does not.*when"
    ):
        prepare(make_sweep(space={key: {"grid": [2, 4, 5, 7]}}), corpus, str(tmp_path))
    _, plan = prepare(make_sweep(space={key: {"grid": [2, 4, 8, 5, 7]}}), corpus, str(tmp_path))
    assert (len(plan.settings), sum(plan.skipped.values())) == (3, 2)
