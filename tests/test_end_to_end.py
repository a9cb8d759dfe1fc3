"""The whole path by its commands: dump -> shards -> pretraining -> sweep -> report, and what bad input gets."""

import csv
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml

from tokenfree import load_encoder, load_windows
from tokenfree.workflows.cli import main
from tokenfree.workflows.demo_corpus.corpus import bundled_pages, write_dump

TINY = ["--window.max_characters", "56", "--vocabulary.size", "400", "--validation_fraction", "0.2"]
MODEL: dict[str, Any] = {
    "base": "canine-s-tiny",
    "model": {
        "width": 16,
        "embedder": {"buckets": 64, "hashes": 2, "max_characters": 64},
        "downsampler": {"block": 16},
        "trunk": {"layers": 1, "heads": 2},
    },
    "train": {
        "steps": 6,
        "global_batch": 8,
        "length": 64,
        "checkpoint_every_steps": 3,
        "validate_every_steps": 3,
        "validation_windows": 8,
    },
}


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dump of the demo's own pages."""
    path = tmp_path_factory.mktemp("dumps") / "enwiki-test-pages-articles.xml.bz2"
    write_dump(path, bundled_pages())
    return path


@pytest.fixture(scope="module")
def data(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dump as shards."""
    output = tmp_path_factory.mktemp("data") / "en"
    assert main(["preprocess", "--wikipedia", str(dump), "--output", str(output), *TINY]) == 0
    return output


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    """A recipe of a very small model."""
    path = tmp_path / "very-small.yaml"
    path.write_text(yaml.safe_dump(MODEL))
    return str(path)


def _check_inspected(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `inspect --json` says of the windows is what stands in their text."""
    assert main(["inspect", str(data), "--sample", "60", "--width", "90", "--json"]) == 0
    windows = json.loads(capsys.readouterr().out)["windows"]
    assert len(windows) == 60
    for window in windows:
        text = window["text"]
        assert len(text) == len(window["masked"]) <= 90
        for start, end, drawn in [*window["words"], *window["subwords"]]:
            # Pieces that are bytes have brackets.
            assert drawn in (text[start:end], f"<{text[start:end]}>")


def _next(out: str) -> list[str]:
    """The arguments of `tokenfree` in the line that names the next command to type."""
    (line,) = [line for line in out.splitlines() if line.split()[:1] == ["next"]]
    program, *arguments = shlex.split(line)[1:]
    assert program == "tokenfree"
    return arguments


def test_the_whole_path(
    dump: Path, data: Path, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = datasets.load_from_disk(str(data))
    manifest = json.loads((data / "manifest.json").read_text())
    assert isinstance(opened, datasets.DatasetDict)
    assert sum(len(split) for split in opened.values()) == sum(
        shard["rows"] for split in manifest["splits"].values() for shard in split["shards"]
    )
    counters = manifest["counters"]
    assert counters["redirects"] == sum(page.redirect is not None for page in bundled_pages())
    assert counters["other_namespaces"] == sum(page.namespace != 0 for page in bundled_pages())
    assert main(["preprocess", "--wikipedia", str(dump), "--output", str(data), *TINY]) == 0
    assert "already complete" in capsys.readouterr().out

    assert main(["verify", str(data)]) == 0
    assert main(["inspect", str(data), "--sample", "1"]) == 0
    shown = capsys.readouterr().out
    for word in ("documents", "subword_starts", "words", "masks"):
        assert word in shown
    assert main(["verify", str(data), "--json"]) == 0
    rows = sum(len(split) for split in opened.values())
    found = json.loads(capsys.readouterr().out)
    assert (found["good"], found["windows"], found["characters"]) == (True, rows, counters["characters"])
    _check_inspected(data, capsys)

    run = tmp_path / "run"
    arguments = ["pretrain", recipe, "--data", str(data), "--output", str(run)]
    assert main([*arguments, "--dry-run"]) == 0
    assert not run.exists()
    assert main(arguments) == 0
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in lines if "validation_loss" in line] == [3, 6]
    assert "best guess without context: " in capsys.readouterr().out
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "already complete" in shown
    evaluated = _next(shown)
    assert evaluated == ["evaluate", str(run), "--data", str(data)]
    assert main([*evaluated, "--windows", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["probe"] == min(found["probe_blank"], found["probe_other"])
    assert main(evaluated) == 0
    assert "nats higher when the context is hidden" in capsys.readouterr().out

    sweep_recipe = tmp_path / "sweep.yaml"
    space = {"model.embedder.buckets": {"choice": [16, 64]}, "model.downsampler.rate": {"choice": [2, 4]}}
    mapping = {"base": recipe, "space": space, "trials": 2, "budget": {"steps": 4}, "reports": 2}
    sweep_recipe.write_text(yaml.safe_dump(mapping))
    sweep = tmp_path / "sweep"
    assert main(["sweep", str(sweep_recipe), "--data", str(data), "--output", str(sweep)]) == 0
    with (sweep / "sweep.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2
    trained = _next(capsys.readouterr().out)
    assert trained == ["pretrain", str(sweep / "best.yaml"), "--data", str(data), "--output", "runs/best"]
    assert main([*trained, "--dry-run"]) == 0

    page = tmp_path / "report.html"
    assert main(["report", str(data), str(run), str(sweep), "--output", str(page)]) == 0
    parts = ("Corpus · en", "Pretraining · run", "Sweep · sweep", "Best setting", "Settings compared")
    assert [part for part in parts if part not in page.read_text()] == []
    assert "Best setting" in (sweep / "report.html").read_text()

    encoder = load_encoder(str(run))
    out = encoder(["any text", "日本語"])
    assert out.characters.shape[0] == out.mask.shape[0] == 2
    assert out.characters.shape[1] == out.mask.shape[1]
    assert out.pooled.shape == (2, 16)
    assert next(iter(load_windows(str(data))))["text"]


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which a command refuses its input, with status 2."""
    status = main(argv)
    error = capsys.readouterr().err
    assert status == 2, error
    lines = [line for line in error.splitlines() if line.startswith("tokenfree")]
    assert len(lines) == 1, error
    assert "Traceback" not in error
    return lines[0]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("absent.xml.bz2", None),
        ("letter.xml", b"Dear Ann,\nall is well.\n"),
        ("empty.xml.bz2", b""),
        ("one.xml.bz2", b"B"),
    ],
)
def test_inputs_that_are_no_dump(
    name: str, content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    output = tmp_path / "out"
    assert name in refused(
        ["preprocess", "--wikipedia", str(tmp_path / name), "--output", str(output)], capsys
    )
    assert not output.exists()


def test_a_dump_without_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dump(tmp_path / "enwiki-empty.xml.bz2", [])
    argv = [
        "preprocess",
        "--wikipedia",
        str(tmp_path / "enwiki-empty.xml.bz2"),
        "--output",
        str(tmp_path / "out"),
    ]
    assert "enwiki-empty" in refused(argv, capsys)
    assert not (tmp_path / "out").exists()


def test_nothing_to_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--wikipedia" in refused(["preprocess", "--output", str(tmp_path / "out")], capsys)
    assert not (tmp_path / "out").exists()


def test_a_misspelt_key(data: Path, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(recipe).write_text(yaml.safe_dump({**MODEL, "model": {"trunk": {"layrs": 3}}}))
    error = refused(["pretrain", recipe, "--data", str(data), "--output", str(tmp_path / "run")], capsys)
    assert "model.trunk.layrs" in error
    assert "did you mean 'model.trunk.layers'" in error
    assert not (tmp_path / "run").exists()


def test_a_data_directory_without_manifest(
    recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    for argv in (
        ["pretrain", recipe, "--data", str(tmp_path / "data"), "--output", str(tmp_path / "run")],
        ["verify", str(tmp_path / "data")],
        ["inspect", str(tmp_path / "data")],
        ["sweep", "three-knobs-tiny", "--data", str(tmp_path / "data"), "--output", str(tmp_path / "run")],
    ):
        assert "manifest.json" in refused(argv, capsys)
    assert not (tmp_path / "run").exists()


def test_an_output_that_cannot_be_written(
    dump: Path, data: Path, recipe: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("a file, not a folder")
    output = str(tmp_path / "file" / "out")
    refused(["preprocess", "--wikipedia", str(dump), "--output", output, *TINY], capsys)
    refused(["pretrain", recipe, "--data", str(data), "--output", output], capsys)
    refused(["report", str(data), "--output", f"{output}.html"], capsys)
    assert (tmp_path / "file").read_text() == "a file, not a folder"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this user may not mount a file system: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk(
    dump: Path, data: Path, recipe: str, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = small_disk / "out"
    preprocess = ["preprocess", "--wikipedia", str(dump), "--output", str(output), *TINY]
    program = [sys.executable, "-m", "tokenfree", *preprocess]
    # Here nothing catches what is logged.
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "No space left" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (output / "manifest.json").exists()
    assert not list(output.glob("*/*.arrow"))
    shutil.rmtree(output)
    assert "No space left" in refused(
        ["pretrain", recipe, "--data", str(data), "--output", str(output)], capsys
    )
    assert not list(output.glob("checkpoints/step_*"))
    shutil.rmtree(output)
    (small_disk / "filler").write_bytes(b"x" * 60_000)
    refused(["report", str(data), "--output", str(small_disk / "r.html")], capsys)
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_a_read_only_disk(
    dump: Path, data: Path, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for argv in (
        ["preprocess", "--wikipedia", str(dump), "--output", str(small_disk / "out"), *TINY],
        ["pretrain", "canine-s-tiny", "--data", str(data), "--output", str(small_disk / "out")],
        ["report", str(data), "--output", str(small_disk / "r.html")],
    ):
        assert "Read-only" in refused(argv, capsys)
    assert not list(small_disk.iterdir())


def test_two_corpora_do_not_mix(dump: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["preprocess", "--wikipedia", str(dump), "--output", str(data), *TINY, "--seed", "7"]
    assert "seed" in refused(argv, capsys)
