"""The next command is one that a shell understands."""

import shlex
from types import SimpleNamespace

import pytest

from tokenfree.workflows import cli
from tokenfree.workflows.terminal.results import next_command


def test_what_the_shell_needs_quoted_is_quoted() -> None:
    line = next_command("predict", "my runs/it's", "A [MASK].", "--output", "RUN")
    assert line.startswith("  next        tokenfree predict ")
    assert shlex.split(line)[1:] == ["tokenfree", "predict", "my runs/it's", "A [MASK].", "--output", "RUN"]


def test_another_program() -> None:
    line = next_command("-c", "import json; json.loads('1')", program="python")
    assert shlex.split(line) == ["next", "python", "-c", "import json; json.loads('1')"]


@pytest.mark.parametrize(("windows", "characters", "said"), [
    (5, 232, "  next        tokenfree pretrain canine-fast-tiny --data out --output runs/first"),
    (0, 232, "  note        no text for validation, which pretrain needs: give more text, or another "
             "--validation_fraction (now 0.05)"),
])  # fmt: skip
def test_after_preprocessing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    windows: int,
    characters: int,
    said: str,
) -> None:
    split = SimpleNamespace(documents=5, rows=5, characters=9, shards=[1])
    manifest = SimpleNamespace(
        # A split without windows is left out.
        splits={"train": split} | ({"validation": split} if windows else {}),
        vocabulary_size=None,
        counters={"failed": {}},
        statistics={"languages": {}},
    )
    monkeypatch.setattr("tokenfree.workflows.work.preprocess.run_preprocess", lambda *_, **__: manifest)
    arguments = ["--output", "out", "--window.max_characters", str(characters)]
    assert cli.main(["preprocess", "--wikipedia", "a.xml", *arguments]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == said
