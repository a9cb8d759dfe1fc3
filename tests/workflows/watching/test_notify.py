"""Who is told of a command hears how it ended, also where it was killed, and never stands in what is kept of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.workflows.watching.commands import Receiver, receiver, tiny_pretraining
from tokenfree.preprocess.common.errors import JobError, StoppedError, UserError
from tokenfree.train.sweep.control.history import History
from tokenfree.workflows import cli
from tokenfree.workflows.watching.figures import SweepFigures
from tokenfree.workflows.watching.notify import notifying
from tokenfree.workflows.watching.receiver import check, deliver, hidden
from tokenfree.workflows.watching.watcher import Patience

FACTS = {"step": 3, "loss": 4.194788778981855}


@pytest.fixture
def web() -> Iterator[Receiver]:
    """An address that takes notices."""
    with receiver() as server:
        yield server


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "finished"),
        (UserError("no data"), "failed"),
        (JobError("a worker died"), "failed"),
        (RuntimeError("a bug"), "failed"),
        (StoppedError("stopped by SIGTERM after step 3"), "stopped"),
        (KeyboardInterrupt(), "stopped"),
    ],
)
def test_the_end_of_a_command_is_told(web: Receiver, error: BaseException | None, status: str) -> None:
    with (
        contextlib.nullcontext() if error is None else pytest.raises(type(error)),
        notifying(web.url, "pretrain", "runs/one", lambda: FACTS, None),
    ):
        if error is not None:
            raise error
    told = web.next()
    assert time.strptime(told.pop("time"), "%Y-%m-%dT%H:%M:%SZ")
    said = {"message": str(error)} if error is not None and str(error) else {}
    tail = f": {error}" if said else ""
    assert told == {
        "text": f"tokenfree pretrain runs/one: {status} (step 3, loss 4.195){tail}",
        "status": status,
        "command": "pretrain",
        "output": "runs/one",
        **FACTS,
        **said,
    }
    assert web.told.empty()


def test_a_long_message_arrives_cut(web: Receiver) -> None:
    with pytest.raises(JobError), notifying(web.url, "pretrain", "run", dict, None):
        raise JobError("\N{BAR CHART}\n" * 5_000)
    assert web.next()["message"].startswith("\N{BAR CHART}\\n\N{BAR CHART}")


_ALONE = """
import sys, time, subprocess
from tokenfree.workflows.watching.notify import notifying
with notifying(sys.argv[1], "pretrain", "run", dict, None) as sender:
    sender.sign({"step": 7})
    outlives = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
    import os
    forked = os.fork()  # which keeps the pipe open
    if not forked:
        time.sleep(60)
        os._exit(0)
    print(outlives.pid, forked, flush=True)
    time.sleep(60)
"""


def test_a_process_that_is_killed_is_told_dead_though_its_children_live(web: Receiver) -> None:
    process = subprocess.Popen([sys.executable, "-c", _ALONE, web.url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    children = [int(pid) for pid in process.stdout.readline().split()]
    try:
        watcher = watcher_of(process.pid)
        os.kill(watcher, signal.SIGTERM)  # as schedulers send it to all at first
        process.kill()
        process.wait()
        told = web.next()
        assert (told["status"], told["step"]) == ("dead", 7)
        until = time.monotonic() + 20
        while psutil.pid_exists(watcher) and time.monotonic() < until:
            time.sleep(0.05)
        assert not psutil.pid_exists(watcher) or psutil.Process(watcher).status() == "zombie"
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        process.stdout.close()


def watcher_of(pid: int) -> int:
    """The process that watches the one with this number; for a moment after its start it has no command line."""
    until = time.monotonic() + 20
    while True:
        children = psutil.Process(pid).children()
        found = [each.pid for each in children if "watching.watcher" in "".join(each.cmdline())]
        if found or time.monotonic() > until:
            (watcher,) = found
            return watcher
        time.sleep(0.05)


def test_a_command_that_stalls_is_told_once_for_each_time(web: Receiver) -> None:
    with notifying(web.url, "preprocess", "data", dict, 0.5) as sender:
        assert web.next()["status"] == "stalled"  # nothing at all was done yet
        time.sleep(1.5)
        assert web.told.empty()
        sender.sign({"step": 1})
        again = web.next()
        assert (again["status"], again["step"]) == ("stalled", 1)
        assert "no step for 0.0" in again["message"]
    assert web.next()["status"] == "finished"


def test_a_sweep_is_told_by_the_states_of_its_trials() -> None:
    figures = SweepFigures()
    assert figures.facts() == {}
    history = History(seeds=1, reports=1, num_settings=2)
    for event in (
        {"event": "propose", "setting": 0, "values": {}},
        {"event": "propose", "setting": 1, "values": {}},
        {"event": "report", "trial": "trial_001", "report": {"report": 1, "validation_loss": 2.0}, "verdict": "go"},
    ):
        history = history.after(event)
        assert figures.hear(event, history)
    assert figures.facts() == {"trials_finished": 1, "trials_waiting": 1}
    assert list(figures.collect()) == []


def test_ten_usual_steps_are_no_stall() -> None:
    patience = Patience(None)
    assert patience.seconds == 1800
    for seconds in (400.0, 500.0, 90_000.0):
        patience.note(seconds)
    assert patience.seconds == 5000
    assert Patience(60.0).seconds == 60


def test_a_watcher_that_is_gone_or_asleep_holds_up_nothing(web: Receiver) -> None:
    with notifying(web.url, "pretrain", "run", dict, None) as sender:
        watcher = watcher_of(os.getpid())
        os.kill(watcher, signal.SIGSTOP)
        for number in range(3_000):  # more than a pipe holds
            sender._sent = float("-inf")
            sender.sign({"step": number, "text": "x" * 100})
        os.kill(watcher, signal.SIGKILL)
        sender._sent = float("-inf")
        sender.sign({})
    assert web.told.empty()


def test_what_goes_wrong_is_said_without_the_address(web: Receiver, tmp_path: Path) -> None:
    assert deliver(web.url, {}) is None
    web.status = 404
    assert deliver(web.url, {}) == "the address answered 404"
    for address in ("http://127.0.0.1:9/SECRET", "http://[SECRET", "http://SECRET.invalid/"):
        problem = deliver(address, {})
        assert problem is not None
        assert problem.startswith("the address cannot be reached (")
        assert "SECRET" not in problem
    kept = tmp_path / "kept.json"
    assert deliver(f"tee '{kept}'", {"status": "finished"}) is None
    assert json.loads(kept.read_text()) == {"status": "finished"}
    assert deliver("false", {}) == "the command ended with status 1"
    assert deliver("/no/such/program", {}) == "the command cannot be run (No such file or directory)"


def test_a_failure_to_tell_fails_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with notifying("http://127.0.0.1:9/SECRET", "pretrain", "run", dict, None):
        pass
    said = capfd.readouterr().err
    assert said == "tokenfree: --notify: the address cannot be reached (ConnectionError); it was to be told: finished\n"


@pytest.mark.parametrize("receiver", ["s3://SECRET", "hooks.example.org/SECRET", "echo 'SECRET", " ", "ftp://SECRET/a"])
def test_receivers_that_cannot_be(receiver: str) -> None:
    with pytest.raises(UserError, match=r"^--notify: .*; ") as caught:
        check(receiver)
    assert "SECRET" not in str(caught.value)


def test_the_receiver_is_hidden_in_a_command_line() -> None:
    words = ["tokenfree", "pretrain", "--notify", "echo SECRET", "--data", "d", "--notify=http://SECRET"]
    assert hidden(words) == ["tokenfree", "pretrain", "--notify", "...", "--data", "d", "--notify=..."]
    assert hidden(["--notify"]) == ["--notify"]


def test_a_run_tells_its_end_and_keeps_no_word_of_whom(web: Receiver, tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "tokenfree", *tiny_pretraining(tmp_path), "--notify", web.url, "-v"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = web.next()
    assert (told["status"], told["output"], told["step"]) == ("finished", str(tmp_path / "run"), 8)
    assert "SECRET" not in done.stdout + done.stderr
    for path in (tmp_path / "run").rglob("*"):
        assert not path.is_file() or b"SECRET" not in path.read_bytes(), path
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["attempts"][0]["command"].endswith(" --notify ... -v")


def test_preprocessing_tells_its_failure_to_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("")
    kept = tmp_path / "kept.json"
    command = ["preprocess", "--books", str(tmp_path / "text.txt"), "--output", str(tmp_path / "data")]
    assert cli.main([*command, "--notify", f"tee '{kept}'"]) == 2
    told: dict[str, Any] = json.loads(kept.read_text())
    assert (told["status"], told["command"]) == ("failed", "preprocess")
    assert told["message"] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--stalled-after", "5"], "--stalled-after 5: give minutes above 0; it needs --notify"),
        (["--stalled-after", "0", "--notify", "true"], "--stalled-after 0: give minutes above 0; it needs --notify"),
        (["--notify", "https"], "--notify: no such program; give a command as in a shell, or an address with http://"),
    ],
)
def test_options_that_do_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    (tmp_path / "text.txt").write_text("Rain. " * 100)
    command = ["preprocess", "--books", str(tmp_path / "text.txt"), "--output", str(tmp_path / "data")]
    assert cli.main([*command, *more]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
