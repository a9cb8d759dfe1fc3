"""`tokenfree cluster` at the keyboard: what is asked before money is spent, what is warned of, what is refused."""

import argparse
import io
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tokenfree.core import ray_access
from tokenfree.workflows import cli
from tokenfree.workflows.work import cluster as ray_up
from tokenfree.workflows.work.cluster import _jobs

Filled = Callable[..., str]


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What Ray's command line would have been called with."""
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(ray_up, "_ray", lambda *arguments: calls.append(arguments))
    return calls


def answer(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a person at a terminal say that."""
    stream: Any = io.StringIO(f"{text}\n")
    stream.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", stream)


@pytest.mark.parametrize("said", ["", "n", "yes please"])
def test_nothing_starts_without_a_yes(
    said: str,
    filled: Filled,
    ray: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer(said, monkeypatch)
    for action in ("up", "down"):
        assert cli.main(["cluster", action, filled("aws")]) == 2
        assert "not done, as the answer was no" in capsys.readouterr().err
    assert ray == []
    assert not ray_access.token_path().exists()


def test_who_cannot_be_asked_has_to_say_yes(
    filled: Filled, ray: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert cli.main(["cluster", "up", filled("gcp")]) == 2
    assert (
        capsys.readouterr().err
        == "tokenfree: start it, at your cost? give --yes, as nobody can be asked here\n"
    )
    assert ray == []


def test_up_names_the_costs_and_makes_a_token(
    filled: Filled, ray: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = filled("aws")
    answer("y", monkeypatch)
    assert cli.main(["cluster", "up", path]) == 0
    shown = capsys.readouterr().out
    assert shown.index("0 to 8 x g5.2xlarge (spot)") < shown.index("start it, at your cost? [y/N]")
    assert f"tokenfree cluster down {path}" in shown
    assert ray == [("up", path, "--yes", "--no-config-cache", "--disable-usage-stats")]
    secret = ray_access.token_path().read_text()
    assert secret not in shown
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert cli.main(["cluster", "status", path]) == 0
    assert cli.main(["cluster", "down", path, "--yes"]) == 0
    assert [call[0] for call in ray] == ["up", "exec", "down"]
    assert ray[1][2] == "RAY_AUTH_MODE=token ray status"


def test_a_profile_without_a_token_needs_a_flag(
    filled: Filled, ray: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def without(mapping: dict[str, Any]) -> None:
        mapping["worker_start_ray_commands"] = ["ray start --address=$RAY_HEAD_IP:6379"]

    path = filled("onpremise", without)
    assert cli.main(["cluster", "up", path, "--yes"]) == 2
    assert (
        "RAY_AUTH_MODE=token is missing, and Ray runs the code of anyone who reaches it"
        in capsys.readouterr().err
    )
    assert cli.main(["cluster", "up", path, "--yes", "--no-token"]) == 0
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
    assert os.environ[ray_up.NEWER_AUTOSCALER] == "0"  # the other one starts some of the workers only
    assert not ray_access.token_path().exists()


def test_down_and_status_without_a_local_cluster(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cluster", "down", "local"]) == 0
    assert cli.main(["cluster", "status", "local"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "no local cluster runs; nothing to do",
        "no local cluster runs; tokenfree cluster local starts one",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["submit"], "there is no command after --; give one, such as: tokenfree cluster submit -- pretrain"),
        (["submit", "--", "cluster", "jobs"], "cluster is not a command to run on a cluster"),
        (["jobs", "--", "x"], "tokenfree cluster jobs takes nothing after '--', but got 'x'"),
        (
            ["jobs", "--address", "ftp://x"],
            "--address ftp://x: give the dashboard of a cluster as http://HOST:PORT",
        ),
        (["jobs", "--address", "http://me:word@x:1"], "give the dashboard of a cluster as http://HOST:PORT"),
        (["up", "local", "--yes"], "local is not a profile. tokenfree cluster local starts a local cluster"),
        (["local", "--nodes", "0"], "argument --nodes: 0: give 1 or more"),
        (["local", "--hosts", "no-such-host"], "--hosts no-such-host"),
        (["up", "awz"], "did you mean 'aws'?"),
    ],
)
def test_mistakes_are_one_line(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = cli.main(["cluster", *words])
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(folder.iterdir())


def test_no_cluster_is_one_line_and_no_mistake(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cluster", "jobs", "--address", "127.0.0.1:9"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("tokenfree: no Ray cluster answers at http://127.0.0.1:9; start one")
    assert error.count("\n") == 1


@pytest.mark.parametrize("words", [["jobs"], ["logs", "job"], ["stop", "job"], ["submit", "--", "doctor"]])
def test_a_fresh_shell_sends_the_token(words: list[str], tmp_path: Path) -> None:
    sent: list[str | None] = []

    class Dashboard(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers["Authorization"])
            self.send_error(403)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret")
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
    with HTTPServer(("127.0.0.1", 0), Dashboard) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        action, *rest = words
        address = f"127.0.0.1:{server.server_port}"
        command = [sys.executable, "-P", "-m", "tokenfree", "cluster", action, "--address", address, *rest]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        server.shutdown()
    assert "Bearer secret" in sent
    assert done.returncode == 2
    assert f"requires another token than the one of this machine ({token})" in done.stderr


def test_a_terminal_sees_no_escape_sequence_as_text(folder: Path) -> None:
    ours, terminal = pty.openpty()
    command = [sys.executable, "-P", "-m", "tokenfree", "cluster", "jobs", "--address", "127.0.0.1:9"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    assert (
        subprocess.run(command, env=environment, stdin=terminal, stdout=terminal, stderr=terminal).returncode
        == 1
    )
    os.close(terminal)
    shown = os.read(ours, 10_000)
    os.close(ours)
    assert shown.endswith(b"give its address: --address URL\r\n")


def test_an_address_of_another_machine_is_warned_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tokenfree.workflows.cluster.jobs.Jobs", lambda address: address)
    for address, warned in (
        ("http://10.0.0.1:8265", True),
        ("http://localhost:1", False),
        ("https://x", False),
    ):
        assert _jobs(argparse.Namespace(address=address)) == address
        assert ("is not encrypted, Ray's token neither" in capsys.readouterr().err) is warned


def test_every_action_has_help_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("profiles", "up", "status", "down", "local", "submit", "logs", "stop", "jobs"):
        with pytest.raises(SystemExit) as ended:
            cli.main(["cluster", action, "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert f"  tokenfree cluster {action}" in shown
        assert "Raises" not in shown
