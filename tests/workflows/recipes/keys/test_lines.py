"""How keys are printed: wrapped in a terminal, in a pipe a line each."""

import argparse
import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tokenfree.workflows.recipes.keys import Key, KeyGroup, lines
from tokenfree.workflows.recipes.kinds import PRETRAINING, SWEEP
from tokenfree.workflows.recipes.options import HelpKeys

SECTIONS = [
    KeyGroup("", None, "What it reads.", (Key("base", "text", None, "a name."),)),
    KeyGroup(
        "model.pond", "duck", "A pond.", (Key("model.pond.depth", "int >= 1", "3", "how " * 30 + "deep."),)
    ),
]


def test_a_line_for_each_key_whatever_its_length() -> None:
    assert list(lines(SECTIONS)) == [
        "base\t\ttext\trequired\ta name.",
        "model.pond.depth\tduck\tint >= 1\tdefault 3\t" + "how " * 30 + "deep.",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_wrapped_lines_and_a_pipe_tabs(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((72, 24)))
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("--help-keys", action=HelpKeys, kind=SWEEP)
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--help-keys", "space"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out.splitlines()
    assert any("mapping, not empty" in line for line in shown)
    assert any("\t" in line for line in shown) != terminal
    assert (max(map(len, shown)) <= 72) == terminal


def test_a_reader_of_the_pipe_may_stop() -> None:
    command = [sys.executable, "-m", "tokenfree", "preprocess", "--help-keys", "vocabulary.size"]
    pipe, buffered = subprocess.PIPE, {**os.environ, "PYTHONUNBUFFERED": ""}
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=REPOSITORY, env=buffered) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_without_the_option_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--help-keys", action=HelpKeys, kind=PRETRAINING)
    parser.parse_args([])
    assert capsys.readouterr().out == ""


def test_the_example_of_the_docs_is_what_is_printed() -> None:
    page = (REPOSITORY / "docs" / "recipes.md").read_text(encoding="utf-8")
    example = page.partition("--help-keys | grep dropout | cut -f 1,2,3,4\n")[2].partition("```")[0]
    found = [line.split("\t")[:4] for line in lines(PRETRAINING.groups()) if "dropout" in line]
    assert [line.split("\t") for line in example.splitlines()] == found
