"""Where the run stands on the command line of evaluate."""

from pathlib import Path

import pytest

from tokenfree.workflows import cli


@pytest.mark.parametrize("words", [["RUN", "--data", "data"], ["--data", "data", "RUN"]])
def test_the_run_may_stand_before_and_behind_the_data(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["evaluate", *words]) == 2
    assert capsys.readouterr().err.startswith("tokenfree: RUN holds no run")


def test_a_missing_run_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", "--data", "data"]) == 2
    assert "RUN is missing" in capsys.readouterr().err
