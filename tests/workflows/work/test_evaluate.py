"""What `tokenfree evaluate` prints last."""

import argparse
from pathlib import Path

import pytest

from tokenfree.workflows.work import evaluate


def test_the_next_command_resumes_a_run_without_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluate, "is_finetuned", lambda run: False)
    monkeypatch.setattr(evaluate, "data_of", lambda args: "data/en")
    monkeypatch.setattr(evaluate, "evaluate", lambda *_, **__: {"step": 4})
    report = f"next        tokenfree report data/en {tmp_path} --output report.html"
    args = argparse.Namespace(run_folder=str(tmp_path), windows=None, step=None, trust_code=False, json=False)
    evaluate.run(args)
    assert f"next        tokenfree pretrain --output {tmp_path}" in capsys.readouterr().out
    args.step = 2
    evaluate.run(args)
    assert report in capsys.readouterr().out
    args.step = None
    (tmp_path / "result.json").write_text("{}")
    evaluate.run(args)
    assert report in capsys.readouterr().out
