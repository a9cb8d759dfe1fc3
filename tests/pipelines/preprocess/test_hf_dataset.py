"""`tokenfree preprocess --hf-dataset`: from a saved dataset to shards, and mistakes in one line."""

from collections.abc import Callable
from pathlib import Path

import datasets
import pytest

from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.dataset.verify import verify
from tokenfree.workflows.cli import main

OPTIONS = [
    "--vocabulary.size",
    "320",
    "--vocabulary.required_characters",
    "none",
    "--vocabulary.character_coverage",
    "0.98",
    "--shard_characters",
    "8000",
]


@pytest.fixture
def saved(tmp_path: Path, make_corpus: Callable[..., list[dict[str, str]]]) -> Path:
    """The corpus of the other tests as a saved dataset."""
    rows = make_corpus(tmp_path / "rows.jsonl")
    columns = {"body": [row["text"] for row in rows], "language": [row["language"] for row in rows]}
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "geese"))
    return tmp_path / "geese"


def test_a_dataset_becomes_the_shards_that_its_rows_would(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["preprocess", "--hf-dataset", "geese", "--output", "out", "--text_column", "body", *OPTIONS]
    assert main([*command, "--split_bytes", "5000"]) == 0
    verify("out")
    manifest = load_manifest("out")
    assert manifest.counters["pages"] == 60
    assert manifest.counters["duplicates"] == 6
    assert [entry["path"] for entry in manifest.inputs] == ["geese"]
    assert {shard.language for shard in manifest.splits["train"].shards} == {"en", "uk", "ja"}
    capsys.readouterr()
    assert main(command) == 0
    assert "already complete" in capsys.readouterr().out

    datasets.Dataset.from_dict({"body": ["Another goose."]}).save_to_disk(str(saved))
    assert main(command) == 2
    assert "another content of the input geese" in capsys.readouterr().err


def test_the_dry_run_tells_what_is_to_come(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "preprocess",
        "--hf-dataset",
        str(saved),
        "--output",
        str(tmp_path / "out"),
        "--text_column",
        "body",
    ]
    assert main([*command, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "1 input, 1 split," in said
    assert "about 1 second with 1 worker" in said
    assert not (tmp_path / "out").exists()


def test_another_column_is_named(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preprocess", "--hf-dataset", str(saved), "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert (
        "has no column 'text', only body, language; name the one with the text: --text_column NAME" in error
    )
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
