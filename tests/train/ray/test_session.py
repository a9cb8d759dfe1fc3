"""What of Ray is gone, seen by connections to its parts."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenfree.preprocess.common.errors import JobError
from tokenfree.train.ray.session import RayLost, Session, ray_session


@pytest.fixture
def parts() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as node, socket.create_server(("127.0.0.1", 0)) as head:
        yield node, head


def session(parts: tuple[socket.socket, socket.socket], *, local: bool) -> Session:
    return Session(parts[0].getsockname(), parts[1].getsockname(), local=local)


@pytest.mark.parametrize("local", [True, False])
def test_a_node_that_is_gone_is_lost_at_once(parts: tuple[socket.socket, socket.socket], local: bool) -> None:
    found = session(parts, local=local)
    found.check()
    parts[0].close()
    with pytest.raises(RayLost, match="the Ray node of this machine"):
        found.check()


def test_the_head_of_an_own_cluster_is_lost_at_once(parts: tuple[socket.socket, socket.socket]) -> None:
    found = session(parts, local=True)
    found.check()
    parts[1].close()
    with pytest.raises(RayLost, match="the head of the Ray cluster"):
        found.check()


def test_the_head_of_a_cluster_has_time_to_come_back(
    parts: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    found = session(parts, local=False)
    parts[1].close()
    now += 40
    found.check()
    now += 10
    with pytest.raises(RayLost, match="the head of the Ray cluster"):
        found.check()


def test_a_folder_whose_path_is_too_long_for_sockets_has_its_own_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("long" * 25)))
    with pytest.raises(JobError, match="set RAY_TMPDIR to a short path"), ray_session(1):
        pass


CUT_OFF = """
import sys, time
from types import SimpleNamespace
import ray
from tokenfree.train.ray import session
ray.get_runtime_context = lambda: SimpleNamespace(gcs_address="127.0.0.1:" + sys.argv[1])
session._LOOK_SECONDS, session._HEAD_PATIENCE = 0.1, 0.5
with session.ended_where_cut_off():
    time.sleep(2.5)
"""


@pytest.mark.parametrize(("is_there", "status"), [(True, 0), (False, 1)])
def test_a_worker_that_misses_the_head_ends(
    is_there: bool, status: int, parts: tuple[socket.socket, socket.socket]
) -> None:
    port = parts[1].getsockname()[1]
    if not is_there:
        parts[1].close()
    command = [sys.executable, "-c", CUT_OFF, str(port)]
    assert subprocess.run(command, timeout=120).returncode == status
