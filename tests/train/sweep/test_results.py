"""Results of sweeps: fair comparison, means and intervals over seeds, fronts, tables, and sweeps that still run."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.train.sweep.conftest import trial_state
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.intervals import mean_interval
from tokenfree.train.sweep.history import TrialState, journal_line, read_history
from tokenfree.train.sweep.recipe import LOSS, Metric, SweepRecipe
from tokenfree.train.sweep.results import (
    best,
    common_amount,
    format_value,
    front,
    full_amount,
    hyperparameters,
    rank,
    settings,
    short_names,
    table,
    write,
)

KEY = "train.learning_rate"


def trial(name: str, losses: list[float], state: str = "finished", **more: Any) -> TrialState:
    """A trial that reported these losses, one every ten steps, at 100 characters per second or at `speed`."""
    speed = more.pop("speed", 100.0)
    reports = [
        {
            "step": 10 * n,
            "validation_loss": loss,
            "characters_per_second": speed,
            "train_seconds": 1000.0 * n / speed,
        }
        for n, loss in enumerate(losses, 1)
    ]
    more = {"setting": int(float(name)), **more}
    return trial_state(name, more.pop("values", {KEY: float(name)}), state, reports, **more)


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
    lucky = [
        trial(str(n), [loss], setting=0, seed=n, values={KEY: 1}) for n, loss in enumerate((1.0, 5.0, 6.0))
    ]
    steady = [
        trial(str(n + 3), [loss], setting=1, seed=n, values={KEY: 2})
        for n, loss in enumerate((3.0, 3.1, 2.9))
    ]
    ranked = rank([*lucky, *steady])
    assert [item.setting.values[KEY] for item in ranked] == [2, 1]
    assert ranked[0].setting.name == "setting_001"
    assert ranked[0].interval.mean == pytest.approx(3.0)
    assert ranked[0].interval.half == pytest.approx(4.3027 * 0.1 / 3**0.5, rel=1e-4)
    assert best([*lucky, *steady]) is steady[0]


def test_a_mean_over_fewer_seeds_does_not_win() -> None:
    one = [
        trial("0", [1.0], setting=0, values={KEY: 1}),
        trial("1", [], "failed", setting=0, values={KEY: 1}),
    ]
    two = [trial(str(n), [3.0], setting=1, values={KEY: 2}) for n in (2, 3)]
    assert best([*one, *two]) is two[0]
    assert [item.setting.index for item in front(rank([*one, *two]), LOSS)] == [1]


def test_settings_group_the_trials_of_all_seeds() -> None:
    trials = [trial("0", [1.0]), trial("1", [1.0], values={KEY: 0.0}, setting=0), trial("2", [1.0])]
    assert [(setting.index, len(setting.trials)) for setting in settings(trials)] == [(0, 2), (2, 1)]


def test_at_equal_time_losses_lie_on_the_straight_line_between_two_reports() -> None:
    fast, slow = trial("1", [4.0, 3.0], speed=1000.0), trial("2", [3.5, 2.0], speed=800.0)
    assert full_amount([fast, slow], "train_seconds") == 2.0
    assert best([fast, slow]) is slow
    assert slow.value_at("validation_loss", 2.0, "train_seconds") == pytest.approx(3.5 - 1.5 * 0.75 / 1.25)
    assert slow.value_at("validation_loss", 1.0, "train_seconds") is None
    assert fast.value_at("validation_loss", 2.1, "train_seconds") is None
    assert [item.setting.name for item in rank([fast, slow], unit="train_seconds")] == ["2", "1"]


def test_an_interval_needs_two_values() -> None:
    alone = mean_interval([2.0])
    assert alone is not None
    assert (alone.mean, alone.half, alone.count) == (2.0, None, 1)
    assert mean_interval([]) is None


def test_the_front_is_of_quality_and_cost() -> None:
    trials = [trial("1", [4.0], speed=300.0), trial("2", [3.0], speed=200.0), trial("3", [3.5], speed=100.0)]
    assert [item.setting.name for item in front(rank(trials), LOSS)] == [
        "2",
        "1",
    ]
    equal = rank([trial("1", [4.0]), trial("2", [4.0]), trial("3", [4.0], speed=90.0)])
    assert [item.setting.name for item in front(equal, LOSS)] == ["1", "2"]
    assert [item.setting.name for item in rank(trials, target=Metric("characters_per_second", "max"))] == [
        "1",
        "2",
        "3",
    ]


def test_the_table_has_a_row_a_trial_and_a_column_for_what_is_new() -> None:
    report = {
        "step": 10,
        "validation_loss": 2.0,
        "characters_per_second": 9.5,
        "train_seconds": 9.0,
        "flops": 5e12,
    }
    report |= {"parameters": 4005312.0}
    trials = [
        trial_state("a", {KEY: 0.1, "x": "full"}, "finished", [{**report, "report": 1}], "", 0, 1),
        trial("0.5", [3.0], speed=20.0, setting=1),
        trial("0.2", [4.0], speed=10.0, setting=2),
        trial_state("b", {KEY: 0.3}, "failed", (), 'ValueError: no, "never"', setting=3),
    ]
    rows = {row["trial"]: row for row in csv.DictReader(io.StringIO(table(make_sweep(), trials)))}
    assert {name: row["front"] for name, row in rows.items()} == {
        "a": "yes",
        "0.5": "yes",
        "0.2": "",
        "b": "",
    }
    assert (rows["a"]["flops"], rows["a"]["parameters"], rows["a"]["seed"], rows["a"]["x"]) == (
        "5000000000000", "4005312", "1", "full",
    )  # fmt: skip
    assert rows["b"]["error"] == 'ValueError: no, "never"'
    assert (rows["0.5"]["x"], rows["b"]["validation_loss"]) == ("", "")
    assert "report" not in rows["a"]


def test_the_files_of_a_sweep(tmp_path: Path) -> None:
    trials = [trial("0.1", [4.0, 3.0], setting=0, seed=0), trial("0.2", [4.0, 2.0], setting=1, seed=0)]
    files = write(tmp_path, make_sweep(), trials, skipped={"no": 3})
    assert [file.name for file in files] == ["best.yaml", "skipped.json", "trials.jsonl", "sweep.csv"]
    lines = [json.loads(line) for line in (tmp_path / "trials.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines] == ["0.1", "0.2"]
    assert set(lines[0]) == {"name", "values", "state", "reports", "error", "setting", "seed"}
    assert lines[1]["reports"] == list(trials[1].reports)
    assert json.loads((tmp_path / "skipped.json").read_text()) == {"no": 3}
    winner = build(PretrainRecipe, yaml.safe_load((tmp_path / "best.yaml").read_text()), source="best.yaml")
    assert winner.train.learning_rate == 0.2
    assert (tmp_path / "best.yaml").read_text().startswith("# The best of 2 trials (0.2)")


def test_without_a_result_there_is_no_best_recipe(tmp_path: Path) -> None:
    files = write(tmp_path, make_sweep(), [trial("0.1", [], "failed", error="ValueError: no", setting=0)])
    assert [file.name for file in files] == ["trials.jsonl", "sweep.csv"]


def write_journal(folder: Path) -> None:
    """Of a sweep of four settings: one finished, one failed, one trains, one waits; a fifth cannot be run."""
    events: list[dict[str, Any]] = [
        {"event": "start", "settings": 5},
        {"event": "skip", "values": {KEY: 0.5}, "reasons": ["no", "never"]},
        *({"event": "propose", "setting": setting, "values": {KEY: setting / 10}} for setting in range(4)),
        *({"event": "begin", "trial": f"trial_{setting:03d}"} for setting in range(3)),
    ]
    for number, loss in enumerate((2.0, 1.0), 1):
        report = {"report": number, "step": 5 * number, "validation_loss": loss}
        events.append({"event": "report", "trial": "trial_000", "verdict": "go", "report": report})
    events.append({"event": "failure", "trial": "trial_001", "error": "ValueError: once"})
    events.append({"event": "begin", "trial": "trial_001"})
    events.append({"event": "failure", "trial": "trial_001", "error": "ValueError: twice"})
    (folder / "journal.jsonl").write_bytes(b"".join(map(journal_line, events)))


def test_a_sweep_that_runs_is_read_from_its_journal(tmp_path: Path) -> None:
    write_journal(tmp_path)
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write('{"event": "begin", "trial": "tri')  # is being written
    history = read_history(tmp_path, seeds=1, reports=2)
    first, second, third, fourth = history.trials.values()
    assert [found.state for found in (first, second, third, fourth)] == [
        "finished",
        "failed",
        "running",
        "waiting",
    ]
    assert [report["validation_loss"] for report in first.reports] == [2.0, 1.0]
    assert (first.error, second.error, third.error) == ("", "ValueError: twice", "")
    assert fourth.values == {KEY: 0.3}
    assert history.reasons() == {"no": 1, "never": 1}
    assert history.total == 5


def test_read_history_names_the_line_of_a_flipped_bit(tmp_path: Path) -> None:
    write_journal(tmp_path)
    path = tmp_path / "journal.jsonl"
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]
        path.write_bytes(damaged)
        number = content[:place].count(b"\n") + 1
        with pytest.raises(
            JobError, match=rf"^{path}: line {number}: damaged, it does not match its checksum; put a"
        ):
            read_history(tmp_path, seeds=1, reports=2)
        assert path.read_bytes() == damaged


def test_read_history_drops_a_torn_last_line(tmp_path: Path) -> None:
    write_journal(tmp_path)
    path = tmp_path / "journal.jsonl"
    content = path.read_bytes()
    start = content[:-1].rindex(b"\n") + 1
    path.write_bytes(content[:start])
    without = read_history(tmp_path, seeds=1, reports=2)
    for end in range(start, len(content)):
        path.write_bytes(content[:end])
        assert read_history(tmp_path, seeds=1, reports=2) == without


def test_a_sweep_that_has_not_begun_knows_nothing(tmp_path: Path) -> None:
    assert not read_history(tmp_path, seeds=1, reports=2).trials


def test_a_finished_sweep_without_its_journal_is_refused(tmp_path: Path) -> None:
    write_journal(tmp_path)
    (tmp_path / "sweep.csv").write_text("")
    assert read_history(tmp_path, seeds=1, reports=2).trials
    (tmp_path / "journal.jsonl").unlink()
    with pytest.raises(UserError, match=r"journal\.jsonl is gone"):
        read_history(tmp_path, seeds=1, reports=2)


def test_names_and_values_as_people_read_them() -> None:
    keys = [
        "model.trunk.attention.alpha",
        "model.trunk.attention.name",
        "model.embedder.name",
        "model.embedder.alpha",
    ]
    assert short_names(keys) == ["attention.alpha", "attention.name", "embedder.name", "embedder.alpha"]
    assert short_names(["model.downsampler.rate", "train.seed"]) == ["rate", "seed"]
    assert [format_value(value) for value in (0.1 + 0.2, 4.0, "full", None, True, [1, 2])] == [
        "0.3", "4", "full", "", "true", "[1, 2]",
    ]  # fmt: skip
    assert hyperparameters([trial_state("a", {"y": 1}, "failed"), trial_state("b", {"x": 1}, "failed")]) == [
        "x",
        "y",
    ]
