"""What commands print: `--quiet` and `--verbose`, log messages, and escapes for untrusted text."""

import argparse
import errno
import logging
import os
import re
import stat
import sys
from collections.abc import Callable
from typing import Any, Literal, TextIO

Verbosity = Literal["quiet", "normal", "verbose"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    either = parser.add_mutually_exclusive_group()
    for short, name, what in (
        ("-q", "quiet", "only errors, warnings and the result: no progress"),
        (
            "-v",
            "verbose",
            "also settings, messages of libraries and seconds (standard error); progress as plain lines",
        ),
    ):
        either.add_argument(short, f"--{name}", dest="verbosity", action="store_const", const=name, help=what)
    parser.set_defaults(verbosity="normal")


def set_logging(verbosity: Verbosity, *, debug: bool) -> None:
    """Choose the libraries' log messages to show: all if verbose, warnings with `debug`, otherwise only errors."""
    if verbosity == "verbose":
        line = "%(asctime)s  %(name)s: %(message)s"
        logging.basicConfig(
            stream=sys.stderr, level=logging.INFO, format=line, datefmt="%H:%M:%S", force=True
        )
    # Libraries warn about missing extras, but whatever matters raises an error.
    elif not debug:
        logging.getLogger().setLevel(logging.ERROR)
        # One line each.
        logging.getLogger("tokenfree").setLevel(logging.WARNING)
        # They log at length what our errors say in one line.
        for name in ("apache_beam", "huggingface_hub"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


# C0 except tab and newline, DEL, C1; bidirectional embeddings, overrides and isolates; characters that a
# terminal may take for the end of a line; lone surrogates, which Python uses for bytes that are not UTF-8.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with every control character except tab and newline escaped."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def one_line(text: object) -> str:
    """Return `str(text)` as a single line, with line ends escaped, too."""
    return printable(str(text)).replace("\n", "\\n")


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
