"""Worker processes of this machine: they listen on nothing, and end with their command."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.pipelines.conftest import quick_config
from tokenfree.core.errors import UserError
from tokenfree.core.settings_values import to_mapping
from tokenfree.pipelines import local
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.job.job import PreprocessJob
from tokenfree.preprocess.job.stages import Stage, one_task

# Without `if __name__ == "__main__"`, as in a notebook.
SCRIPT = """
import json, sys
from tokenfree.core.settings import build
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import PreprocessConfig
print("once")
config = build(PreprocessConfig, json.loads(sys.argv[1]), source="test")
run_preprocess(config, sys.argv[2], workers=2)
"""


def listening() -> set[str]:
    """The addresses on which this process and its children listen."""
    found = set[str]()
    here = psutil.Process()
    for process in (here, *here.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            connections = process.net_connections("inet")
            found |= {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
    return found


def test_two_workers_listen_on_nothing(corpus: Path, tmp_path: Path) -> None:
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
    assert seen <= before


def start(corpus: Path, output: Path) -> "subprocess.Popen[str]":
    """The command, with many splits, as the leader of a group."""
    words = [
        "preprocess",
        "--books",
        str(corpus),
        "--output",
        str(output),
        "--workers",
        "2",
        "--split_bytes",
        "1000",
    ]
    command = [sys.executable, "-m", "tokenfree", *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def await_all(
    command: "subprocess.Popen[str]", is_there: Callable[[list[psutil.Process]], bool]
) -> list[psutil.Process]:
    """All processes under the command, once there are those that are waited for."""
    leading, until = psutil.Process(command.pid), time.monotonic() + 60
    while not is_there(processes := leading.children(recursive=True)):
        assert time.monotonic() < until
        assert command.poll() is None
        time.sleep(0.01)
    return processes


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    _, left = psutil.wait_procs(processes, timeout=20)
    return [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("moment", ["starting", "working"])
def test_they_end_with_a_command_that_is_killed(corpus: Path, tmp_path: Path, moment: str) -> None:
    command = start(corpus, tmp_path / "out")
    runs = tmp_path / "out" / "_work" / "runs"
    processes = await_all(
        command, lambda found: bool(list(runs.glob("*.json")) if moment == "working" else found)
    )
    os.kill(command.pid, signal.SIGKILL)
    command.communicate()
    assert living(processes) == []


@pytest.mark.parametrize(
    ("moment", "kind"),
    [
        # Each moment and each signal once, and more pairs of them.
        ("starting", signal.SIGHUP),
        ("importing", signal.SIGINT),
        ("working", signal.SIGUSR1),
        pytest.param("starting", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("working", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_signals_end_them_without_a_word(
    corpus: Path, tmp_path: Path, moment: str, kind: signal.Signals
) -> None:
    command = start(corpus, tmp_path / "out")
    runs = tmp_path / "out" / "_work" / "runs"
    processes = await_all(
        command, lambda found: bool(list(runs.glob("*.json")) if moment == "working" else found)
    )
    if moment == "importing":
        time.sleep(0.3)
    os.killpg(command.pid, kind)
    said = command.communicate(timeout=60)[1]
    assert command.returncode == 128 + kind
    assert "Traceback" not in said
    assert living(processes) == []


def test_workers_have_the_environment_of_their_job(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_preprocess(quick_config(corpus), str(tmp_path / "first"), workers=2)  # starts the server
    monkeypatch.setenv("TOKENFREE_TESTED", "later")
    with monkeypatch.context() as patched:
        patched.setattr(local, "STAGES", [Stage("look", one_task, environment_of)])
        with pytest.raises(UserError, match="later"):
            run_preprocess(quick_config(corpus), str(tmp_path / "second"), workers=2)


def environment_of(job: PreprocessJob, _: int) -> None:
    """Raise an error with a variable of the worker."""
    raise UserError(os.environ.get("TOKENFREE_TESTED", "unset"))


def test_a_script_runs_once(corpus: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    settings = json.dumps(to_mapping(quick_config(corpus)))
    done = subprocess.run(
        [sys.executable, str(script), settings, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "once\n"), done.stderr
    assert (tmp_path / "out" / "_SUCCESS").is_file()
