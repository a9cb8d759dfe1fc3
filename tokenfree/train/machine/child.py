"""A function in a process of its own, for what may end its process at any moment; objects go there and come back."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from pkgutil import resolve_name
from typing import IO, Any

from tokenfree.train.machine.processes import end_stragglers, session_processes

_MESSAGE, _OUTCOME = "message", "outcome"
_EXIT_SECONDS = 10.0  # for the process to exit once its function has returned


class ChildEnded(Exception):
    """The process ended before its function did; `status` is its exit status, or minus the number of a signal."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Traceback(Exception):
    """Of an error in the child, as text: the cause of the one that is raised here."""


class Link:
    """The connection in the child to the process that started it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: Any) -> None:
        """Hand over what `Child.messages` yields; any thread may do so."""
        with self._sending:
            self._connection.send((_MESSAGE, message))

    def listen(self, take: Callable[[Any], None]) -> None:
        """Have `take` called with what comes, in a thread; this process ends where the other one does."""

        def run() -> None:
            with contextlib.suppress(EOFError, OSError):
                while True:
                    take(self._connection.recv())
            os._exit(1)

        threading.Thread(target=run, name="link", daemon=True).start()


class Child:
    """Calls a function with a `Link` and these arguments in a new interpreter.

    Python's own ways to do this run the main module of a script again. Neither signals of a terminal nor those to this
    process's group reach the child; it is a session of its own, of which nothing is left after the `with` block.

    Args:
        function: its name, as module:function.
        environment: of the child.
        errors: where its standard error goes.
    """

    def __init__(self, function: str, *arguments: Any, environment: Mapping[str, str], errors: IO[bytes]) -> None:
        self._connection, there = multiprocessing.Pipe()
        script = getattr(sys.modules["__main__"], "__file__", None)  # next to which Ray looks for modules
        code = [f"__file__ = {script!r}"] if script is not None else []
        code += [f"import sys; sys.path[:], sys.argv = {sys.path!r}, {sys.argv!r}", f"from {__name__} import main"]
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "; ".join([*code, f"main({there.fileno()})"])],
                stdin=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                pass_fds=[there.fileno()],
                start_new_session=True,
            )
        self.send((function, arguments))
        self._outcome: tuple[Any, str | None] | None = None  # the second: the traceback of an error

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._connection.close()
        end_stragglers(session_processes(self._process.pid), seconds=0.0)

    def send(self, message: Any) -> None:
        """Hand over what the child listens to; nothing happens where it has ended."""
        with contextlib.suppress(OSError):
            self._connection.send(message)

    def messages(self, seconds: float) -> Iterator[Any]:
        """What the child sends, until its function has ended; None where it sends nothing for some `seconds`."""
        while self._outcome is None:
            if not self._connection.poll(seconds):
                yield None
                continue
            try:
                kind, message = self._connection.recv()
            except (EOFError, OSError):
                return
            if kind == _MESSAGE:
                yield message
            else:
                self._outcome = message

    def result(self) -> Any:
        """What the function returned; raises what it raised.

        Raises:
            ChildEnded: it did neither.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_SECONDS)
        if self._outcome is None:
            raise ChildEnded(self._process.poll() or 0)
        value, there = self._outcome
        if there is not None:
            raise value from _Traceback(there)
        return value


def main(descriptor: int) -> None:
    """Run in the child, with the number of the connection that it inherited."""
    connection = Connection(descriptor)
    function, arguments = connection.recv()
    try:
        outcome = (resolve_name(function)(Link(connection), *arguments), None)
    except Exception as error:
        outcome = (_picklable(error), traceback.format_exc())
    connection.send((_OUTCOME, outcome))


def _picklable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever the class of the error does
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
