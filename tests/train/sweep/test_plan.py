"""What a sweep would try and what it costs, before anything is trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.sweep.planning import trial_costs
from tokenfree.train.sweep.recipe import Asha, MedianStopping, NoScheduler, SweepRecipe, expected_reports
from tokenfree.train.sweep.run import prepare
from tokenfree.workflows.terminal.sweep import describe

MakeSweep = Callable[..., SweepRecipe]


@pytest.fixture
def make_sweep(make_recipe: Callable[..., PretrainRecipe]) -> MakeSweep:
    """A sweep of two settings, with five reports a trial."""

    def make(**over: Any) -> SweepRecipe:
        space = {"train.learning_rate": {"grid": [0.01, 0.02]}}
        mapping = {"base": to_mapping(make_recipe()), "space": space, "searcher": "grid", "budget": {"steps": 10}}
        return build(SweepRecipe, {**mapping, "scheduler": "none", **over}, source="test")

    return make


def test_a_dry_run_shows_settings_placement_and_costs(corpus: str, make_sweep: MakeSweep, tmp_path: Path) -> None:
    lines = list(describe(make_sweep(concurrent=1), corpus, str(tmp_path)))
    assert lines[0] == "2 settings"
    assert "train.learning_rate = 0.01  (" in lines[1]
    assert lines[3] == "0 settings cannot be run"
    assert lines[4].endswith("1 trial side by side")
    assert lines[5] == "budget of a trial: 10 steps, 5 reports"
    assert lines[6].startswith("all trials: 20 steps, ")


@pytest.mark.parametrize("unit", ["flops", "characters"])
def test_a_budget_is_worth_fewer_steps_of_a_larger_batch(corpus: str, make_sweep: MakeSweep, unit: str) -> None:
    sweep = make_sweep(space={"train.global_batch": {"grid": [4, 8]}}, budget={unit: 1e7})
    proposer, plan = prepare(sweep, corpus, "none")
    small, large = trial_costs(proposer.sweep, proposer.subject, plan.settings)
    assert large.step_flops == pytest.approx(2 * small.step_flops)
    assert small.steps == pytest.approx(2 * (large.steps or 0), abs=1)
    assert small.steps == pytest.approx(1e7 / getattr(small, f"step_{unit}"), abs=1)


def test_reports_that_are_expected_of_a_trial() -> None:
    asha = Asha(grace=1, reduction=3)
    assert expected_reports(asha, 9) == pytest.approx(1 + 2 / 3 + 6 / 9)
    assert expected_reports(asha, 9, 2) == pytest.approx(1 + 6 / 3)
    assert expected_reports(asha, 9, 3) == 6
    assert expected_reports(Asha(grace=9), 5) == 5
    assert expected_reports(MedianStopping(grace=2), 10) == 6
    assert expected_reports(MedianStopping(grace=2), 10, 4) == 6
    assert [expected_reports(scheduler, 5, 2) for scheduler in (None, NoScheduler())] == [3, 3]


def test_a_grid_of_which_half_cannot_be_run_is_refused(corpus: str, make_sweep: MakeSweep, tmp_path: Path) -> None:
    """Hashes must divide the width of 16."""
    key = "model.embedder.hashes"
    with pytest.raises(
        UserError, match=r"space: 2 of 4 settings of the grid cannot be run \(.*hashes: 5 does not.*when"
    ):
        prepare(make_sweep(space={key: {"grid": [2, 4, 5, 7]}}), corpus, str(tmp_path))
    _, plan = prepare(make_sweep(space={key: {"grid": [2, 4, 8, 5, 7]}}), corpus, str(tmp_path))
    assert (len(plan.settings), sum(plan.skipped.values())) == (3, 2)
