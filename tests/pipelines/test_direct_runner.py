"""Worker processes of this machine: reached from it alone, gone with their command."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

from tests.pipelines.conftest import quick_config
from tokenfree.pipelines.preprocess import run_preprocess


def listening() -> set[str]:
    """The addresses on which this process and its children listen."""
    found = set[str]()
    here = psutil.Process()
    for process in (here, *here.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            connections = process.net_connections("inet")
            found |= {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    return found


def test_two_workers_listen_on_loopback_alone(corpus: Path, tmp_path: Path) -> None:
    before, seen, done = listening(), set[str](), threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            seen.update(listening())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        run_preprocess(quick_config(corpus), str(tmp_path / "output"), workers=2)
    finally:
        done.set()
        watching.join()
    assert seen - before <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert seen


def test_workers_that_have_not_connected_end_with_the_command(corpus: Path, tmp_path: Path) -> None:
    """The command is killed while they start."""
    words = ["preprocess", "--books", str(corpus), "--output", str(tmp_path / "output"), "--workers", "2"]
    command = subprocess.Popen([sys.executable, "-m", "tokenfree", *words], stdout=subprocess.DEVNULL)
    leading, until = psutil.Process(command.pid), time.monotonic() + 60
    while len(workers := leading.children()) < 2:
        assert time.monotonic() < until
        time.sleep(0.01)
    os.kill(command.pid, signal.SIGKILL)
    command.wait()
    _, left = psutil.wait_procs(workers, timeout=20)
    assert [worker for worker in left if worker.status() != psutil.STATUS_ZOMBIE] == []
