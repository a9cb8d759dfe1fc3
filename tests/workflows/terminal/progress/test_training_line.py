"""The live line of a training run, in a terminal and in a log file."""

import io
import time
from collections.abc import Callable

import pytest

from tests.workflows.terminal.conftest import Terminal
from tokenfree.workflows.terminal import progress as live_line
from tokenfree.workflows.terminal.progress import ProgressLine

pytestmark = pytest.mark.usefixtures("wide")


def step(number: int) -> dict[str, float]:
    return {
        "step": number,
        "loss": 5.25,
        "characters": 3000,
        "seconds": 0.5,
        "data_wait": 0.05,
        "utilisation": 0.4,
        "accuracy": 0.1,
    }


def test_the_line() -> None:
    stream = Terminal()
    with ProgressLine(steps=1000, stream=stream) as progress:
        progress(step(10))
        progress({"step": 10, "validation_loss": 5.5, "validation_accuracy": 0.0})
        progress({"event": "worker_lost", "step": None, "message": "worker 1 was lost"})
    assert progress.parts() == [
        *("step 10/1,000", "loss 5.250", "held-out 5.500", "8:15 left", "restarts 1"),
        *("6.0k characters/s", "utilisation 40%", "data wait 10%"),
    ]
    message, line, end = stream.screen()
    assert message == "worker 1 was lost"
    assert line.startswith("step 10/1,000")
    assert end == ""


def test_a_terminal_gets_one_line() -> None:
    stream = Terminal()
    with ProgressLine(steps=3, stream=stream) as progress:
        for number in (1, 2, 3):
            progress(step(number))
    assert len(stream.screen()) == 2


def test_a_log_file_gets_plain_lines_now_and_then_and_the_last() -> None:
    stream = io.StringIO()
    with ProgressLine(steps=500, stream=stream) as progress:
        for number in range(1, 501):
            progress(step(number))
    lines = stream.getvalue().splitlines()
    assert [line.split()[2] for line in lines] == ["1/500", "500/500"]
    assert "\r" not in stream.getvalue()


def test_the_newest_line_is_shown_when_training_fails() -> None:
    stream = io.StringIO()
    with ProgressLine(steps=500, stream=stream) as progress:
        for number in (1, 2, 3):
            progress(step(number))
    assert stream.getvalue().splitlines()[-1][10:].startswith("step 3/500")


def test_nothing_to_show() -> None:
    stream = io.StringIO()
    with ProgressLine(steps=5, stream=stream) as progress:
        progress({"event": "start", "step": 0})
    assert stream.getvalue() == ""


def test_who_waits_for_workers_sees_for_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    with ProgressLine(steps=5, stream=stream) as progress:
        progress({"event": "launch", "step": None, "message": "starting 2 workers under Ray"})
        assert stream.screen() == ["0:00 · starting 2 workers under Ray"]
        now = time.monotonic()
        monkeypatch.setattr(live_line.time, "monotonic", lambda: now + 3)
        progress({"event": "launch", "step": None, "message": "starting 2 workers under Ray"})
        _until(lambda: stream.screen() == ["0:03 · starting 2 workers under Ray"])
        progress({"event": "start", "step": 0, "message": "on 2 nodes"})
        progress(step(1))
    nodes, line, end = stream.screen()
    assert (nodes, line[:8], end) == ("on 2 nodes", "step 1/5", "")


def test_a_wait_that_ends_in_nothing_leaves_nothing() -> None:
    stream = Terminal()
    with ProgressLine(steps=5, stream=stream) as progress:
        progress({"event": "launch", "step": None, "message": "starting 2 workers under Ray"})
    assert not any(stream.screen())


def test_a_log_file_is_told_once_what_is_awaited() -> None:
    stream = io.StringIO()
    with ProgressLine(steps=5, stream=stream) as progress:
        progress({"event": "launch", "step": None, "message": "starting 2 workers under Ray"})
    assert stream.getvalue()[10:] == "starting 2 workers under Ray\n"


def _until(true: Callable[[], bool]) -> None:
    for _ in range(2000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError
