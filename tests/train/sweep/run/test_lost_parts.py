"""A sweep on this machine of which parts of Ray are killed: it continues, and its trials end the same."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.train.ray_parts import parts_named
from tokenfree.core.errors import JobError
from tokenfree.core.settings import build
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.run import SweepResult, run_sweep

MakeRecipe = Callable[..., PretrainRecipe]
NODE = "the Ray node of this machine (its raylet, or another process of Ray) was lost; "
NODE += "starting Ray and the trials again"
HEAD = "the head of the Ray cluster (its GCS) was lost; starting Ray and the trials again"
PARTS = {"/raylet": NODE, "ray::RuntimeEnvAgent": NODE, "/gcs_server": HEAD}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def sweep_of(recipe: PretrainRecipe) -> SweepRecipe:
    mapping = {"base": to_mapping(recipe), "space": {"train.learning_rate": {"grid": [0.001, 0.003, 0.01]}}}
    own = {"searcher": "grid", "scheduler": "none", "budget": {"steps": 150}, "reports": 10, "concurrent": 2}
    return build(SweepRecipe, mapping | own, source="test")


def losses(result: SweepResult) -> list[list[float]]:
    return [[report["validation_loss"] for report in trial.reports] for trial in result.trials]


def test_it_goes_on_and_its_losses_are_the_same(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sweep = sweep_of(make_recipe(validation_windows=64))
    left, told, reports = list(PARTS), list[str](), 0

    def kill(event: Any, history: Any) -> None:
        nonlocal reports
        if event["event"] == "lost":
            told.append(event["message"])
        reports += event["event"] == "report"
        if event["event"] == "report" and left and reports >= 4 * (1 + len(PARTS) - len(left)):
            part = left.pop(0)
            (found,) = parts_named(part)
            os.kill(found.pid, signal.SIGKILL)

    killed = run_sweep(sweep, corpus, str(tmp_path / "killed"), progress=kill)
    assert told == list(PARTS.values())
    assert [trial.state for trial in killed.trials] == ["finished"] * 3
    assert capfd.readouterr() == ("", "")
    assert losses(killed) == losses(run_sweep(sweep, corpus, str(tmp_path / "quiet")))


def test_losses_without_end_are_told(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    sweep = sweep_of(make_recipe(max_restarts=0))

    def kill(event: Any, history: Any) -> None:
        if event["event"] == "report":
            (found,) = parts_named("/raylet")
            os.kill(found.pid, signal.SIGKILL)

    with pytest.raises(
        JobError, match=r"was lost; look for a lack of memory, and run the same .* where this one stopp"
    ):
        run_sweep(sweep, corpus, str(tmp_path / "sweep"), progress=kill)
