"""What trials cost: one cost for the seeds of a setting, and where their front is drawn."""

import csv
import io
from typing import Any

from tests.train.sweep.conftest import trial_state
from tokenfree.core.settings import build
from tokenfree.train.sweep.history import TrialState
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.results import front_amount, settings, table

RATE = "model.downsampler.rate"


def trial(name: str, *, steps: int = 20, speed: float = 100.0, loss: float = 3.0, **more: Any) -> TrialState:
    """A trial that reported every ten steps of 50 characters."""
    flops, parameters = more.pop("flops", 1e6), more.pop("parameters", 1000)
    reports = [
        {"step": step, "validation_loss": loss, "characters": 50 * step, "flops": flops * step,
         "parameters": parameters, "characters_per_second": speed, "train_seconds": 50 * step / speed}
        for step in range(10, steps + 1, 10)
    ]  # fmt: skip
    setting = more.pop("setting", int(name))
    return trial_state(
        name, more.pop("values", {RATE: setting}), more.pop("state", "finished"), reports, "", setting
    )


def test_seeds_of_a_setting_have_one_cost() -> None:
    seeds = [trial(f"0{seed}", speed=speed, setting=0) for seed, speed in enumerate((100.0, 50.0))]
    both, other = settings([*seeds, trial("1", flops=2e6)])
    assert (both.flops, both.speed) == (1e6 / 50, 75.0)
    assert (other.flops, other.speed) == (2e6 / 50, 100.0)
    bare = trial_state("0", {}, "running", [{"characters_per_second": 9.04, "train_seconds": 1.0}])
    waiting = trial_state("1", {}, "waiting", setting=1)
    assert [(setting.flops, setting.speed) for setting in settings([bare, waiting])] == [
        (None, 9.0),
        (None, None),
    ]


def test_a_front_is_drawn_where_three_settings_got_to() -> None:
    stopped = [trial(str(n), steps=amount, state="stopped") for n, amount in enumerate((30, 20, 10))]
    finished = [trial(str(n), steps=40) for n in (7, 8, 9)]
    assert front_amount([*stopped, *finished]) == 40
    # Too few finished to be compared, so where all got to.
    assert front_amount([*stopped, *finished[1:]]) == 10
    assert front_amount(stopped, "train_seconds") == 5.0
    assert front_amount([trial("0", steps=20, state="running")]) == 20
    assert front_amount([]) is None
    assert front_amount([trial("0", state="failed")]) is None


def test_the_table_marks_the_front_by_two_digits_of_speed() -> None:
    trials = [
        trial("0", speed=60.4, loss=3.0), trial("1", speed=60.0, loss=2.9), trial("2", speed=50.0, loss=3.5),
        trial("3", steps=10, speed=900.0, loss=9.0, state="stopped"),
    ]  # fmt: skip
    sweep = build(SweepRecipe, {"base": {}, "space": {RATE: {"choice": [2]}}}, source="test")
    rows = list(csv.DictReader(io.StringIO(table(sweep, trials))))
    assert [row["front"] for row in rows] == ["", "yes", "", ""]
