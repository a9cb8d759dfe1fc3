"""Verdicts as pure functions: what holds of every history, for one scheduler or for all of them."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenfree.core.settings import Slot, build
from tokenfree.train.sweep.control.history import History, Verdict
from tokenfree.train.sweep.control.slots import Scheduler
from tokenfree.train.sweep.space.recipe import SweepRecipe
from tokenfree.train.sweep.space.targets import ERROR, LOSS, SCORE

KEY = "train.learning_rate"
SCHEDULERS = Slot("tokenfree.train.sweep.schedulers", "asha").names()
REPORTS = 9

# The losses of each trial, one a report: all different, and exact in binary, so that sums of them are.
curves = st.lists(st.lists(st.integers(0, 10**6), min_size=1, max_size=REPORTS - 1), min_size=1, max_size=12).map(
    lambda drawn: [[loss + 2.0**-10 * (10 * i + j) for j, loss in enumerate(curve)] for i, curve in enumerate(drawn)]
)


def make_sweep(scheduler: Any, trials: int = 12) -> SweepRecipe:
    mapping = {"base": {}, "space": {KEY: {"uniform": [0.0, 1.0]}}, "scheduler": scheduler}
    return build(SweepRecipe, {**mapping, "trials": trials, "reports": REPORTS}, source="test")


def make_history(losses: list[list[float]], *, to_come: int = 0) -> History:
    """Trials that reported these losses; `to_come` more are not proposed yet."""
    history = History(seeds=1, reports=REPORTS).after({"event": "start", "settings": len(losses) + to_come})
    for setting in range(len(losses)):
        history = history.after({"event": "propose", "setting": setting, "values": {KEY: setting / 100}})
    for setting, curve in enumerate(losses):
        for number, loss in enumerate(curve, 1):
            report = {"report": number, "validation_loss": loss}
            event = {"event": "report", "trial": f"trial_{setting:03d}", "verdict": "go", "report": report}
            history = history.after(event)
    return history


def verdicts(scheduler: Scheduler, history: History) -> dict[str, Verdict]:
    """Of every trial that has reported."""
    trials = [trial for trial in history.trials.values() if trial.reports]
    return {trial.name: scheduler.verdict(history, trial, trial.last) for trial in trials}


def test_trials_of_a_task_are_judged_by_their_scores() -> None:
    """Whatever their losses are: less is better of an error, more of a score."""
    for target, kept in ((SCORE, "trial_001"), (ERROR, "trial_000"), (LOSS, "trial_000")):
        history = History(seeds=1, reports=4, target=target).after({"event": "start", "settings": 2})
        for setting in range(2):
            history = history.after({"event": "propose", "setting": setting, "values": {KEY: setting}})
        for setting, value in enumerate((0.25, 0.75)):
            report = {"report": 1, "validation_loss": float(setting), target.metric: value}
            event = {"event": "report", "trial": f"trial_00{setting}", "verdict": "go", "report": report}
            history = history.after(event)
        found = verdicts(make_sweep({"name": "asha", "reduction": 2}, trials=2).scheduler, history)
        assert found["trial_001"] == ("go" if kept == "trial_001" else "stop")


@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=50, deadline=None)
@given(curves, st.integers(0, 3))
def test_a_verdict_changes_nothing_and_is_the_same_again(name: str, losses: list[list[float]], to_come: int) -> None:
    scheduler = make_sweep(name).scheduler
    history = make_history(losses, to_come=to_come)
    before = copy.deepcopy(history)
    found = verdicts(scheduler, history)
    assert history == before
    assert found == verdicts(make_sweep(name).scheduler, before)
    allowed = {"go", "wait", "stop"} if scheduler.stops_early() else {"go", "wait", "exploit"}
    assert set(found.values()) <= allowed


@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=50, deadline=None)
@given(curves)
def test_who_leads_everywhere_is_neither_stopped_nor_replaced(name: str, losses: list[list[float]]) -> None:
    ahead = [-1.0 - number for number in range(REPORTS - 1)]
    history = make_history([*losses, ahead])
    leader = f"trial_{len(losses):03d}"
    assert verdicts(make_sweep(name).scheduler, history)[leader] in ("go", "wait")


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("change", [lambda loss: loss + 7, lambda loss: loss * 8], ids=["shifted", "scaled"])
@settings(max_examples=30, deadline=None)
@given(losses=curves)
def test_the_scale_of_the_loss_does_not_matter(
    name: str, change: Callable[[float], float], losses: list[list[float]]
) -> None:
    scheduler = make_sweep(name).scheduler
    changed = [[change(loss) for loss in curve] for curve in losses]
    assert verdicts(scheduler, make_history(losses)) == verdicts(scheduler, make_history(changed))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=30, unique=True), st.integers(2, 4))
def test_asha_lets_its_share_go_on_from_a_rung(losses: list[int], reduction: int) -> None:
    scheduler = make_sweep({"name": "asha", "grace": 1, "reduction": reduction}).scheduler
    found = verdicts(scheduler, make_history([[float(loss)] for loss in losses]))
    for number, (loss, verdict) in enumerate(zip(losses, found.values(), strict=True), 1):
        goes = loss in sorted(losses[:number])[: max(1, number // reduction)]  # of the trials up to this one
        assert verdict == ("go" if goes else "stop")


@pytest.mark.parametrize("name", ["asha", "median_stopping"])
@settings(max_examples=100, deadline=None)
@given(curves, curves, st.data())
def test_who_comes_first_decides_nothing(
    name: str, losses: list[list[float]], later: list[list[float]], data: st.DataObject
) -> None:
    scheduler = make_sweep(name).scheduler
    judged = f"trial_{len(losses) - 1:03d}"
    known = [curve[: data.draw(st.integers(0, len(curve)))] for curve in losses[:-1]]
    whole = verdicts(scheduler, make_history(losses))[judged]
    soon = verdicts(scheduler, make_history([*known, losses[-1], *later]))[judged]
    assert soon in (whole, "wait")


def test_a_trial_waits_only_while_earlier_ones_can_decide() -> None:
    asha = make_sweep({"name": "asha", "grace": 1, "reduction": 2}).scheduler
    assert verdicts(asha, make_history([[], [5.0]])) == {"trial_001": "wait"}  # 4 or 6 of the first decide
    assert verdicts(asha, make_history([[4.0], [], [], [5.0]]))["trial_003"] == "wait"
    assert verdicts(asha, make_history([[4.0], [], [5.0]]))["trial_002"] == "stop"  # one of three goes on
    assert verdicts(asha, make_history([[6.0], [7.0], [], [5.0]]))["trial_003"] == "go"
    median = make_sweep("median_stopping").scheduler
    assert verdicts(median, make_history([[1.0], [1.0], [5.0], [2.0]]))["trial_002"] == "go"  # two before it
    assert verdicts(median, make_history([[1.0], [], [1.0], [5.0]]))["trial_003"] == "wait"


@settings(max_examples=100, deadline=None)
@given(curves, st.integers(0, 10**6))
def test_a_lower_loss_never_turns_go_into_stop(losses: list[list[float]], less: int) -> None:
    better = [*losses[:-1], [loss - less for loss in losses[-1]]]
    for name in ("asha", "median_stopping", "none"):
        scheduler = make_sweep(name).scheduler
        before, after = (list(verdicts(scheduler, make_history(curves)).values())[-1] for curves in (losses, better))
        assert (before, after) != ("go", "stop")


@pytest.mark.parametrize("name", ["asha", "hyperband", "median_stopping"])
def test_a_loss_that_is_no_number_is_worse_than_any(name: str) -> None:
    history = make_history([[1e9], [1e8], [1e7], [math.nan], *([[1e7]] * 5)])
    assert verdicts(make_sweep(name).scheduler, history)["trial_003"] == "stop"


def test_median_stopping_is_the_rule_of_the_paper() -> None:
    """The best loss so far against the median of running means: 3, 4 and 5 at the second report."""
    others = [[2.0, 4.0], [4.0, 4.0], [5.0, 5.0, 0.0]]
    scheduler = make_sweep("median_stopping").scheduler
    assert verdicts(scheduler, make_history([*others, [9.0, 4.0]]))["trial_003"] == "go"  # 4 is not above 4
    assert verdicts(scheduler, make_history([*others, [4.1, 9.0]]))["trial_003"] == "stop"
    assert verdicts(scheduler, make_history([*others[:2], [9.0, 9.0]]))["trial_002"] == "go"  # too few others


def test_hyperband_waits_for_its_whole_bracket() -> None:
    scheduler = make_sweep("hyperband").scheduler
    first = [[float(loss)] for loss in range(9)]  # the first bracket has nine trials and its first rung at report 1
    assert set(verdicts(scheduler, make_history(first[:8], to_come=4)).values()) == {"wait"}
    assert set(verdicts(scheduler, make_history([*first[:8], []], to_come=3)).values()) == {"wait"}
    found = verdicts(scheduler, make_history(first, to_come=3))
    assert list(found.values()) == ["go"] * 3 + ["stop"] * 6


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=12, unique=True), st.sampled_from([0.1, 0.25, 0.5]))
def test_a_generation_of_pbt(losses: list[int], quantile: float) -> None:
    """The worst take over from the best; all others wait for that, and then all go on."""
    sweep = make_sweep({"name": "pbt", "quantile": quantile}, trials=len(losses))
    history = make_history([[float(loss)] for loss in losses])
    found = verdicts(sweep.scheduler, history)
    count = max(1, int(len(losses) * quantile))
    order = sorted(found, key=lambda name: history.trials[name].last["validation_loss"])
    assert [name for name in order if found[name] == "exploit"] == order[-count:]
    assert set(found.values()) == {"exploit", "wait"}
    for name in order[-count:]:
        exploit = sweep.scheduler.exploit(sweep, history, history.trials[name])
        assert exploit == sweep.scheduler.exploit(sweep, history, history.trials[name])
        assert (exploit.trial, exploit.report_number) == (name, 1)
        assert exploit.donor in order[:count]
        history = history.after({"event": "exploit", "trial": name, "values": exploit.values, "report": 1})
    assert set(verdicts(sweep.scheduler, history).values()) == {"go"}


def test_a_generation_that_is_not_whole_waits() -> None:
    scheduler = make_sweep("pbt").scheduler
    assert set(verdicts(scheduler, make_history([[1.0], [2.0]], to_come=1)).values()) == {"wait"}
    assert set(verdicts(scheduler, make_history([[1.0], [2.0], []])).values()) == {"wait"}
