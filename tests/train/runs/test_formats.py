"""Runs and sweeps whose format is later, wrong or missing are refused."""

import shutil
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY
from tokenfree.core.errors import UserError
from tokenfree.core.stored_files import HASHES
from tokenfree.train.runs.config import read_config
from tokenfree.workflows import cli


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the kept data, run, fine-tuned run and sweep, which is the working directory."""
    folder = tmp_path / "kept"
    shutil.copytree(REPOSITORY / "tests" / "golden" / "kept", folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "evaluate run --data data",
        "pretrain recipe.yaml --data data --output run",
        "report run --output page.html",
        "verify run",
        "evaluate finetuned --data examples.tsv",
        "predict finetuned snow",
        "report finetuned --output page.html",
        "verify finetuned",
        "report sweep --output page.html",
        "verify sweep",
        "sweep sweep.yaml --data data --output sweep",
    ],
)
def test_a_later_format_is_refused(kept: Path, capsys: pytest.CaptureFixture[str], words: str) -> None:
    copies = {
        "run/config.yaml": "recipe.yaml",
        "finetuned/config.yaml": "other.yaml",
        "sweep/sweep.yaml": "sweep.yaml",
    }
    for path, copy in ((Path(name), copy) for name, copy in copies.items()):
        mapping = yaml.safe_load(path.read_text())
        Path(copy).write_text(yaml.safe_dump(mapping["recipe"]))
        path.write_text(yaml.safe_dump({**mapping, "format": 99, "recipe": ["of another kind"]}))
        path.with_name(HASHES).unlink()
    contents = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    assert cli.main(words.split()) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert (
        ": format 99 is not known here (the newest known: 1); install the tokenfree that wrote it, or a"
        in message
    )
    assert {path: path.read_bytes() for path in contents} == contents


@pytest.mark.parametrize(
    "line", ["format: 0", "format: -1", "format: one", "format: 1.5", "format: null", ""]
)
def test_read_config_refuses_a_wrong_or_missing_number(kept: Path, line: str) -> None:
    path = Path("run/config.yaml")
    path.write_text(path.read_text().replace("format: 1\n", f"{line}\n"))
    path.with_name(HASHES).unlink()
    with pytest.raises(UserError, match=r"config.yaml: damaged, format"):
        read_config("run")
