"""Expected errors, escapes for untrusted text, and the problems of a mapping of settings."""

import errno
import os
import re
import signal
import stat
from collections.abc import Callable, Sequence
from typing import Any, TextIO


class UserError(ValueError):
    """A mistake of the user: one line that names the file, field or option, and the fix. Exit status 2.

    `source` is what the `problems` of settings belong to, or the whole message if there are none.
    """

    def __init__(self, source: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(": ".join(filter(None, (source, "; ".join(problems)))))
        self.source, self.problems = source, tuple(problems)


class JobError(RuntimeError):
    """A failure of a job without a mistake in its settings: one line with the cause and what to do.

    Exit status 1.
    """


class TakenOverError(JobError):
    """Another command has taken over the job, so this one must not write any more."""


class StoppedError(JobError):
    """A job that stopped in order for `reason`, such as a signal's name. The same command resumes it."""

    def __init__(self, *values: object, reason: str = "") -> None:
        super().__init__(*values)
        self.reason = reason

    @property
    def exit_status(self) -> int:
        """Return 128 + the number of the signal, or 1 if the reason was not a signal."""
        return 128 + signal.Signals[self.reason] if self.reason in signal.Signals.__members__ else 1


# C0 except tab and newline, DEL, C1; bidirectional embeddings, overrides and isolates; characters that a
# terminal may take for the end of a line; lone surrogates, which Python uses for bytes that are not UTF-8.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with every control character except tab and newline escaped."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def one_line(text: object) -> str:
    """Return `str(text)` as a single line, with line ends escaped, too."""
    return printable(str(text)).replace("\n", "\\n")


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, or the name of its class if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


class _TerminalStream:
    """A stream that discards its output once its terminal is closed, so that the command can still stop in order."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def _attempt(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError as error:
            if error.errno != errno.EIO or not stat.S_ISCHR(os.fstat(self._stream.fileno()).st_mode):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class PrintableStream(_TerminalStream):
    """A replacement for `sys.stdout` that escapes everything unprintable as in JSON, so JSON output stays the same."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        # rich moves the cursor itself, in text that was escaped before.
        self.rich_proxied_file = _TerminalStream(stream)

    def write(self, text: str) -> int:
        super().write(printable(text))
        return len(text)


# Python uses these for bytes of a path that are not UTF-8.
_NOT_UTF8 = re.compile("[\ud800-\udfff]")


def is_utf8(text: str) -> bool:
    """Return True if a text contains only what UTF-8 can encode: no lone surrogates."""
    return _NOT_UTF8.search(text) is None
