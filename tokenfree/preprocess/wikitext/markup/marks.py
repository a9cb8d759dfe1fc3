"""Control characters that the passes leave for one another. XML cannot hold them, and the input is freed of them."""

import re

STASH = "\x02"  # STASH digits STASH: literal text set aside (nowiki, pre)
PIPE = "\x03"  # a pipe written as {{!}}: not a separator of template arguments
HEADING = "\x04"  # at the start of a line, before the level digit of a section title
GONE = "\x05"  # something was dropped here: the tidy pass looks only around these
PHONETIC = "\x07"  # around a transcription: dropped from brackets, kept in running text
EQUALS = "\x06"  # an equals sign written as {{=}}: not the mark of a named argument

_CONTROLS = "".join(map(chr, (*range(9), 11, 12, *range(14, 32), 127)))
_CONTROL_RUN = re.compile(f"[{_CONTROLS}]+")

# A dropped template or reference leaves GONE only after one of these (or another GONE): elsewhere there is no residue.
BEFORE_GONE = frozenset(" \t\n\xa0\u3000([{（［「『【〔,;:/、，；：،؛–—-'" + GONE)


def strip_controls(text: str) -> str:
    """The text without control characters but tabs and line breaks. Character by character is faster than a regex."""
    return _CONTROL_RUN.sub("", text) if any(control in text for control in _CONTROLS) else text
