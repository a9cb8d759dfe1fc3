"""Runs a command of tokenfree to its end, or to the moment when it is killed, and tells all that is left of it.

Most commands are forks of this process, which has imported everything already: to start Python and import torch takes
longer than all that a small training does. Those that start Ray or workers are processes of their own.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from benchmarks.fuzz.faults import Fault, install

ROOT = Path(__file__).resolve().parents[2]
STARTUP = Path(__file__).with_name("startup")
MARK = "TOKENFREE_FUZZ_ROUND"  # in the environment of all processes of a command, wherever they went
# For what a command has started, after it: agents of Ray try for a minute to tell a GCS that is gone.
SECONDS_TO_END = 120.0
MODULES = (
    "pipelines.preprocess", "pipelines.dry_run", "preprocess.dataset.verify", "train.pretrain", "train.evaluate",
    "train.sweep.run", "train.inference.text_encoder", "train.huggingface.canine", "workflows.report.page",
    "workflows.terminal.training_line", "workflows.terminal.stage_line", "workflows.terminal.sweep.table",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of a command.

    Attributes:
        status: its exit status; negative for a signal.
        out: what it printed.
        err: what it printed to standard error.
        seconds: that it took.
        was_killed: by its fault; the status then says nothing.
        is_late: it did not end in time.
        left: command lines of processes that it left behind; they are killed by now.
        changes: to files and names; -1 where it was killed or was no fork.
    """

    status: int
    out: str
    err: str
    seconds: float
    was_killed: bool = False
    is_late: bool = False
    left: tuple[str, ...] = ()
    changes: int = -1


def warm_up() -> None:
    """Import what commands need, so that forks have it."""
    from tokenfree.workflows import cli

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in cli.command_names():
        importlib.import_module(f"tokenfree.workflows.commands.{name}")
    for name in MODULES:
        importlib.import_module(f"tokenfree.{name}")
    import torch

    torch.set_num_threads(1)
    gc.freeze()


def run(
    arguments: Sequence[str],
    *,
    folder: Path,
    logs: Path,
    fault: Fault | None = None,
    is_fresh: bool = False,
    environment: Mapping[str, str] | None = None,
    limit: float = 120.0,
) -> Outcome:
    """Run `tokenfree` with `arguments` in `folder`, in a session of its own, and see that nothing of it is left.

    Args:
        folder: where it runs.
        logs: an empty folder for what it prints.
        fault: when it is to be killed.
        is_fresh: as a process of its own, not a fork of this one.
        environment: variables beside those that there are.
        limit: seconds after which it is killed as one that hangs.
    """
    fault, counted, reading = fault or Fault(), -1, -1
    temporary = tempfile.mkdtemp(prefix="fuzz-", dir="/tmp")  # short: Ray puts sockets there
    own = {MARK: f"{os.getpid()}:{logs}", "OMP_NUM_THREADS": "1", "TMPDIR": temporary, **(environment or {})}
    for name in ("out", "err"):
        (logs / name).touch()  # it may be killed before it has opened them
    begin = time.monotonic()
    if is_fresh:
        pid = _start(arguments, folder, logs, {**own, **fault.orders(str(logs))})
    else:
        pid, reading = _fork(arguments, folder, logs, fault, own)
    try:
        status, was_killed, is_late = _wait(pid, fault, limit, own[MARK])
    except BaseException:  # the fuzzer itself is to end
        _kill_all(processes_of(pid, own[MARK]))
        raise
    seconds = time.monotonic() - begin
    if reading >= 0:
        with open(reading, encoding="ascii") as pipe:
            counted = int(pipe.read() or -1)
    was_killed = was_killed or (fault.change is not None and status == -signal.SIGKILL)
    left = _left(pid, own[MARK])
    shutil.rmtree(temporary, ignore_errors=True)
    out, err = ((logs / name).read_text(encoding="utf-8", errors="backslashreplace") for name in ("out", "err"))
    return Outcome(status, out, err, seconds, was_killed, is_late, left, counted)


def _start(arguments: Sequence[str], folder: Path, logs: Path, environment: Mapping[str, str]) -> int:
    """A new Python; its pid."""
    path = os.pathsep.join([str(STARTUP), str(ROOT)])
    with (logs / "out").open("wb") as out, (logs / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tokenfree", *arguments],
            cwd=folder, env={**os.environ, **environment, "PYTHONPATH": path}, stdin=subprocess.DEVNULL, stdout=out,
            stderr=err, start_new_session=True,
        )  # fmt: skip
    process.returncode = 0  # it is waited for by its pid
    return process.pid


def _fork(
    arguments: Sequence[str], folder: Path, logs: Path, fault: Fault, environment: Mapping[str, str]
) -> tuple[int, int]:
    """A fork of this process; its pid, and a pipe from which the number of its changes comes."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            _in_child(arguments, folder, logs, fault, environment, writing)
        finally:
            os._exit(70)
    os.close(writing)
    return pid, reading


def _in_child(
    arguments: Sequence[str], folder: Path, logs: Path, fault: Fault, environment: Mapping[str, str], writing: int
) -> NoReturn:
    """The whole life of a fork."""
    from tokenfree.workflows import cli

    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    out, err = (os.open(logs / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) for name in ("out", "err"))
    for number, descriptor in enumerate((nowhere, out, err)):
        os.dup2(descriptor, number)
    os.chdir(folder)
    os.environ.update(environment)
    os.environ["PYTHONPATH"] = str(ROOT)
    sys.argv[:] = ["tokenfree", *arguments]
    tempfile.tempdir = None
    random.seed()
    count = install(fault.change, fault.victim, str(folder))
    status: object = 70
    try:
        status = cli.main(list(arguments))
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    if not isinstance(status, int):
        status = 0 if status is None else 1
    with contextlib.suppress(Exception):
        threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]  what the interpreter does at its end
        atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(writing, str(count[0]).encode())
    os._exit(status)


def _wait(pid: int, fault: Fault, limit: float, mark: str) -> tuple[int, bool, bool]:
    """Exit status, whether it was killed as ordered, and whether it took too long."""
    descriptor = os.pidfd_open(pid)
    was_killed = is_late = False
    try:
        if fault.seconds is not None and not _ends(descriptor, fault.seconds):
            was_killed = _kill(pid, fault, mark)
        if not _ends(descriptor, limit):
            is_late = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
    finally:
        os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), was_killed and fault.victim != "worker", is_late


def _ends(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def _kill(pid: int, fault: Fault, mark: str) -> bool:
    """Kill the victim; whether there was one."""
    with contextlib.suppress(ProcessLookupError):
        if fault.victim == "group":
            os.killpg(pid, signal.SIGKILL)
        elif fault.victim == "process":
            os.kill(pid, signal.SIGKILL)
        else:
            workers = sorted(other for other in processes_of(pid, mark) if other != pid)
            if not workers:
                return False
            os.kill(workers[int((fault.seconds or 0) * 1000) % len(workers)], signal.SIGKILL)
        return True
    return False


def processes_of(session: int, mark: str) -> dict[int, str]:
    """Command lines by pid of the processes of a session, and of those that were started with the mark."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{entry}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()
            is_of_it = int(fields[3]) == session
            if not is_of_it and int(entry) != os.getpid():
                is_of_it = f"{MARK}={mark}\0".encode() in Path(f"/proc/{entry}/environ").read_bytes()
            if is_of_it and fields[0] not in "ZX":
                line = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ")
                found[int(entry)] = line.decode(errors="replace").strip()
    return found


def _left(session: int, mark: str) -> tuple[str, ...]:
    """Command lines of what a command left behind for `SECONDS_TO_END`; it is killed."""
    stop = time.monotonic() + SECONDS_TO_END
    pause = 0.01
    while (found := processes_of(session, mark)) and time.monotonic() < stop:
        time.sleep(pause)
        pause = min(2 * pause, 0.5)
    _kill_all(found)
    return tuple(found.values())


def _kill_all(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
