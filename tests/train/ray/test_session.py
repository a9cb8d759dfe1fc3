"""What of Ray is gone, seen by connections to its parts."""

import socket
import time
from collections.abc import Iterator

import pytest

from tokenfree.train.ray.session import RayLost, Session


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
