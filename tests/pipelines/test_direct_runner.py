"""Worker processes of this machine are reached from this machine alone."""

import contextlib
import threading
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
