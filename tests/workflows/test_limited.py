"""A command under `ulimit -v`: a crash of a library is one line and status 1, all else is as without the limit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = "import os, resource, signal, sys, time; from tokenfree.workflows.limited import run_limited; "
LIMIT = "resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32)); "


def started(command: str, limit: str = LIMIT) -> subprocess.Popen[str]:
    program = f"{PROGRAM}{limit}sys.exit(run_limited(lambda: {command}))"
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL"])
def test_a_crash_is_one_line(name: str) -> None:
    process = started(f"os.kill(os.getpid(), signal.{name})")
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert said.count("\n") == 1
    assert f"a library crashed ({name}) where ulimit -v allows 4.0 GiB of addresses" in said
    assert "ulimit -v unlimited" in said


def test_without_a_limit_nothing_stands_between() -> None:
    process = started("print(os.getpid()) or os.kill(os.getpid(), signal.SIGSEGV)", limit="")
    _, said = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGSEGV
    assert said == ""


@pytest.mark.parametrize(("command", "status"), [("0", 0), ("2", 2), ("sys.exit(3)", 3)])
def test_the_status_is_that_of_the_command(command: str, status: int) -> None:
    process = started(f"print('once') or {command}")
    assert process.communicate(timeout=30) == ("once\n", "")
    assert process.returncode == status


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signals_reach_the_command(name: str) -> None:
    waits = f"signal.signal(signal.{name}, lambda *_: os._exit(77)) and 0 or print('up', flush=True) or time.sleep(30)"
    process = started(waits)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(getattr(signal, name))
    process.communicate(timeout=30)
    assert process.returncode == 77


def test_ctrl_c_comes_once() -> None:
    """A terminal sends it to both processes: the command hears it once."""
    count = "[].append(signal.signal(signal.SIGINT, lambda *_: print('heard', flush=True)))"
    waits = f"{count} or print('up', flush=True) or [time.sleep(0.2) for _ in range(5)] and 0"
    master, slave = os.openpty()
    late = "wait = signal.sigwaitinfo; signal.sigwaitinfo = lambda heard: (wait(heard), time.sleep(0.3))[0]; "
    program = f"{PROGRAM}{LIMIT}{late}sys.exit(run_limited(lambda: {waits}))"
    take_terminal = "import fcntl, termios, os; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    with subprocess.Popen(
        [sys.executable, "-c", take_terminal + program], stdin=slave, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        os.write(master, b"\x03")
        assert process.stdout.read() == "heard\n"
    assert process.returncode == 0
    os.close(master)
    os.close(slave)


def test_the_command_does_not_outlive_its_watcher(tmp_path: Path) -> None:
    process = started("print(os.getpid(), flush=True) or time.sleep(30)")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert child != process.pid
    process.kill()
    process.wait()
    until = time.monotonic() + 10
    while Path(f"/proc/{child}/stat").exists() and Path(f"/proc/{child}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_command_line_runs_under_it() -> None:
    program = (
        f"{PROGRAM}{LIMIT}from tokenfree.workflows import cli; cli._run = lambda _: os.abort(); sys.exit(cli.main())"
    )
    done = subprocess.run([sys.executable, "-c", program, "doctor"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "crashed (SIGABRT)" in done.stderr
