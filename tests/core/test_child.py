"""A function in a process of its own: what comes back, and what is left of it."""

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import REPOSITORY
from tokenfree.core.child import Child, Link
from tokenfree.core.errors import UserError


def child(name: str, *arguments: Any) -> Child:
    with tempfile.TemporaryFile() as errors:
        return Child(f"{__name__}:{name}", *arguments, environment=dict(os.environ), errors=errors)


def count(link: Link, most: int) -> str:
    for number in range(most):
        link.send(number)
    return "done"


def echo(link: Link) -> None:
    link.listen(lambda message: link.send(message))
    time.sleep(60)


def refuse(link: Link) -> None:
    raise UserError("train.length: 3")


def paths(link: Link) -> tuple[str | None, list[str], list[str]]:
    return getattr(sys.modules["__main__"], "__file__", None), sys.argv, sys.path


class Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("both")


def fail_oddly(link: Link) -> None:
    raise Odd(1, 2)


def end(link: Link, number: int) -> None:
    link.send("before")
    os.kill(os.getpid(), number)


def leave_a_process(link: Link) -> int:
    return subprocess.Popen(["sleep", "60"]).pid


def start_another(link: Link) -> None:
    with child("echo") as other:
        other.send(os.getpid())
        link.send(next(message for message in other.messages(1.0) if message is not None))
        link.send(other._process.pid)
        time.sleep(60)


def test_the_child_listens_and_its_silence_is_told() -> None:
    with child("echo") as echoing:
        messages = echoing.messages(0.05)
        echoing.send("stop")
        assert next(message for message in messages if message is not None) == "stop"
        assert next(messages) is None
        process = psutil.Process(echoing._process.pid)
    assert not process.is_running()


def test_the_child_finds_modules_where_its_parent_does() -> None:
    """Ray hands these to its workers."""
    with child("paths") as finding:
        list(finding.messages(10.0))
        script = getattr(sys.modules["__main__"], "__file__", None)
        assert finding.result() == (script, sys.argv, sys.path)


def test_an_error_comes_with_its_traceback() -> None:
    with child("refuse") as refusing:
        assert list(filter(None, refusing.messages(10.0))) == []
        with pytest.raises(UserError, match=r"train\.length: 3") as raised:
            refusing.result()
    assert 'raise UserError("train.length: 3")' in str(raised.value.__cause__)
    with child("fail_oddly") as failing:
        list(failing.messages(10.0))
        with pytest.raises(RuntimeError, match="Odd: both"):
            failing.result()


def test_an_end_of_the_process_is_told() -> None:
    with child("end", signal.SIGKILL) as ending:
        assert [message for message in ending.messages(10.0) if message is not None] == ["before"]
        assert ending.result(ended="ended") == "ended"


def test_nothing_of_its_session_is_left() -> None:
    with child("leave_a_process") as leaving:
        list(leaving.messages(10.0))
        left = psutil.Process(leaving.result())
        assert left.is_running()
    assert left.wait(5) is None or not left.is_running()


def test_a_child_ends_with_whoever_started_it() -> None:
    with child("start_another") as starting:
        numbers = list(itertools.islice(filter(None, starting.messages(1.0)), 2))
        other = psutil.Process(numbers[1])
        assert other.is_running()
    other.wait(10)


def test_messages_and_a_result_come_back_to_a_script_which_is_not_run_again(tmp_path: Path) -> None:
    """Multiprocessing would import its main module, which would start a child, and so on."""
    script = tmp_path / "script.py"
    script.write_text(
        "from tests.core.test_child import child\n"
        "with child('count', 3) as counting:\n"
        "    print([message for message in counting.messages(9.0) if message is not None], counting.result())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    said = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment, check=True
    )
    assert (said.stdout, said.stderr) == ("[0, 1, 2] done\n", "")
