"""Nodes of a local cluster: nothing is left of what fails to start."""

from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import JobError
from tokenfree.workflows.cluster import local


@pytest.fixture
def programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Nodes are shell scripts, of which each takes the next of the given ones; gives what was started."""
    started: list[list[str]] = []
    monkeypatch.setenv("RAY_TMPDIR", str(folder))
    monkeypatch.setattr(local, "_END_SECONDS", 0.1)

    def make(*scripts: str) -> list[list[str]]:
        waiting = list(scripts)
        begin = local.subprocess.Popen

        def popen(command: list[str], **options: Any) -> Any:
            started.append(command)
            return begin(["sh", "-c", waiting.pop(0)], **options)

        monkeypatch.setattr(local.subprocess, "Popen", popen)
        return started

    return make


UP = "echo Ray runtime started; exec sleep 100"


def test_nodes_start_one_after_the_other(programs: Any, folder: Path) -> None:
    started = programs(UP, UP)
    made = local.start(2, 1)
    assert [("--head" in command) for command in started] == [True, False]
    assert len(made.processes()) == 2
    assert local.running() == made
    assert local.is_current(made)
    local.stop(made)
    assert made.processes() == []
    assert local.running() is None
    assert not local.is_current(made)
    assert list(folder.iterdir()) == []


def test_what_does_not_start_leaves_nothing(programs: Any, folder: Path) -> None:
    programs("sleep 100 & echo no space")
    with pytest.raises(JobError, match="node 0 of the local cluster did not start: no space"):
        local.start(1, 1)
    assert local.running() is None
    assert list(folder.iterdir()) == []


def test_nodes_keep_to_loopback(programs: Any) -> None:
    started = programs(UP, UP)
    local.stop(local.start(2, 3))
    for command in started:
        assert "tokenfree.train.ray.loopback_node" in command
        assert {"--node-ip-address=127.0.0.1", "--num-cpus=3", "--block"} <= set(command)
    assert "--dashboard-host=127.0.0.1" in started[0]
