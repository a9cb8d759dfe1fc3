"""The queue: its order, going on where it stopped, several commands at once, and the line of a run."""

import json
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.learning.plan import COMPARISONS, MODELS, ROWS, SEEDS, Entry, Row, queue
from benchmarks.learning.results import Line, Results, summarise
from benchmarks.learning.work import told, work
from tokenfree.preprocess.common.errors import JobError
from tokenfree.preprocess.common.local_files import lock

MODEL = Row("one", "One", "canine-s-tiny", "en", 4, stage=MODELS)
COMPARED = [Row(name, name, "canine-s-tiny", "en", 4) for name in ("two", "three")]
ENTRIES = queue([*COMPARED, MODEL])


def silent(text: str) -> None:
    """Tells nothing."""


class FakeRunner:
    """Notes what it is asked to train; is interrupted by, or fails at, the runs of those names."""

    def __init__(self, *, stop_at: str = "", fail_at: str = "") -> None:
        self.done: list[str] = []
        self.stop_at, self.fail_at = stop_at, fail_at

    def __call__(self, entry: Entry) -> Line:
        if entry.name == self.stop_at:
            raise KeyboardInterrupt
        if entry.name == self.fail_at:
            raise JobError("the loss is not a number")
        self.done.append(entry.name)
        return {"name": entry.name, "evaluation": {"validation_loss": 1.0}}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results.jsonl")


def test_models_come_first_and_seed_0_of_a_stage_before_seed_1() -> None:
    names = [entry.name for entry in ENTRIES]
    assert names[:3] == ["one-0", "one-1", "one-2"]
    assert names[3:] == ["two-0", "three-0", "two-1", "three-1", "two-2", "three-2"]


def test_what_is_done_is_not_done_again(tmp_path: Path, results: Results) -> None:
    first = FakeRunner(stop_at="two-0")
    with pytest.raises(KeyboardInterrupt):
        work(ENTRIES, results, tmp_path / "locks", first, silent, told)
    assert first.done == ["one-0", "one-1", "one-2"]
    second = FakeRunner()
    assert work(ENTRIES, results, tmp_path / "locks", second, silent, told) == []
    assert second.done == ["two-0", "three-0", "two-1", "three-1", "two-2", "three-2"]
    assert [line["name"] for line in results.lines()] == [entry.name for entry in ENTRIES]


def test_a_run_that_fails_is_passed_over_named_and_tried_again(tmp_path: Path, results: Results) -> None:
    said: list[str] = []
    runner = FakeRunner(fail_at="one-1")
    assert work(ENTRIES, results, tmp_path / "locks", runner, said.append, told) == ["one-1"]
    assert "2/9 one-1: failed: the loss is not a number" in said
    assert len(runner.done) == len(ENTRIES) - 1
    again = FakeRunner()
    work(ENTRIES, results, tmp_path / "locks", again, silent, told)
    assert again.done == ["one-1"]


def test_what_another_command_trains_is_left_to_it(tmp_path: Path, results: Results) -> None:
    runner = FakeRunner()
    (tmp_path / "locks").mkdir()
    with lock(tmp_path / "locks" / "one-1"):
        assert work(ENTRIES, results, tmp_path / "locks", runner, silent, told) == []
    assert "one-1" not in runner.done
    assert len(runner.done) == len(ENTRIES) - 1


def test_a_torn_line_makes_way_and_its_run_is_done_again(tmp_path: Path, results: Results) -> None:
    results.append({"name": "one-0", "evaluation": {}})
    with results.path.open("a") as file:
        file.write('{"name": "one-1", "eval')
    assert results.names() == {"one-0"}
    runner = FakeRunner()
    work(ENTRIES[:3], results, tmp_path / "locks", runner, silent, told)
    assert runner.done == ["one-1", "one-2"]
    assert [json.loads(line)["name"] for line in results.path.read_text().splitlines()] == ["one-0", "one-1", "one-2"]


def test_the_line_of_a_run_has_its_budget_and_when_it_left_the_plateau(tmp_path: Path) -> None:
    lines = []
    for step in range(1, 5):
        lines.append({"step": step, "loss": 6.0, "num_targets": 10, "characters": 100, "seconds": 0.5})
        lines.append({"step": step, "validation_loss": {1: 6.0, 2: 5.55, 3: 5.4, 4: 5.0}[step]})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    evaluation = {"baseline_unigram": 6.2, "baseline_clue": None, "baseline_copied": 5.6, "margin": 0.5}
    line = summarise(Entry(MODEL, 1), tmp_path, evaluation, 0.25)
    assert (line["name"], line["model"], line["seed"]) == ("one-1", "one", 1)
    assert (line["characters"], line["subwords"], line["targets"], line["seconds"]) == (400, 100, 40, 2.0)
    assert line["curve"] == [(1, 6.0), (2, 5.55), (3, 5.4), (4, 5.0)]
    assert line["plateau"] == {"level": 5.6, "step": 3, "characters": 300, "subwords": 75}
    never = summarise(Entry(MODEL, 1), tmp_path, {"baseline_unigram": 5.05}, 0.25)
    assert never["plateau"] is None


def test_every_run_has_a_name_of_its_own_three_seeds_and_the_commands_of_its_row() -> None:
    entries = queue(ROWS)
    assert len({entry.name for entry in entries}) == len(entries) == len(ROWS) * len(SEEDS)
    assert Counter(entry.row.stage for entry in entries)[MODELS] == 21
    assert {row.stage for row in ROWS} == {MODELS, COMPARISONS}
    first = entries[0].command("data", "runs")
    assert first.startswith("tokenfree pretrain canine-s-tiny --data data/en-short --output runs/canine-s-0 ")
    assert "--train.learning_rate 0.0015" in first
    assert first.endswith("--train.seed 0")
    assert entries[7].name == "canine-s-1"
    assert entries[7].command().endswith("--train.seed 1")
