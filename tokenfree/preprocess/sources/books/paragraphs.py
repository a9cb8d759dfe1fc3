"""The text of a book file as paragraphs: without Project Gutenberg's header and licence, lines put together again."""

from __future__ import annotations

import re
from itertools import pairwise

_START = re.compile(r"^[ \t]*\*{3} ?START OF TH(?:E|IS) PROJECT GUTENBERG[^*]{0,400}\*{3}.*$", re.MULTILINE | re.I)
_OLD_START = re.compile(r"^\*END\*? ?THE SMALL PRINT!.*\*END\*.*$", re.MULTILINE)
_END = re.compile(
    r"^[ \t]*(?:\*{3} ?END OF TH(?:E|IS) PROJECT GUTENBERG|End of (?:the |this )?Project Gutenberg)",
    re.MULTILINE | re.I,
)
_TITLE = re.compile(r"^Title:(.*)$", re.MULTILINE)
_CREDITS = re.compile(
    r"\s*(?:\[?(?:E-?text|This (?:e-?text|e-?book|file)|HTML version)? ?(?:was )?(?:produced|prepared|transcribed|"
    r"created) (?:by|from)\b|Credits?:|Produced by|Transcriber's Note)",
    re.I,
)
_PARAGRAPH_BREAK = re.compile(r"\n[^\S\n]*(?:\n[^\S\n]*)+")
_CJK = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")
MAX_WRAP_WIDTH = 160  # characters; wider lines are nobody's page width
HEADER_CHARACTERS = 30_000
MAX_CREDITS = 10


def strip_gutenberg(text: str) -> tuple[str, str | None]:
    """The book between Project Gutenberg's header and footer, and its title in the header; all of it without them."""
    start = _START.search(text, 0, HEADER_CHARACTERS) or _OLD_START.search(text, 0, HEADER_CHARACTERS)
    end = _END.search(text, start.end() if start else 0)
    if not start and not (end and "Project Gutenberg" in text[:HEADER_CHARACTERS]):
        return text, None
    title = _TITLE.search(text, 0, start.start()) if start else None
    body = text[start.end() if start else 0 : end.start() if end else len(text)].strip()
    for _ in range(MAX_CREDITS):
        credit, separator, rest = body.partition("\n\n")
        # A credit is a short paragraph; more than that would be the book, in a file without blank lines.
        if not _CREDITS.match(credit) or not separator or len(credit) > 1000:
            break
        body = rest.lstrip()
    return body, (title.group(1).strip() or None) if title else None


def paragraphs(text: str) -> str:
    """The text with one line a paragraph, blank lines between those that the file sets apart.

    Where lines were wrapped at a page width, they are put together again. Lines of files that have one paragraph or one
    sentence (BookCorpus) a line stay as they are. The two are told apart by the lines' lengths (see `wrap_width`).
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n\n").strip("\n")
    width = wrap_width([len(line) for line in map(str.strip, text.split("\n")) if line])
    blocks = []
    for block in _PARAGRAPH_BREAK.split(text):
        lines = [line for line in map(str.strip, block.split("\n")) if line]
        if lines:
            blocks.append("\n".join(_unwrap(lines, width) if width else lines))
    return "\n\n".join(blocks)


def wrap_width(lengths: list[int]) -> int | None:
    """The width, in characters, at which lines of these lengths were wrapped, None where they were not.

    Wrapped lines crowd just below the width: over a third of them are at least 80% as long as the 95th percentile
    (over half of them in real books, verse and dialogue included). Sentences and paragraphs do not: about a tenth.
    """
    if len(lengths) < 20:
        return None
    ordered = sorted(lengths)
    width = ordered[int(0.95 * (len(ordered) - 1))]
    num_full = sum(length >= 0.8 * width for length in ordered)
    # A few lines may stick out, as tables do, but prose that was wrapped has next to none beyond twice the width.
    num_beyond = sum(length > 2 * width for length in ordered)
    wrapped = width <= MAX_WRAP_WIDTH and num_full > len(ordered) / 3 and num_beyond < len(ordered) / 100
    return width if wrapped else None


def _unwrap(lines: list[str], width: int) -> list[str]:
    """Lines put together, but for those that end well before the width though the next word had room: verse, lists."""
    joined = [lines[0]]
    for before, line in pairwise(lines):
        first_word = 1 if _CJK.match(line) else len(line.split(None, 1)[0])
        if len(before) + 1 + first_word < 0.7 * width:
            joined.append(line)
        else:
            joined[-1] += _glue(before, line) + line
    return joined


def _glue(before: str, after: str) -> str:
    """What stands between two lines: nothing between Chinese or Japanese characters and after a word's hyphen."""
    if _CJK.match(before[-1]) and _CJK.match(after[0]) and not ("\uac00" <= before[-1] <= "\ud7af"):
        return ""
    hyphenated = before[-1] == "-" and before[-2:-1].isalpha() and after[0].isalpha()
    return "" if hyphenated else " "
