"""Quality against cost on the page of a sweep: where it is compared, by what, and under which names."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.workflows.report.test_report import NAME, RATE, Page, make_sweep
from tokenfree.train.sweep.results.trial_result import TrialResult
from tokenfree.train.sweep.space.targets import LOSS, SPEED
from tokenfree.workflows.report.load import SweepRecord, load
from tokenfree.workflows.report.sections.sweep_view import FLOPS, SweepView
from tokenfree.workflows.report.write import write_report

LEARNING_RATE = "train.learning_rate"


def trial(
    setting: int, steps: int, loss: float, *, speed: float = 100.0, flops: float = 1e6, **more: Any
) -> TrialResult:
    """A trial that reported every five steps of 50 characters, and came down to `loss`."""
    reports = [
        {"step": step, "validation_loss": loss + (steps - step) / 5, "characters": 50 * step, "flops": flops * step,
         "parameters": 1000, "characters_per_second": speed, "train_seconds": 50 * step / speed}
        for step in range(5, steps + 1, 5)
    ]  # fmt: skip
    values = more.pop("values", {LEARNING_RATE: 0.001 * (setting + 1)})
    return TrialResult(f"trial_{setting:03d}", values, more.pop("state", "finished"), reports, setting=setting)


def view_of(folder: Path, trials: list[TrialResult]) -> SweepView:
    record = load(make_sweep(folder, trials))
    assert isinstance(record, SweepRecord)
    return SweepView(record)


def test_the_front_is_where_three_settings_got_to(tmp_path: Path) -> None:
    """One alone used its budget: it would be a front of one."""
    trials = [
        trial(0, 10, 4.0, speed=100.0, flops=1e6), trial(1, 5, 5.2, speed=300.0, flops=3e6, state="stopped"),
        trial(2, 5, 5.1, speed=200.0, flops=2e6, state="stopped"),
        TrialResult("trial_003", {LEARNING_RATE: 1.0}, "failed", (), "no", 3),
    ]  # fmt: skip
    view = view_of(tmp_path / "sweep", trials)
    assert (view.at, view.front_at) == ("step 10", "step 5")
    assert [item.setting.name for item in view.front((LOSS, SPEED))] == ["trial_000", "trial_002", "trial_001"]
    assert [item.setting.name for item in view.front((LOSS, FLOPS))] == ["trial_000"]
    page = Page(write_report([str(tmp_path / "sweep")], str(tmp_path / "page.html")).read_text(encoding="utf-8"))
    assert page.tables["The front, slowest first"][1:] == [
        ["trial_000", "FLOPs and speed", "5.0000", "20 k", "100", "1", "0.001"],
        ["trial_002", "speed", "5.1000", "40 k", "200", "1", "0.003"],
        ["trial_001", "speed", "5.2000", "60 k", "300", "1", "0.002"],
    ]
    assert "among the 3 that got to step 5" in page.text
    assert page.seen.count("svg") >= 2


def test_equal_models_share_their_speed(tmp_path: Path) -> None:
    trials = [trial(0, 10, 4.0, speed=60.0), trial(1, 10, 4.2, speed=40.0), trial(2, 10, 4.1, speed=40.0, flops=3e6)]
    view = view_of(tmp_path / "sweep", trials)
    assert [item.setting.name for item in view.front((LOSS, SPEED))] == ["trial_000"]
    assert view.costs["trial_000"].speed == view.costs["trial_001"].speed == pytest.approx(48.0)


def test_arithmetic_that_differs_by_little_is_the_same(tmp_path: Path) -> None:
    trials = [trial(n, 10, 4.0 + n / 10, flops=flops) for n, flops in enumerate((1.003e6, 1e6, 0.7e6))]
    assert [item.setting.index for item in view_of(tmp_path / "sweep", trials).front((LOSS, FLOPS))] == [0, 2]


def test_settings_are_named_by_what_differs(tmp_path: Path) -> None:
    values = [{RATE: 4, NAME: "full", LEARNING_RATE: rate} for rate in (0.00123456, 0.002, 0.003)]
    values[1].pop(NAME)
    view = view_of(tmp_path / "sweep", [trial(n, 10, 4.0, values=given) for n, given in enumerate(values)])
    assert [view.short_name(item.setting) for item in view.front_ranked] == [
        "full · 0.00123",
        "– · 0.002",
        "full · 0.003",
    ]
    many = [{f"train.k{key}": key + n for key in range(5)} for n in range(2)]
    view = view_of(tmp_path / "many", [trial(n, 10, 4.0, values=given) for n, given in enumerate(many)])
    assert [view.short_name(item.setting) for item in view.front_ranked] == ["0", "1"]


@pytest.mark.parametrize(
    ("knob", "log"),
    [
        ({"log_uniform": [0.001, 0.002]}, True), ({"uniform": [0.001, 1.0]}, False), ({"integer": [1, 64]}, False),
        ({"choice": [1024, 4096, 32768]}, True), ({"grid": [1, 2, 3]}, False), ({"choice": ["a", 1, 100]}, False),
        ({"choice": [None, 1, 100]}, True), ({"choice": [0, 1, 100]}, False),
    ],
)  # fmt: skip
def test_a_knob_is_logarithmic_by_its_range(knob: dict[str, Any], log: bool, tmp_path: Path) -> None:
    folder = make_sweep(tmp_path / "sweep", [trial(0, 10, 4.0)])
    mapping = yaml.safe_load((folder / "sweep.yaml").read_text())
    mapping["recipe"]["space"] = {LEARNING_RATE: knob}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(mapping))
    record = load(folder)
    assert isinstance(record, SweepRecord)
    assert SweepView(record).is_log(LEARNING_RATE) == log
