"""What a sweep would try, before anything is trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.run import prepare
from tokenfree.workflows.terminal.sweep import describe

MakeSweep = Callable[..., SweepRecipe]


@pytest.fixture
def make_sweep(make_recipe: Callable[..., PretrainRecipe]) -> MakeSweep:
    """A sweep of two settings, with five reports a trial."""

    def make(**over: Any) -> SweepRecipe:
        space = {"train.learning_rate": {"grid": [0.01, 0.02]}}
        mapping = {
            "base": to_mapping(make_recipe()),
            "space": space,
            "searcher": "grid",
            "budget": {"steps": 10},
        }
        return build(SweepRecipe, {**mapping, "scheduler": "none", **over}, source="test")

    return make


def test_a_dry_run_shows_settings_and_placement(corpus: str, make_sweep: MakeSweep, tmp_path: Path) -> None:
    lines = list(describe(make_sweep(concurrent=1), corpus, str(tmp_path)))
    assert lines == [
        "2 settings, 1 seed each: 2 trials",
        "    0  train.learning_rate = 0.01",
        "    1  train.learning_rate = 0.02",
        "0 settings cannot be run",
        "1 trial side by side, each with 1 CPU",
        "scheduler: none, which after a kill keeps all that it needs",
        "budget of a trial: 10 steps, 5 reports",
    ]


def test_plan_tries_a_space_smaller_than_the_default(
    corpus: str, make_sweep: MakeSweep, tmp_path: Path
) -> None:
    _, planned = prepare(make_sweep(searcher="even"), corpus, str(tmp_path))
    assert planned.proposed == [{"train.learning_rate": 0.01}, {"train.learning_rate": 0.02}]
    assert planned.num_settings == 2
    with pytest.raises(
        UserError, match=r"trials: only 2 of the settings can be run \(the space holds no more"
    ):
        prepare(make_sweep(searcher="even", trials=3), corpus, str(tmp_path))


def test_a_grid_of_which_half_cannot_be_run_is_refused(
    corpus: str, make_sweep: MakeSweep, tmp_path: Path
) -> None:
    """Hashes must divide the width of 16."""
    key = "model.embedder.hashes"
    with pytest.raises(
        UserError, match=r"space: 2 of 4 settings of the grid cannot be run \(.*hashes: 5 does not.*when"
    ):
        prepare(make_sweep(space={key: {"grid": [2, 4, 5, 7]}}), corpus, str(tmp_path))
    _, plan = prepare(make_sweep(space={key: {"grid": [2, 4, 8, 5, 7]}}), corpus, str(tmp_path))
    assert (len(plan.proposed), sum(plan.reasons().values())) == (3, 2)
