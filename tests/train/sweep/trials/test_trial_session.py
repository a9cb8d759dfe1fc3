"""One trial in one process: budgets in any unit, and going on from its own checkpoints."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preprocess.settings import to_mapping
from train.config import PretrainRecipe
from train.sweep.session import Leg, Session

MakeRecipe = Callable[..., PretrainRecipe]
EXACT = ("report", "step", "loss", "validation_loss", "characters", "flops", "parameters", "seed")


def make_leg(corpus: str, recipe: PretrainRecipe, folder: Path, **over: Any) -> Leg:
    leg = Leg(
        name="trial_000",
        recipe=to_mapping(recipe),
        data=corpus,
        folder=str(folder),
        budget={"steps": 6},
        reports=3,
        known=0,
        threads=1,
    )
    return dataclasses.replace(leg, **over)


def reports(leg: Leg) -> list[dict[str, Any]]:
    """All that are still to come."""
    session = Session(leg)
    found = []
    while not found or found[-1]["report"] < leg.reports:
        found.append(dict(session.advance()))
    session.close()
    return found


def exact(report: dict[str, Any]) -> dict[str, Any]:
    return {name: report[name] for name in EXACT}


def test_reports_come_evenly_and_count(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    found = reports(make_leg(corpus, make_recipe(), tmp_path, budget={"steps": 7}))
    assert [report["step"] for report in found] == [3, 5, 7]
    assert found[1]["flops"] == pytest.approx(found[0]["flops"] * 5 / 3)
    assert found[2]["characters"] > found[1]["characters"] > found[0]["characters"] > 0
    assert all(report["characters_per_second"] > 0 for report in found)


@pytest.mark.parametrize(("unit", "budget"), [("characters", {"characters": 5000}), ("flops", {"flops": 4e8})])
def test_budgets_of_characters_and_of_arithmetic(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, unit: str, budget: dict[str, float]
) -> None:
    used = reports(make_leg(corpus, make_recipe(), tmp_path, budget=budget))[-1]
    assert used[unit] == pytest.approx(budget[unit], rel=0.1)
    twice = reports(make_leg(corpus, make_recipe(), tmp_path / "2", budget={unit: 2 * budget[unit]}))[-1]
    assert twice["step"] == pytest.approx(2 * used["step"], abs=1)


def test_a_costlier_model_makes_fewer_steps_for_the_same_arithmetic(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    small, large = (
        reports(make_leg(corpus, make_recipe(model=model), tmp_path / name, budget={"flops": 4e8}))[-1]
        for name, model in (("small", {}), ("large", {"trunk": {"layers": 3}}))
    )
    assert large["step"] < small["step"]
    assert large["flops"] == pytest.approx(small["flops"], rel=0.1)


def test_a_budget_of_seconds(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    found = reports(make_leg(corpus, make_recipe(), tmp_path, budget={"seconds": 0.6}))
    assert found[-1]["report"] == 3
    assert 0.1 < found[-1]["train_seconds"] < 2  # a step more than the budget at most, or all steps that it is worth


def test_a_trial_goes_on_bit_for_bit_from_its_newest_checkpoint(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    for budget in ({"steps": 6}, {"characters": 3000}):
        whole = reports(make_leg(corpus, make_recipe(), tmp_path / f"whole {budget}", budget=budget))
        folder = tmp_path / f"killed {budget}"
        session = Session(make_leg(corpus, make_recipe(), folder, budget=budget))
        session.advance()
        session.close()
        rest = reports(make_leg(corpus, make_recipe(), folder, budget=budget, known=1))
        assert [exact(report) for report in rest] == [exact(report) for report in whole[1:]]


def test_a_report_that_nobody_heard_of_is_made_again_without_training(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    session = Session(make_leg(corpus, make_recipe(), tmp_path))
    session.advance()
    lost = session.advance()
    session.close()
    again = Session(make_leg(corpus, make_recipe(), tmp_path, known=1))
    assert again.advance() == lost
    assert again.advance()["report"] == 3
    again.close()


def test_a_damaged_checkpoint_is_passed_over(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    leg = make_leg(corpus, make_recipe(), tmp_path)
    whole = reports(dataclasses.replace(leg, folder=str(tmp_path / "whole")))
    session = Session(leg)
    session.advance()
    session.advance()
    session.close()
    (tmp_path / "checkpoints" / "step_00000004" / "model.safetensors").write_bytes(b"damaged")
    assert [exact(report) for report in reports(dataclasses.replace(leg, known=2))] == [exact(r) for r in whole[1:]]
