"""Text from outside as a terminal may show it: ids, titles, file names and what servers say move no cursor.

Control characters, what turns the direction of writing round, and bytes of file names that are no UTF-8 are written as
JSON and Python spell them, `\\u001b`: output that is JSON stays the same JSON.
"""

import re
from typing import Any, TextIO

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
