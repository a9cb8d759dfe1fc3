"""Expected errors, escapes for untrusted text, and the problems of a mapping of settings."""

import difflib
import errno
import os
import re
import signal
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO


class UserError(ValueError):
    """A mistake of the user: one line that names the file, field or option, and the fix. Exit status 2.

    `source` is what the `problems` of settings belong to, or the whole message if there are none.
    """

    def __init__(self, source: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(": ".join(filter(None, (source, "; ".join(problems)))))
        self.source, self.problems = source, tuple(problems)


class JobError(RuntimeError):
    """A failure of a job without a mistake in its settings: one line with the cause and what to do. Exit status 1."""


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


# C0 except tab and newline, DEL, C1; bidirectional embeddings, overrides and isolates; characters that a terminal may
# take for the end of a line; lone surrogates, which Python uses for bytes that are not UTF-8.
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
        self.rich_proxied_file = _TerminalStream(
            stream
        )  # rich moves the cursor itself, in text that was escaped before

    def write(self, text: str) -> int:
        super().write(printable(text))
        return len(text)


Path = tuple[Any, ...]  # keys from the top to a value


def nearest_hint(name: str, known: Sequence[str]) -> str:
    """Return a hint with the known name that is most similar to a name, or with all known names."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else f" (known: {', '.join(known)})"


def refusals(
    errors: Iterable[Any], mapping: Any, known: Callable[[Path], Sequence[str]] = lambda path: ()
) -> list[str]:
    """Turn errors of pydantic into problems of the mapping, one line per key, unknown keys first.

    `known` returns the known keys at the place of an unknown one, if they can be listed.
    """
    unknown: list[str] = []
    messages: dict[Path, dict[str, None]] = {}
    inputs: dict[Path, Any] = {}
    for location, error in _flat(errors, ()):
        place = location if error["type"] == "missing" else _place(location, mapping)
        if error["type"] == "unexpected_keyword_argument" and (names := known(place)):
            key = ".".join(map(str, place))
            unknown.append(f"there is no key {key!r}{nearest_hint(str(place[-1]), names)}")
            continue
        reported = ("missing", "value_error", "unexpected_keyword_argument")
        if error["type"] not in reported and not isinstance(error["input"], (Mapping, list)):
            inputs[place] = error["input"]
        messages.setdefault(place, {})[_words(error["msg"])] = None
    return unknown + [_line(place, " or ".join(texts), inputs.get(place, ...)) for place, texts in messages.items()]


def _flat(errors: Iterable[Any], prefix: Path) -> Iterator[tuple[Path, Any]]:
    for error in errors:
        location = (*prefix, *error["loc"])
        if error["type"] == "part":  # of a slot, with the errors of its part
            yield from _flat(error["ctx"]["errors"], location)
        else:
            yield location, error


def _place(location: Path, mapping: Any) -> Path:
    """Return the part of a location that exists in the mapping. The rest are types of a union that pydantic names."""
    for reached, step in enumerate(location):
        if isinstance(mapping, list):
            mapping = dict(enumerate(mapping))
        if not isinstance(mapping, Mapping) or step not in mapping:
            return location[:reached]
        mapping = mapping[step]
    return location


def _words(message: str) -> str:
    message = re.sub("^(Input|String|Tuple) should", "should", message.removeprefix("Value error, "))
    message = re.sub(" after validation, not .*", "", message).replace("Unexpected keyword argument", "no such key")
    message = re.sub(", unable to parse .*", "", message).replace("Field required", "is missing")
    message = re.sub("a valid dictionary|a dictionary or an instance of .*", "a mapping", message)
    return message.replace("be a valid tuple", "be a list such as [a, b]")


def _line(place: Path, message: str, given: Any) -> str:
    text = message if given is ... else f"{message}, not {given!r}"
    return ": ".join(filter(None, [".".join(map(str, place)), text]))


_NOT_UTF8 = re.compile("[\ud800-\udfff]")  # Python uses these for bytes of a path that are not UTF-8


def is_utf8(text: str) -> bool:
    """Return True if a text contains only what UTF-8 can encode: no lone surrogates."""
    return _NOT_UTF8.search(text) is None
