"""Processes that have torch and training imported when they start: forks of one process, which does nothing else.

A separate process needs two to three seconds of a core for these imports.
"""

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from typing import IO, Any

from tests.conftest import REPOSITORY

PROGRAM = "from tests.train.fork_server import serve; exec(serve(int(__import__('sys').argv[1])))"


class Forked:
    """A process that runs a program, with the methods of `subprocess.Popen`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), signed=True)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, negative after a signal. Raises TimeoutExpired."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                status = self._connection.recv(4)
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired("a forked program", timeout or 0.0) from None
            self.returncode = int.from_bytes(status, signed=True)
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(
    program: str, *arguments: str, stdout: IO[Any] | None = None, stderr: IO[Any] | None = None
) -> Forked:
    """Run a program, as `python -c` would, with the environment of this process and as the leader of a session."""
    mine, theirs = socket.socketpair()
    files = [stdout.fileno() if stdout else 1, stderr.fileno() if stderr else 2]
    request = {"program": program, "arguments": arguments, "environment": dict(os.environ)}
    message = json.dumps(request).encode()
    socket.send_fds(_server(), [len(message).to_bytes(8)], [theirs.fileno(), *files])
    _server().sendall(message)
    theirs.close()
    return Forked(mine)


@functools.cache
def _server() -> socket.socket:
    mine, theirs = socket.socketpair()
    command = [sys.executable, "-c", PROGRAM, str(theirs.fileno())]
    process = subprocess.Popen(command, cwd=REPOSITORY, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        mine.close()
        process.wait()

    atexit.register(end)
    return mine


def serve(number: int) -> str:
    """Fork for each request, until the connection ends; return in each fork, with the program that it is to run."""
    import torch.distributed.fsdp  # noqa: F401

    import tokenfree.train.finetune
    import tokenfree.train.pretrain  # noqa: F401

    connection = socket.socket(fileno=number)
    # Those that wait for a program leave no zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        size, files, *_ = socket.recv_fds(connection, 8, 3)
        if not size:
            os._exit(0)
        message = connection.recv(int.from_bytes(size), socket.MSG_WAITALL)
        if os.fork() == 0:
            connection.close()
            return _run(json.loads(message), files)
        for file in files:
            os.close(file)


def _run(request: dict[str, Any], files: list[int]) -> str:
    """Fork once more; wait for the program here, and return in it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection, stdout, stderr = files
    program = os.fork()
    if program:
        os.write(connection, program.to_bytes(4, signed=True))
        _, status = os.waitpid(program, 0)
        os.write(connection, os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))
        os._exit(0)
    os.setsid()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    for file in files:
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["-c", *request["arguments"]]
    return request["program"]
