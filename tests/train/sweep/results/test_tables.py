"""Results of sweeps: fair comparison, means and intervals over seeds, fronts, tables, and sweeps that still run."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from preprocess.settings import build
from train.config import PretrainRecipe
from train.sweep.compare import (
    LOSS,
    SPEED,
    Target,
    best,
    common_amount,
    estimate,
    front,
    full_amount,
    pareto,
    rank,
    settings,
    t_quantile,
)
from train.sweep.config import SweepRecipe
from train.sweep.results import note_progress, read, read_progress, read_skipped, table, write
from train.sweep.trial_result import TrialResult, knobs, short_names, shown

KEY = "train.learning_rate"


def trial(name: str, losses: list[float], state: str = "finished", **more: Any) -> TrialResult:
    """A trial that reported these losses, one every ten steps, at 100 characters per second or at `speed`."""
    speed = more.pop("speed", 100.0)
    reports = [
        {"step": 10 * n, "validation_loss": loss, "characters_per_second": speed, "train_seconds": 1000.0 * n / speed}
        for n, loss in enumerate(losses, 1)
    ]
    return TrialResult(name, more.pop("values", {KEY: float(name)}), state, reports, **more)


def make_sweep() -> SweepRecipe:
    return build(SweepRecipe, {"base": {}, "space": {KEY: {"uniform": [0.1, 1]}}}, source="test")


def test_the_best_is_not_one_that_was_stopped_early_or_failed_at_a_lower_loss() -> None:
    stopped, failed = trial("1", [1.0], "stopped"), trial("2", [1.0, 0.5], "failed")
    good, worse = trial("3", [4.0, 2.0]), trial("4", [3.0, 2.5])
    assert best([stopped, failed, worse, good]) is good
    assert best([failed]) is None
    assert best([]) is None
    assert full_amount([stopped, failed, good]) == 20
    assert common_amount([stopped, failed, good]) == 10


def test_without_a_finished_trial_those_that_got_furthest_are_compared() -> None:
    short, long = trial("1", [1.0], "running"), trial("2", [3.0, 2.0], "running")
    assert best([short, long]) is long


def test_a_loss_that_is_not_a_number_is_never_best() -> None:
    assert best([broken := trial("1", [1.0, float("nan")]), trial("2", [4.0, 3.0])]) is not broken


def test_settings_are_compared_by_their_mean_over_seeds() -> None:
    lucky = [trial(str(n), [loss], setting=0, seed=n, values={KEY: 1}) for n, loss in enumerate((1.0, 5.0, 6.0))]
    steady = [trial(str(n + 3), [loss], setting=1, seed=n, values={KEY: 2}) for n, loss in enumerate((3.0, 3.1, 2.9))]
    ranked = rank([*lucky, *steady])
    assert [item.setting.values[KEY] for item in ranked] == [2, 1]
    assert ranked[0].setting.name == "setting_001"
    assert ranked[0].estimate.mean == pytest.approx(3.0)
    assert ranked[0].estimate.half == pytest.approx(4.3027 * 0.1 / 3**0.5, rel=1e-4)
    assert best([*lucky, *steady]) is steady[0]


def test_a_mean_over_fewer_seeds_does_not_win() -> None:
    one = [trial("0", [1.0], setting=0, values={KEY: 1}), trial("1", [], "failed", setting=0, values={KEY: 1})]
    two = [trial(str(n), [3.0], setting=1, values={KEY: 2}) for n in (2, 3)]
    assert best([*one, *two]) is two[0]
    assert [item.setting.index for item in front(rank([*one, *two]), (LOSS, SPEED), 10)] == [1]


def test_without_an_index_equal_values_are_one_setting() -> None:
    found = settings([trial("0", [1.0], values={"a": 1, "b": 2}), trial("1", [1.0], values={"b": 2, "a": 1})])
    assert [len(setting.trials) for setting in found] == [2]


def test_at_equal_time_losses_lie_on_the_straight_line_between_two_reports() -> None:
    fast, slow = trial("1", [4.0, 3.0], speed=1000.0), trial("2", [3.5, 2.0], speed=800.0)
    assert full_amount([fast, slow], "train_seconds") == 2.0
    assert best([fast, slow]) is slow
    assert slow.value_at("validation_loss", 2.0, "train_seconds") == pytest.approx(3.5 - 1.5 * 0.75 / 1.25)
    assert slow.value_at("validation_loss", 1.0, "train_seconds") is None
    assert fast.value_at("validation_loss", 2.1, "train_seconds") is None
    assert [item.setting.name for item in rank([fast, slow], unit="train_seconds")] == ["2", "1"]


def test_t_quantiles_are_those_of_the_tables() -> None:
    found = [t_quantile(0.95, freedom) for freedom in (1, 2, 3, 4, 9, 30, 120)]
    assert found == pytest.approx([12.7062, 4.3027, 3.1824, 2.7764, 2.2622, 2.0423, 1.9799], abs=1e-4)
    assert t_quantile(0.99, 5) == pytest.approx(4.0321, abs=1e-4)


def test_an_interval_needs_two_values() -> None:
    alone = estimate([2.0])
    assert alone is not None
    assert (alone.mean, alone.half, alone.count) == (2.0, None, 1)
    assert estimate([]) is None


def test_pareto_keeps_what_nothing_beats() -> None:
    assert pareto([(1, 5), (2, 2), (3, 3), (5, 1), (2, 2)]) == [True, True, False, True, True]
    assert pareto([]) == []


def test_the_front_is_of_all_targets() -> None:
    trials = [trial("1", [4.0], speed=300.0), trial("2", [3.0], speed=200.0), trial("3", [3.5], speed=100.0)]
    assert [item.setting.name for item in front(rank(trials), (LOSS, SPEED), 10)] == ["2", "1"]
    assert [item.setting.name for item in rank(trials, target=Target("characters_per_second", "max"))] == [
        "1",
        "2",
        "3",
    ]


def test_the_table_has_a_row_a_trial_and_a_column_for_what_is_new() -> None:
    report = {"step": 10, "validation_loss": 2.0, "characters_per_second": 9.5, "flops": 5e12, "parameters": 4005312.0}
    trials = [
        TrialResult("a", {KEY: 0.1, "x": "full"}, "finished", [{**report, "report": 1}], "", 0, 1),
        trial("0.5", [3.0], speed=20.0),
        trial("0.2", [4.0], speed=10.0),
        TrialResult("b", {KEY: 0.3}, "failed", (), 'ValueError: no, "never"'),
    ]
    rows = {row["trial"]: row for row in csv.DictReader(io.StringIO(table(make_sweep(), trials)))}
    assert {name: row["front"] for name, row in rows.items()} == {"a": "yes", "0.5": "yes", "0.2": "", "b": ""}
    assert (rows["a"]["flops"], rows["a"]["parameters"], rows["a"]["seed"], rows["a"]["x"]) == (
        "5000000000000", "4005312", "1", "full",
    )  # fmt: skip
    assert rows["b"]["error"] == 'ValueError: no, "never"'
    assert (rows["0.5"]["x"], rows["b"]["validation_loss"]) == ("", "")
    assert "report" not in rows["a"]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    trials = [trial("0.1", [4.0, 3.0], setting=0, seed=0), trial("0.2", [4.0, 2.0], setting=1, seed=0)]
    assert read(tmp_path) is None
    files = write(tmp_path, make_sweep(), trials, skipped={"no": 3})
    assert [file.name for file in files] == ["best.yaml", "skipped.json", "trials.jsonl", "sweep.csv"]
    assert read(tmp_path) == trials
    assert read_skipped(tmp_path) == {"no": 3}
    winner = build(PretrainRecipe, yaml.safe_load((tmp_path / "best.yaml").read_text()), source="best.yaml")
    assert winner.train.learning_rate == 0.2
    assert (tmp_path / "best.yaml").read_text().startswith("# The best of 2 trials (0.2)")


def test_fields_of_another_version_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, make_sweep(), [trial("0.1", [4.0])])
    line = json.loads((tmp_path / "trials.jsonl").read_text())
    (tmp_path / "trials.jsonl").write_text(json.dumps({**line, "new": 1}) + "\n" + '{"name": "half a li')
    assert [found.name for found in read(tmp_path) or []] == ["0.1"]


def test_without_a_result_there_is_no_best_recipe(tmp_path: Path) -> None:
    files = write(tmp_path, make_sweep(), [trial("0.1", [], "failed", error="ValueError: no")])
    assert [file.name for file in files] == ["trials.jsonl", "sweep.csv"]


def test_a_sweep_that_runs_is_read_from_its_progress(tmp_path: Path) -> None:
    for name in ("0.1", "0.2", "0.3"):
        note_progress(tmp_path, {"event": "waiting", "trial": name, "values": {KEY: float(name)}})
    note_progress(tmp_path, {"event": "report", "trial": "0.1", "step": 5, "validation_loss": 2.0, "ended": 0})
    note_progress(tmp_path, {"event": "report", "trial": "0.1", "step": 10, "validation_loss": 1.0, "ended": 0})
    note_progress(tmp_path, {"event": "end", "trial": "0.1", "state": "finished", "ended": 1})
    note_progress(tmp_path, {"event": "begin", "trial": "0.2", "ended": 1})
    first, second, third = read_progress(tmp_path)
    assert (first.state, second.state, third.state) == ("finished", "running", "waiting")
    assert [report["validation_loss"] for report in first.reports] == [2.0, 1.0]
    assert first.last == {"step": 10, "validation_loss": 1.0}
    assert third.values == {KEY: 0.3}


def test_names_and_values_as_people_read_them() -> None:
    keys = ["model.trunk.attention.alpha", "model.trunk.attention.name", "model.embedder.name", "model.embedder.alpha"]
    assert short_names(keys) == ["attention.alpha", "attention.name", "embedder.name", "embedder.alpha"]
    assert short_names(["model.downsampler.rate", "train.seed"]) == ["rate", "seed"]
    assert [shown(value) for value in (0.1 + 0.2, 4.0, "full", None, True, [1, 2])] == [
        "0.3", "4", "full", "", "true", "[1, 2]",
    ]  # fmt: skip
    assert knobs([TrialResult("a", {"y": 1}, "failed"), TrialResult("b", {"x": 1}, "failed")]) == ["x", "y"]
