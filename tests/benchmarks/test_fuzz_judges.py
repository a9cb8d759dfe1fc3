"""The judges of the fuzzer: each lets a sound outcome pass and flags a fault that is planted in it."""

import json
import random
from pathlib import Path

import pytest

from benchmarks.fuzz.commands import Outcome
from benchmarks.fuzz.damage import damage_file, exchange
from benchmarks.fuzz.judges import (
    Finding,
    finding_of,
    judge_losses,
    judge_message,
    judge_shards,
    losses,
    result,
    shards,
)
from benchmarks.fuzz.sitting import KINDS, Record, kind_of, number_of
from benchmarks.fuzz.table import BEGIN, END, figures, replaced

ERROR = "tokenfree: data/x.arrow: damaged; make it again\n"


def outcome(status: int = 0, out: str = "", err: str = "", **more: object) -> Outcome:
    return Outcome(status, out, err, 1.0, **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "sound",
    [
        outcome(),
        outcome(0, "loss 4.9\n", "warning: checkpoint of step 3 is damaged; the one before it is used\n"),
        outcome(0, err="20:51:23  going on from the checkpoint of step 3 of 9\n"),
        outcome(2, err="20:51:23  going on from the checkpoint of step 3 of 9\n" + ERROR),
        outcome(2, err=ERROR),
        outcome(1, err=ERROR),
        outcome(2, err="tokenfree: tiny.yaml: 2 problems\n  train.steps: 0 is too few\n  model.width: no number\n"),
        outcome(-9, was_killed=True),
    ],
)
def test_sound_messages_pass(sound: Outcome) -> None:
    judge_message(sound)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (outcome(3, err=ERROR), "exit status 3"),
        (outcome(-11), "exit status -11"),
        (outcome(130, err=ERROR), "exit status 130"),
        (outcome(1), "0 lines of error"),
        (outcome(1, err=ERROR + ERROR), "2 lines of error"),
        (outcome(2, err="WARNING:root:no module\n" + ERROR), "2 lines of error"),
        (outcome(1, err="OSError: no room\n"), "not its own"),
        (outcome(0, err=ERROR), "status 0, but"),
        (outcome(1, err="tokenfree: KeyError: 'x' (an unexpected failure; run again)\n"), "unexpected failure"),
        (outcome(0, err="Traceback (most recent call last):\n"), "Traceback"),
        (outcome(0, out="page \x1b[2J\n"), "control character '\\x1b'"),
        (outcome(2, err="tokenfree: no file \u202etxt.exe\n"), "control character '\\u202e'"),
        (outcome(2, err="tokenfree: a\rb\n"), "control character '\\r'"),
        (outcome(2, err=f"tokenfree: {'x' * 2000}\n"), "a line of 2011 characters"),
        (outcome(-9, is_late=True), "no end"),
        (outcome(0, left=("python -m tokenfree.pipelines.worker_pool",)), "left 1 processes"),
        (outcome(-9, was_killed=True, left=("raylet",)), "left 1 processes"),
    ],
)
def test_planted_faults_of_messages_are_flagged(fault: Outcome, told: str) -> None:
    with pytest.raises(Finding) as found:
        judge_message(fault)
    assert told in str(found.value)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name in ("train/a.arrow", "train/b.arrow", "vocabulary/subwords.model", "manifest.json", "_SUCCESS"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    return folder


def test_shards_are_compared_by_name_and_byte(data: Path) -> None:
    wanted = shards(data)
    assert sorted(wanted) == ["manifest.json", "train/a.arrow", "train/b.arrow", "vocabulary/subwords.model"]
    judge_shards(data, wanted)
    (data / "train" / "c.arrow").touch()
    assert "too many ['train/c.arrow']" in str(finding_of(lambda: judge_shards(data, wanted)))
    (data / "train" / "c.arrow").unlink()
    (data / "_tmp").mkdir()
    assert "left over ['_tmp']" in str(finding_of(lambda: judge_shards(data, wanted)))
    (data / "_tmp").rmdir()
    (data / "train" / "b.arrow").write_bytes(b"train/b.arroW")
    assert "data/train/b.arrow: other bytes" in str(finding_of(lambda: judge_shards(data, wanted)))
    (data / "train" / "b.arrow").unlink()
    assert "missing ['train/b.arrow']" in str(finding_of(lambda: judge_shards(data, wanted)))


def write_run(folder: Path, lines: list[dict[str, float]], **more: float) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "result.json").write_text(json.dumps({"steps": 2, "loss": 4.5, "seconds": 3.1, **more}))


def test_losses_are_compared_to_the_last_bit_and_times_are_not(tmp_path: Path) -> None:
    run, steps = tmp_path / "run", [{"step": 1, "loss": 5.0, "seconds": 0.1}, {"step": 2, "loss": 4.5, "seconds": 0.1}]
    write_run(run, steps)
    wanted = losses(run), result(run)
    write_run(run, [{**line, "seconds": 7.0} for line in steps], seconds=9.9)
    judge_losses(run, *wanted)
    for faulty, told in (
        ([steps[0], {**steps[1], "loss": 4.5000000000000009}], "step 2 has other loss"),
        ([steps[0]], "1 lines of metrics in place of 2"),
        ([steps[0], steps[0], steps[1]], "step 2 has other step, loss"),
        ([steps[0], {**steps[1], "spike": 1}], "step 2 has other spike"),
    ):
        write_run(run, faulty)
        assert told in str(finding_of(lambda: judge_losses(run, *wanted)))
    write_run(run, steps, steps=3)
    assert "result.json has other steps" in str(finding_of(lambda: judge_losses(run, *wanted)))
    (run / "result.json").unlink()
    assert "cannot be read" in str(finding_of(lambda: judge_losses(run, *wanted)))


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.yaml", "a.arrow", "empty.bin"])
def test_a_damaged_file_is_another_and_the_same_seed_damages_it_the_same_way(tmp_path: Path, name: str) -> None:
    before = b"" if name == "empty.bin" else b'{"a": [1, 2], "b": {"c": "d"}}\n'
    for seed in range(150):
        folders = [tmp_path / f"{seed}-{attempt}" for attempt in (0, 1)]
        told = set()
        for folder in folders:
            folder.mkdir()
            (folder / "beside.bin").write_bytes(b"beside")
            (folder / name).write_bytes(before)
            told.add(damage_file(folder / name, random.Random(seed)))
        contents = [(folder / name).read_bytes() if (folder / name).is_file() else None for folder in folders]
        assert contents[0] != before
        assert contents[0] == contents[1]
        assert len(told) == 1


def test_values_are_exchanged_at_every_depth() -> None:
    draw, tree = random.Random(0), {"a": [1, {"b": 2}]}
    places = {exchange(tree, "x", draw)[1] for _ in range(300)}
    assert {"", "a", "a.0", "a.1", "a.1.b", "unknown"} <= places
    assert tree == {"a": [1, {"b": 2}]}


def test_a_round_is_told_by_its_number() -> None:
    kinds = tuple(KINDS)
    assert number_of(3, 17) == 300_017
    drawn = [kind_of(number_of(1, place), kinds) for place in range(600)]
    assert drawn == [kind_of(number_of(1, place), kinds) for place in range(600)]
    assert set(drawn) == set(kinds)
    assert kind_of(5, ("run",)) == "run"


def test_figures_count_rounds_kills_and_findings() -> None:
    rounds = [
        Record(100_000, "kill-pretrain", 1, "passed", 4.0, 3, 3, "abc"),
        Record(100_001, "kill-pretrain", 1, "run: 3 lines", 2.0, 1, 1, "abc"),
        Record(200_000, "data", 2, "passed", 1.0, 0, 0, "abc"),
    ]
    text = figures(rounds)
    assert (
        "3 rounds in 2 sittings (`SEED` 1, 2; 1 version of the code), with 4 kills, 4 of them of trainings: 1 " in text
    )
    assert "| `kill-pretrain` | 2 | 4 | 1 | 3.0 |\n" in f"{text}\n"
    assert text.index("| `data`") < text.index("| `kill-pretrain`")  # in the order of the kinds
    page = replaced(f"before\n{BEGIN}\nold\n{END}\nafter\n", text)
    assert page == f"before\n{BEGIN}\n\n{text}\n\n{END}\nafter\n"
