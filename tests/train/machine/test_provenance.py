"""What a result says of the command, the versions, the commit and the machine that made it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from tokenfree.train.runs import provenance


def git(folder: Path, *arguments: str) -> str:
    identity = {f"GIT_{who}_{what}": "nobody@nowhere" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, env={**os.environ, **identity}, capture_output=True, text=True, check=True).stdout


def test_an_attempt_says_with_what_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTNAME", "a-name-of-a-host")
    monkeypatch.setenv("SECRET_KEY", "a-secret")
    found = provenance.attempt()
    assert set(found) == {"time", "command", "commit", "machine", "packages", "hashes"}
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


def test_the_commit_is_that_of_the_tree_which_holds_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "__init__.py").write_text("")
    assert provenance.commit(code) is None
    git(tmp_path, "init", "--quiet")
    (tmp_path / "notes").write_text("of somebody")
    git(tmp_path, "add", "notes")
    git(tmp_path, "commit", "--quiet", "-m", "theirs")
    assert provenance.commit(code) is None  # installed inside somebody's work tree
    git(tmp_path, "add", "code")
    git(tmp_path, "commit", "--quiet", "-m", "ours")
    head = git(tmp_path, "rev-parse", "HEAD").strip()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))  # as in a hook
    assert provenance.commit(code) == head
    (code / "__init__.py").write_text("changed = 1")
    assert provenance.commit(code) == f"{head}-dirty"
    monkeypatch.setenv("PATH", "")
    assert provenance.commit(code) is None


def test_gpus_are_named_by_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_GPUS", tmp_path)
    monkeypatch.setattr(provenance.torch.cuda, "device_count", lambda: 1)
    assert provenance.accelerators() == ["CUDA device"]
    (tmp_path / "0000:00:04.0").mkdir()
    (tmp_path / "0000:00:04.0" / "information").write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 22\n")
    assert provenance.accelerators() == ["NVIDIA H100 80GB HBM3"]
    monkeypatch.setattr(provenance.torch.cuda, "device_count", lambda: 0)
    assert provenance.accelerators() == []
