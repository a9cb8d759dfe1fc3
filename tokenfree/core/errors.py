"""The expected errors, text from outside made safe to print, and the problems of a mapping of settings.

Text from outside is printed without control characters, direction marks and bytes that are not UTF-8: they are escaped
as in JSON (`\\u001b`), so that output that is JSON stays the same JSON.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO


class UserError(ValueError):
    """The user's mistake: one line that names the file, field or option and the remedy. Exit status 2.

    Attributes:
        source: what the problems are of, or the whole message where there are none.
        problems: of settings, each with its key. The error's text has all of them in one line, a command prints a line
            for each.
    """

    def __init__(self, source: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(": ".join(filter(None, (source, "; ".join(problems)))))
        self.source, self.problems = source, tuple(problems)


class JobError(RuntimeError):
    """A job that failed through no mistake in its settings: one line that says what and what to do. Exit status 1."""


class TakenOverError(JobError):
    """Another command goes on with the job: what this one would write is not wanted any more."""


class StoppedError(JobError):
    """A job that stopped in order after a signal; the same command resumes it."""


# C0 but tab and newline, DEL, C1; bidirectional embeddings, overrides and isolates; ends of lines that a terminal may
# take for such; lone surrogates, by which Python stands for bytes that are no UTF-8
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with every control character but tab and newline spelled out."""
    return _CONTROLS.sub(_spelled, text)


def one_line(text: object) -> str:
    """What `str` makes of it as a single line: ends of lines are spelled out too."""
    return printable(str(text)).replace("\n", "\\n")


def _spelled(match: re.Match[str]) -> str:
    return f"\\u{ord(match.group()):04x}"


class PrintableStream:
    """A stream of text that lets nothing but printable text through, to stand in for `sys.stdout` and `sys.stderr`.

    Args:
        stream: takes what is written; all else is asked of it.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # the terminal library moves the cursor itself, in text that was made printable

    def write(self, text: str) -> int:
        """Write the text, printable; returns its length."""
        self.rich_proxied_file.write(printable(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write each of the lines."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Let go of what is held back."""
        self.rich_proxied_file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


Path = tuple[Any, ...]  # keys from the top to a value


class Nearest:
    """The known name that is most like a name, if one is, and the hint that tells it or all that are known."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.5)), None)
        self.hint = f" (known: {', '.join(known)})" if self.name is None else f" (did you mean {self.name!r}?)"


def refusals(errors: Iterable[Any], mapping: Any) -> list[str]:
    """Turn the errors of pydantic into problems of the mapping, a line for each place of it."""
    messages: dict[Path, dict[str, None]] = {}
    inputs: dict[Path, Any] = {}
    for location, error in _flat(errors, ()):
        place = location if error["type"] == "missing" else _place(location, mapping)
        told = ("missing", "value_error", "unexpected_keyword_argument")
        if error["type"] not in told and not isinstance(error["input"], (Mapping, list)):
            inputs[place] = error["input"]
        messages.setdefault(place, {})[_words(error["msg"])] = None
    return [_line(place, " or ".join(said), inputs.get(place, ...)) for place, said in messages.items()]


def _flat(errors: Iterable[Any], prefix: Path) -> Iterator[tuple[Path, Any]]:
    for error in errors:
        location = (*prefix, *error["loc"])
        if error["type"] == "part":  # of a slot, with the errors of the part that it holds
            yield from _flat(error["ctx"]["errors"], location)
        else:
            yield location, error


def _place(location: Path, mapping: Any) -> Path:
    """Return how far a location leads into the mapping; after that pydantic names types of a union."""
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


_NOT_UTF8 = re.compile("[\ud800-\udfff]")  # how Python stands for bytes of a path that are no UTF-8


def is_utf8(text: str) -> bool:
    """Whether an argument, path or file name holds no bytes that are not UTF-8."""
    return _NOT_UTF8.search(text) is None
