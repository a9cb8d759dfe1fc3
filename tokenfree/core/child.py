"""A function in a new interpreter: messages both ways, its result or error, and no process left of it."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from pkgutil import resolve_name
from typing import IO, Any

import psutil

from tokenfree.core.signals import OF_GROUPS

_MESSAGE, _OUTCOME = "message", "outcome"
_EXIT_SECONDS = 10.0  # timeout for the process to exit after its function has returned


class Link:
    """The connection of a child process to the process that started it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def send(self, message: Any) -> None:
        with self._sending:
            self._connection.send((_MESSAGE, message))

    def receive(self) -> Any:
        return self._connection.recv()

    def listen(self, take: Callable[[Any], None]) -> None:
        """Call `take` with each message that arrives, in a thread.

        End this process when the other one ends.
        """

        def run() -> None:
            with contextlib.suppress(EOFError, OSError):
                while True:
                    take(self._connection.recv())
            os._exit(1)

        threading.Thread(target=run, name="link", daemon=True).start()


class Child(contextlib.AbstractContextManager["Child"]):
    """A new interpreter that calls a function, named module:function, with a `Link` and the given arguments.

    `multiprocessing` would run the main module of a script again. The child starts a new session, so it gets
    no signals from the terminal. All processes of that session are killed after the `with` block.
    """

    def __init__(
        self,
        function: str,
        *arguments: Any,
        environment: Mapping[str, str] | None = None,
        errors: IO[bytes] | None = None,
    ) -> None:
        self._connection, there = multiprocessing.Pipe()
        # Ray looks for modules next to it.
        script = getattr(sys.modules["__main__"], "__file__", None)
        code = [f"__file__ = {script!r}"] if script is not None else []
        code += [
            f"import sys; sys.path[:], sys.argv = {sys.path!r}, {sys.argv!r}",
            f"from {__name__} import main",
        ]
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
        # A value or error, and the traceback of an error.
        self._outcome: tuple[Any, str | None] | None = None

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()
        # They stay in the session when their parent ends.
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                if os.getsid(process.pid) == self._process.pid:
                    process.kill()

    def send(self, message: Any) -> None:
        with contextlib.suppress(OSError):
            self._connection.send(message)

    def messages(self, seconds: float) -> Iterator[Any]:
        """Yield what the child sends, until its function has ended.

        Yield None after `seconds` without a message.
        """
        while self._outcome is None:
            try:
                kind, message = (
                    self._connection.recv() if self._connection.poll(seconds) else (_MESSAGE, None)
                )
            except (EOFError, OSError):
                return
            if kind == _MESSAGE:
                yield message
            else:
                self._outcome = message

    def result(self, *, ended: Any = None) -> Any:
        """Return what the function returned, or raise what it raised; `ended` if the process ended before."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_SECONDS)
        if self._outcome is None:
            return ended
        value, there = self._outcome
        if there is not None:
            raise value from RuntimeError(there)
        return value


def main(descriptor: int) -> None:
    # The command decides when its child stops; processes of Ray inherit this.
    for kind in OF_GROUPS:
        signal.signal(kind, signal.SIG_IGN)
    connection = Connection(descriptor)
    # The other process has ended.
    with contextlib.suppress(EOFError, OSError):
        function, arguments = connection.recv()
        there = None
        try:
            outcome = resolve_name(function)(Link(connection), *arguments)
        except Exception as error:
            outcome, there = error, traceback.format_exc()
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:  # classes of errors can raise anything here
                outcome = RuntimeError(f"{type(error).__name__}: {error}")
        connection.send((_OUTCOME, (outcome, there)))
