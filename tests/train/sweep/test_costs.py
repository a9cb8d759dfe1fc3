"""What trials cost: one speed for equal models, and where their front is drawn."""

import csv
import io
from typing import Any

import pytest

from tokenfree.core.settings import build
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.results import TrainingCost, TrialResult, costs, front_amount, table

RATE, OPTIMIZER, LEARNING_RATE = "model.downsampler.rate", "train.optimizer.name", "train.learning_rate"


def trial(name: str, *, steps: int = 20, speed: float = 100.0, loss: float = 3.0, **more: Any) -> TrialResult:
    """A trial that reported every ten steps of 50 characters."""
    flops, parameters = more.pop("flops", 1e6), more.pop("parameters", 1000)
    reports = [
        {"step": step, "validation_loss": loss, "characters": 50 * step, "flops": flops * step,
         "parameters": parameters, "characters_per_second": speed, "train_seconds": 50 * step / speed}
        for step in range(10, steps + 1, 10)
    ]  # fmt: skip
    setting = more.pop("setting", int(name))
    return TrialResult(name, more.pop("values", {RATE: setting}), more.pop("state", "finished"), reports, "", setting)


def test_equal_models_have_one_speed_and_others_their_own() -> None:
    same = [trial("0", speed=100.0, values={LEARNING_RATE: 0.1}), trial("1", speed=50.0, values={LEARNING_RATE: 0.2})]
    seed = trial("2", speed=25.0, flops=1.002e6, values={LEARNING_RATE: 0.1})  # masks a few more characters
    others = [
        trial("3", flops=2e6), trial("4", parameters=2000), trial("5", values={OPTIMIZER: "lamb"}),
        trial("6", values={"train.threads": 4}),
    ]  # fmt: skip
    found = costs([*same, *others, seed])
    assert found["0"] == found["1"] == found["2"]
    assert found["0"].flops == pytest.approx((1.002e6 + 2e6) / 150)
    assert (found["0"].speed, found["0"].num_trials) == (pytest.approx(3000 / (10 + 20 + 40)), 3)
    assert [found[name].speed for name in "3456"] == [100.0] * 4
    assert [found[name].num_trials for name in "3456"] == [1] * 4
    assert found["3"].flops == 2e6 / 50


def test_models_of_which_little_is_known_are_not_taken_for_equal() -> None:
    bare = [TrialResult(name, {}, "running", [{"characters_per_second": 9.0, "train_seconds": 1.0}]) for name in "ab"]
    assert costs([*bare, trial("1"), TrialResult("2", {}, "waiting")]) == {
        "a": TrainingCost(None, 9.0, 1), "b": TrainingCost(None, 9.0, 1), "1": TrainingCost(2e4, 100.0, 1),
    }  # fmt: skip


def test_a_front_is_drawn_where_three_settings_got_to() -> None:
    steps = (40, 30, 20, 10)
    trials = [trial(str(n), steps=amount, state="stopped") for n, amount in enumerate(steps)]
    assert front_amount(trials) == 20
    assert front_amount(trials, "train_seconds") == 10.0
    assert front_amount(trials[:2]) == 30  # all there are
    assert front_amount([]) is None
    assert front_amount([trial("0", state="failed")]) is None
    finished = [trial("9", steps=40), trial("8", steps=50), trial("7", steps=50), trial("6", steps=50)]
    assert front_amount([*trials, *finished]) == 40  # not 50, to which one that finished did not get
    assert front_amount([trial("9", steps=40), *trials[1:]]) == 20  # one finished: too few to compare it with


def test_a_front_asks_for_all_seeds() -> None:
    trials = [trial(f"{s}{n}", setting=s, steps=20 + 10 * n, state="stopped") for s in range(3) for n in range(2)]
    lucky = [trial(str(n), steps=40, state="stopped") for n in (7, 8, 9)]  # of which other seeds were stopped before
    assert front_amount([*trials, *lucky]) == 20


def test_the_table_marks_the_front_by_the_speed_of_equal_models() -> None:
    """The slower of two equal models was disturbed: it is no worse than the other in speed, and better in loss."""
    trials = [
        trial("0", speed=60.0, loss=3.0, flops=1e6), trial("1", speed=40.0, loss=2.9, flops=1e6),
        trial("2", speed=50.0, loss=3.5, flops=3e6), trial("3", steps=10, speed=900.0, loss=9.0, state="stopped"),
    ]  # fmt: skip
    sweep = build(SweepRecipe, {"base": {}, "space": {RATE: {"choice": [2]}}}, source="test")
    rows = list(csv.DictReader(io.StringIO(table(sweep, trials))))
    assert [row["front"] for row in rows] == ["", "yes", "", ""]
