"""What of Ray is gone, seen by connections to its parts."""

import contextlib
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray._private import services

from tokenfree.core.errors import JobError
from tokenfree.train.ray import cluster
from tokenfree.train.ray.cluster import RayLost, Session, ray_session

Ends = Callable[..., bool]


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


def test_what_keeps_ray_from_starting_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no reason\nmore")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.init", fail)
    expected = r"^Ray could not be started on this machine: no reason; .*RAY_TMPDIR"
    with pytest.raises(JobError, match=expected), ray_session(1):
        pass


@pytest.mark.parametrize("value", [None, "", "local"])
def test_ray_session_starts_a_private_ray(
    value: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: dict[str, Any] = {}

    def init(address: str, **options: Any) -> None:
        assert services.get_node_ip_address() == "127.0.0.1"
        started.update(options, address=address)

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "new"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if value is not None:
        monkeypatch.setenv("RAY_ADDRESS", value)
    monkeypatch.setattr("ray.init", init)
    monkeypatch.setattr(Session, "current", lambda local: local)
    with ray_session(1) as session:
        assert session is True
        assert started["address"] == "local"
        folder = Path(started["_temp_dir"]).parent  # Ray itself opens its folder to everyone
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / ".ray" / "auth_token").stat().st_mode) == 0o600
    assert list((tmp_path / "new").iterdir()) == []


@pytest.fixture
def silent() -> Iterator[tuple[str, str]]:
    """Addresses that do not answer: their queues of connections are full."""
    with contextlib.ExitStack() as stack:
        found = []
        for host in ("127.0.0.2", "127.0.0.3"):
            server = stack.enter_context(socket.create_server((host, 0), backlog=0))
            address = server.getsockname()
            with contextlib.suppress(TimeoutError):
                while True:
                    stack.enter_context(socket.create_connection(address, timeout=0.1))
            found.append(f"{host}:{address[1]}")
        yield found[0], found[1]


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    """Whether a worker ends its process within some looks: with these patiences, and addresses of head and others."""
    ended = threading.Event()

    def watched(head_patience: float, cut_off: float, head: str, *others: str) -> bool:
        machines = [("127.0.0.1", "1"), *(tuple(address.split(":")) for address in (head, *others))]
        nodes = [
            {"Alive": True, "NodeID": str(number), "NodeManagerAddress": host, "NodeManagerPort": int(port)}
            for number, (host, port) in enumerate(machines)
        ]
        context = SimpleNamespace(gcs_address=head, get_node_id=lambda: "0")
        monkeypatch.setattr("ray.get_runtime_context", lambda: context)
        monkeypatch.setattr("ray.nodes", lambda: nodes)
        for name, seconds in (("LOOK", 0.1), ("ANSWER", 0.2)):
            monkeypatch.setattr(cluster, f"_{name}_SECONDS", seconds)
        monkeypatch.setattr(cluster, "_HEAD_PATIENCE", head_patience)
        monkeypatch.setattr(cluster, "_CUT_OFF_SECONDS", cut_off)
        monkeypatch.setattr("os._exit", lambda status: status == 1 and ended.set())
        with cluster.exit_if_cut_off():
            (watcher,) = (thread for thread in threading.enumerate() if thread.name == "head")
            found = ended.wait(2)
        watcher.join()  # while its os._exit is not the real one
        return found

    return watched


@pytest.mark.parametrize("is_there", [True, False])
def test_a_worker_that_misses_the_head_ends(
    is_there: bool, parts: tuple[socket.socket, socket.socket], ends: Ends
) -> None:
    port = parts[1].getsockname()[1]
    if not is_there:
        parts[1].close()
    assert ends(0.5, 60, f"127.0.0.1:{port}") != is_there


def test_a_worker_that_reaches_no_machine_ends_long_before(silent: tuple[str, str], ends: Ends) -> None:
    assert ends(60, 0.5, *silent)


def test_a_head_that_is_gone_may_come_back(silent: tuple[str, str], ends: Ends) -> None:
    assert not ends(60, 0.5, silent[0])


def test_a_machine_without_its_node_is_reached(
    silent: tuple[str, str], parts: tuple[socket.socket, socket.socket], ends: Ends
) -> None:
    port = parts[1].getsockname()[1]
    parts[1].close()
    assert not ends(60, 0.5, silent[0], f"127.0.0.4:{port}")
