"""What a result says of the command, the versions, the commit and the machine that made it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from tokenfree.train.runs import provenance


def test_an_attempt_says_with_what_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTNAME", "a-name-of-a-host")
    monkeypatch.setenv("SECRET_KEY", "a-secret")
    found = provenance.attempt()
    assert set(found) == {"time", "command", "commit", "machine", "packages"}
    assert set(found["machine"]) == {"cores", "memory_gib", "accelerators", "system", "python"}
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["memory_gib"] > 0.1
    assert found["machine"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["packages"]["numpy"] == numpy.__version__
    assert {"tokenfree", "torch", "ray"} <= set(found["packages"])
    assert not {"pytest", "transformers"} & set(found["packages"])  # of extras
    for secret in ("a-name-of-a-host", "a-secret", os.uname().nodename):
        assert secret not in str({**found, "command": ""})


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["/env/bin/tokenfree", "pretrain", "a b", "--data", "$X"], "tokenfree pretrain 'a b' --data '$X'"),
        (["/env/tokenfree/__main__.py", "doctor"], "tokenfree doctor"),
        (["-c", "1"], "python 1"),
        ([""], "python"),
    ],
)
def test_the_command_is_as_it_was_typed(argv: list[str], shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert provenance.command() == shown


def test_the_commit_is_that_of_the_checkout_which_holds_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "tokenfree" / "train" / "runs"
    code.mkdir(parents=True)
    (code / "provenance.py").write_text("")
    monkeypatch.setattr(provenance, "__file__", str(code / "provenance.py"))
    assert provenance.commit() is None
    for command in ("init --quiet", "add .", "-c user.name=x -c user.email=x@y commit --quiet -m first"):
        subprocess.run(["git", "-C", str(tmp_path), *command.split()], check=True)
    head = subprocess.run(
        ["git", "-C", str(tmp_path), "rev-parse", "HEAD"], capture_output=True, text=True
    ).stdout
    assert provenance.commit() == head.strip()
    (code / "provenance.py").write_text("changed = 1")
    assert provenance.commit() == f"{head.strip()}-dirty"
    monkeypatch.setenv("PATH", "")
    assert provenance.commit() is None


def test_gpus_are_named_by_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_GPUS", tmp_path)
    monkeypatch.setattr(provenance.torch.cuda, "device_count", lambda: 1)
    assert provenance.accelerators() == ["CUDA device"]
    (tmp_path / "0000:00:04.0").mkdir()
    (tmp_path / "0000:00:04.0" / "information").write_text(
        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 22\n"
    )
    assert provenance.accelerators() == ["NVIDIA H100 80GB HBM3"]
    monkeypatch.setattr(provenance.torch.cuda, "device_count", lambda: 0)
    assert provenance.accelerators() == []
