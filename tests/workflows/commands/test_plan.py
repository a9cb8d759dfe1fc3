"""`tokenfree plan`, and the plan of preprocessing: lines, numbers, and mistakes in a line."""

import json
from pathlib import Path

import pytest

from tokenfree.pipelines.dry_run import PlanDescription
from tokenfree.workflows import cli
from tokenfree.workflows.terminal.results import money, size_of, time_of
from tokenfree.workflows.work.preprocess import estimate


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert cli.main(["plan", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_gpus_by_formula(capsys: pytest.CaptureFixture[str]) -> None:
    alone = plan(capsys, "canine-s-tiny", "--gpus", "1", "--price", "3", "--utilisation", "0.5")
    # float32 is 67 TFLOP/s on an H100; ten validations of 128 windows are forward passes alone.
    assert alone["step_seconds"] == pytest.approx(alone["flops"] / 300 / 67e12 / 0.5)
    assert alone["seconds"] == pytest.approx(alone["step_seconds"] * (300 + 3 * 128 / 32 / 3))
    assert alone["cost"] == pytest.approx(3 * alone["seconds"] / 3600)
    assert alone["exchange_seconds"] == 0
    four = plan(capsys, "canine-s-tiny", "--gpus", "4", "--utilisation", "0.5")
    assert four["step_seconds"] - four["exchange_seconds"] == pytest.approx(alone["step_seconds"] / 4)
    assert four["cost"] is None
    assert four["memory_bytes"]["activations"] < 0.3 * alone["memory_bytes"]["activations"]
    apart = plan(capsys, "canine-s-tiny", "--gpus", "4", "--nodes", "2", "--gpu", "a100")
    assert apart["exchange_seconds"] == pytest.approx(24 * four["exchange_seconds"])
    assert any("NVIDIA's data sheet of the A100" in line for line in apart["assumed"])
    assert any("a compiled model on an H200" in line for line in apart["assumed"])
    assert not any("a compiled model on an H200" in line for line in four["assumed"])


def test_lines_say_what_is_assumed_and_fit_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "canine-s-base", "--gpus", "8", "--gpu", "l4", "--train.micro_batch", "64"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "canine-s-base on 8 x l4: an estimate"
    assert any(line.startswith("assumed   30% of the peak (a compiled model on an H200") for line in lines)
    assert any("more than a device of 24.0 GB holds: lower train.micro_batch" in line for line in lines)
    assert "money     give --price, of a device for an hour" in lines
    assert max(map(len, lines)) <= 95


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpus", "0"], "argument --gpus: 0: give 1 or more"),
        (["--gpus", "6", "--nodes", "4"], "--nodes 4: 6 GPUs cannot be shared evenly by 4 machines"),
        (["--gpus", "1", "--utilisation", "30"], "--utilisation 30: give a share above 0 and at most 1"),
        (["--gpus", "1", "--price", "-1"], "--price -1: give what a device costs"),
        (["--gpus", "1", "--price", "nan"], "--price nan: give what a device costs"),
        (["--gpus", "64"], "64 workers cannot share train.global_batch 32"),
        (["--gpus", "1", "--data", "nowhere"], "nowhere"),
        ([], "the following arguments are required: --gpus"),
    ],
)
def test_mistakes_are_a_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = cli.main(["plan", "canine-s-tiny", *arguments])
    except SystemExit as ended:
        status = ended.code
    error = capsys.readouterr().err
    assert (status, error.count("\n")) == (2, 1)
    assert words in error


def test_preprocessing_on_workers() -> None:
    known = PlanDescription(
        inputs=1,
        splits=10,
        bytes=10**9,
        estimated_characters=10**8,
        estimated_shards=7,
        estimated_output_bytes=9 * 10**8,
        estimated_disk_bytes=10**9,
        estimated_seconds=36_000,
        vocabulary_characters=0,
        vocabulary_seconds=0,
    )
    said = estimate(known, 5, 0.5)
    assert "time        about 2.0 hours with 5 workers\n" in said
    assert "money       about 5.00" in said
    assert "up to 380 MB" in said
    assert "disk        up to about 1.0 GB while it runs\n" in said
    # A split is read by one worker.
    assert "time        about 60 minutes with 20 workers" in estimate(known, 20, None)
    assert "money" not in estimate(known, 20, None)


def test_all_cores_are_those_of_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "book.txt").write_text("A goose is a bird. " * 20)
    monkeypatch.setattr("tokenfree.workflows.work.preprocess.cores", lambda: 3)
    book, out = str(tmp_path / "book.txt"), str(tmp_path / "out")
    assert cli.main(["preprocess", "--books", book, "--output", out, "--dry-run", "--workers", "0"]) == 0
    assert " with 3 workers" in capsys.readouterr().out


def test_price_needs_a_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["preprocess", "--wikipedia", "a.xml", "--output", "out", "--price", "1"]) == 2
    assert "--price 1: what a worker costs for an hour; it needs --dry-run" in capsys.readouterr().err


def test_quantities() -> None:
    assert [time_of(each) for each in (0, 90, 1800, 10_800, 10**6)] == [
        *("1 second", "90 seconds", "30 minutes", "3.0 hours", "11.6 days")
    ]
    assert [size_of(each) for each in (1234567, 25e6, 3.4e9, 2e12)] == [
        "1.23 MB",
        "25 MB",
        "3.4 GB",
        "2.0 TB",
    ]
    assert [money(each) for each in (0.00123, 1234.5)] == ["0.0012", "1,234.50"]


@pytest.mark.parametrize(
    ("key", "value", "status", "words"),
    [
        (
            "model.trunk.layers",
            "1000000",
            2,
            "model.trunk.layers: should be less than or equal to 1000, not 1000000",
        ),
        (
            "model.downsampler.layers",
            "1000000",
            2,
            "model.downsampler.layers: should be less than or equal to 1000",
        ),
        ("model.width", "1000000000000", 1, "not enough memory"),
        ("model.trunk.inner_width", "9" * 30, 2, "an integer of more than 64 bits"),
        ("train.global_batch", "nan", 2, "train.global_batch: should be a valid integer, not 'nan'"),
        ("train.learning_rate", "1e999", 2, "train.learning_rate: should be a finite number"),
    ],
)
def test_numbers_beyond_all_models_are_one_line(
    capsys: pytest.CaptureFixture[str], key: str, value: str, status: int, words: str
) -> None:
    assert cli.main(["plan", "canine-s-tiny", "--gpus", "1", f"--{key}", value]) == status
    told = capsys.readouterr().err
    assert words in told
    assert "unexpected" not in told
    assert told.count("\n") == 1
