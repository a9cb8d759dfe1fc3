"""The command line: help, overrides, and mistakes that end in one line with status 2."""

import argparse
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.workflows import cli
from tokenfree.workflows.commands import preprocess, pretrain


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What was written to standard error: one line, no traceback."""
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    assert "Traceback" not in error
    return error


def test_every_command_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    names = cli.command_names()
    contract = {
        "demo",
        "preprocess",
        "inspect",
        "verify",
        "replay",
        "model",
        "pretrain",
        "sweep",
        "evaluate",
        "export",
        "import",
        "report",
        "doctor",
    }
    assert contract <= set(names)
    for name in names:
        with pytest.raises(SystemExit) as ended:
            cli.main([name, "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert "xample" in shown, name
        assert f"tokenfree {name}" in shown, name


def test_no_command_shows_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "preprocess" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["preprocess", "--outptu", "x"], "--outptu (did you mean --output?)"),
        (["preprocess", "--output"], "expected one argument"),
        (["pretrain", "canine-s-tiny", "--data", "d", "--output", "r", "--model.trunk.layers"], "needs a value"),
        (["pretrain", "canine-s-tinny", "--data", "d", "--output", "r"], "no recipe of that name"),
        (["pretrain", "canine-s-tiny", "--data", "nowhere", "--output", "r"], "nowhere"),
        (["pretrain", "canine-s-tiny", "--data", "d", "--output", "r", "--modle.width", "3"], "--modle.width"),
        (["verify", "nowhere"], "nowhere"),
        (["verify", "x", "--", "--beam"], "nothing after '--'"),
        (["report", "nowhere", "--output", "r.html"], "nowhere"),
        (["preprocess", "enwiki.xml.bz2", "--output", "x"], "write --wikipedia enwiki.xml.bz2"),
        (["preprocess", "moby_dick.txt", "--output", "x"], "write --books moby_dick.txt"),
        (["preprocess", "--output", "x"], "nothing to read"),
        (["preprocess", "--books", "d", "--output", "x", "--columns", "text,codepoints"], "a list such as [a, b]"),
        (["preprocess", "--hf-dataset", "s3://geese", "--output", "x"], "s3://geese is an address"),
        (["frobnicate"], "invalid choice"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status = cli.main(argv)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert words in one_line(capsys)
    assert not list(tmp_path.iterdir())


def test_overrides_are_no_positionals() -> None:
    own, overrides = cli._take_overrides(
        "preprocess", preprocess, ["--shards", "4", "--output", "x", "--window.pack=none"]
    )
    assert own == ["--output", "x"]
    assert overrides == [("shards", "4"), ("window.pack", "none")]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UserError("wrong"), 2),
        (JobError("broke"), 1),
        (PermissionError(13, "Permission denied", "x"), 2),
        (KeyError("k"), 1),
    ],
)
def test_errors_become_one_line(
    error: Exception, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(args: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr("tokenfree.workflows.commands.verify.run", fail)
    assert cli.main(["verify", "x"]) == status
    one_line(capsys)
    assert cli.main(["verify", "x", "--debug"]) == status
    assert "Traceback" in capsys.readouterr().err


def test_workers() -> None:
    assert pretrain.parse_workers("4") == (4, 4)
    assert pretrain.parse_workers("2:8") == (2, 8)
    for wrong in ("0", "3:2", "x", "2:"):
        with pytest.raises(UserError, match="--workers"):
            pretrain.parse_workers(wrong)


def test_model_and_doctor_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["model", "canine-s-tiny", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["parameters"] == sum(part["parameters"] for part in found["parts"]) > 10**6
    assert found["memory_bytes"]["total"] == sum(v for k, v in found["memory_bytes"].items() if k != "total")
    assert (found["length"], found["examples"]) == (240, 32)
    status = cli.main(["doctor", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert status == (1 if found["missing"] else 0)
    assert {"python", "torch"} <= {finding["what"] for finding in found["findings"]}


def test_verify_as_json_says_what_is_wrong(capsys: pytest.CaptureFixture[str],
                                           monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    def verify(directory: str) -> None:
        raise JobError(f"{directory}: row 7 is damaged")

    monkeypatch.setattr("tokenfree.preprocess.dataset.manifest.load_manifest", lambda _: SimpleNamespace(splits={}))
    monkeypatch.setattr("tokenfree.preprocess.dataset.verify.verify", verify)
    assert cli.main(["verify", "data/en", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"good": False, "problem": "data/en: row 7 is damaged"}
    assert cli.main(["verify", "data/en"]) == 1
    assert one_line(capsys) == "tokenfree: data/en: row 7 is damaged\n"
