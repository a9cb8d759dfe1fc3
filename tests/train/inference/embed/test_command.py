"""`tokenfree embed` at the keyboard, and what other commands say of its folder."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.train.inference.conftest import TEXTS
from tokenfree.workflows import cli


def test_standard_input_to_vectors_checked_and_shown(
    canine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    content = "\r\n".join(TEXTS).encode("utf-8-sig")  # as another system writes it
    for said in ("46 vectors of width 16, of 46 texts in ", "already complete; nothing to do"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert cli.main(["embed", canine, "-", "--output", out]) == 0
        assert said in capsys.readouterr().out
    assert cli.main(["verify", out]) == 0
    assert capsys.readouterr().out.startswith(f"{out}: good: 1 shard, 46 texts, 46 vectors\n")
    assert cli.main(["inspect", out, "--sample", "1"]) == 0
    shown = capsys.readouterr().out
    assert "46 vectors of width 16, of texts (mean)\n46 texts, 1,660 characters, 1 shard\n" in shown
    assert f"\n0  {TEXTS[0]}\n   1 vector; the first has 2-norm " in shown
    assert cli.main(["inspect", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["columns"]["vector"] == "fixed_size_list<item: float>[16]"
    (tmp_path / "out" / "data-00000.arrow").write_bytes(b"")
    assert cli.main(["verify", out, "--json"]) == 1
    assert "data-00000.arrow: damaged" in json.loads(capsys.readouterr().out)["problem"]


def test_a_folder_in_the_making_is_named(canine: str, lines: str, tmp_path: Path, capsys: Any) -> None:
    out = str(tmp_path / "out")
    assert cli.main(["embed", canine, lines, "--output", out, "--vectors", "words"]) == 0
    (tmp_path / "out" / "_SUCCESS").unlink()
    capsys.readouterr()
    assert cli.main(["verify", out]) == 1
    assert f"{out}: not complete; run the command" in capsys.readouterr().err
    assert cli.main(["inspect", out]) == 2
    assert f"{out}: not complete; run `tokenfree embed` again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--workers", "0"], "argument --workers: 0: give 1 or more"),
        (
            ["--vectors", "words", "--pooling", "cls"],
            "--pooling cls: is for --vectors texts, not words; leave it out",
        ),
        (["--device", "abacus"], "--device abacus: cannot be used here ("),
        (["--vectors", "subwords"], "invalid choice: 'subwords'"),
        (["--long", "refuse"], "text 4 has 70 characters and this model reads "),
    ],
)
def test_mistakes_are_one_line(
    options: list[str], said: str, canine: str, lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["embed", canine, lines, "--output", str(tmp_path / "out"), *options]
    try:
        status = cli.main(command)
    except SystemExit as stopped:
        status = stopped.code
    assert status == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1


def test_models_that_read_no_texts_are_refused(
    corpus: str, make_recipe_for: Any, lines: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokenfree.train.pretrain import pretrain

    pretrain(make_recipe_for({"name": "masked_subwords"}, steps=1), corpus, str(tmp_path / "run"))
    assert cli.main(["embed", str(tmp_path / "run"), lines, "--output", str(tmp_path / "out")]) == 2
    assert "this model reads subwords, not texts" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
