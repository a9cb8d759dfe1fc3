"""What the fuzzer does to commands: kills at a change of names, processes left behind, requests that fail."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fuzz.commands import MARK, ROOT, STARTUP, processes_of
from benchmarks.fuzz.faults import Fault
from benchmarks.fuzz.store import KINDS, MOST_IN_A_ROW, LosesRequests

# Six changes: a folder, two files that are written, a rename, a removal, a last file. What is read is no change.
PROGRAM = """
import os, pathlib
os.mkdir("folder")
pathlib.Path("a").write_text("a")
pathlib.Path("a").read_text()
pathlib.Path("b").write_text("b")
os.replace("a", "folder/a")
os.remove("b")
pathlib.Path("c").write_text("c")
"""


@pytest.mark.parametrize(
    ("change", "left"),
    [(1, []), (2, ["folder"]), (4, ["a", "b", "folder"]), (5, ["b", "folder", "folder/a"]), (7, ["c", "folder/a"])],
)
def test_a_process_is_killed_before_a_change_of_its_own(tmp_path: Path, change: int, left: list[str]) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    path = os.pathsep.join([str(STARTUP), str(ROOT)])
    environment = {**os.environ, **Fault(change=change).orders(str(logs)), "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, start_new_session=True)
    found = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if "logs" not in file.parts}
    assert (done.returncode == -signal.SIGKILL) == (change < 7)
    assert set(left) <= found
    assert len(found) == len(left) + (change == 7)


def test_processes_are_found_by_session_and_by_mark() -> None:
    program = "import subprocess, sys, time\nsubprocess.Popen(['sleep', '60'], start_new_session=True)\ntime.sleep(60)"
    mark = f"test-{time.time_ns()}"
    process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, MARK: mark}, start_new_session=True)
    try:
        stop = time.monotonic() + 30
        while "sleep 60" not in processes_of(process.pid, mark).values() and time.monotonic() < stop:
            time.sleep(0.05)  # until it runs its program, a process has the command line of who started it
        process.kill()
        process.wait()
        assert list(processes_of(process.pid, mark).values()) == ["sleep 60"]
        assert processes_of(process.pid, "another mark") == {}
    finally:
        for pid in processes_of(process.pid, mark):
            os.kill(pid, signal.SIGKILL)


class Connection:
    """Stands for a socket."""

    is_open = True

    def shutdown(self, how: int) -> None:
        self.is_open = False


def ask(app: LosesRequests, method: str = "GET", path: str = "/a", body: bytes = b"") -> tuple[str, bytes, bool]:
    """Status, body and whether the connection stays open."""
    said: list[str] = []
    connection = Connection()
    request = {"PATH_INFO": path, "REQUEST_METHOD": method, "CONTENT_LENGTH": str(len(body)),
               "wsgi.input": BytesIO(body), "werkzeug.socket": connection}  # fmt: skip
    try:
        answer = b"".join(app(request, lambda status, headers: said.append(status)))
    except ConnectionError:
        answer = b""
    return said[0] if said else "", answer, connection.is_open


@pytest.mark.parametrize("kind", KINDS)
def test_requests_fail_as_ordered_and_never_too_many_in_a_row(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)

    def serve(environment: dict[str, Any], respond: Callable[..., Any]) -> list[bytes]:
        done.append(environment["PATH_INFO"])
        respond("200 OK", [])
        return [b"served"]

    app = LosesRequests(serve)
    assert ask(app) == ("200 OK", b"served", True)
    ask(app, "PUT", "/-/faults", json.dumps({"seed": 1, "share": 1.0, "kinds": [kind]}).encode())
    done.clear()
    answers = [ask(app) for _ in range(3 * (MOST_IN_A_ROW + 1))]
    good = [number for number, answer in enumerate(answers) if answer == ("200 OK", b"served", True)]
    if kind == "late":
        assert len(good) == len(answers)
        assert waited == [0.5] * 6
    else:
        assert good == [2, 5, 8]  # every third one
    assert len(done) == (9 if kind in ("late", "lost") else 3)
    if kind == "error":
        assert {answers[0][0][:3], answers[1][0][:3], answers[3][0][:3], answers[4][0][:3]} <= {"500", "503"}
    if kind in ("dropped", "lost"):
        assert not answers[0][2]
    assert ask(app, path="/-/faults")[1] == json.dumps({"faults": 6}).encode()
