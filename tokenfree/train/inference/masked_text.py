"""Text with `[MASK]` in it: where each is, and how many characters of it are hidden."""

from __future__ import annotations

import re
from typing import NamedTuple

from tokenfree.preprocess.common.errors import UserError

MARK = re.compile(r"\[MASK(?::([0-9]+))?\]")
_DIGITS = 6  # of the largest number of characters


class MaskedText(NamedTuple):
    """The text between the marks, one part more than there are marks; `sizes`: the characters of each, if told."""

    parts: tuple[str, ...]
    sizes: tuple[int | None, ...]

    def begins_word(self, number: int) -> bool:
        """Whether white space or nothing stands before a mark."""
        before = self.parts[number]
        return before[-1].isspace() if before else number == 0


def read_masked_text(text: str) -> MaskedText:
    """Part a text at its marks: `[MASK]`, or `[MASK:5]` for five characters.

    Raises:
        UserError: it has none, or one of no character or of more than any model reads.
    """
    split = MARK.split(text)
    parts, sizes = split[::2], split[1::2]
    if not sizes:
        raise UserError(f"{text[:60]!r} has no [MASK]; put one where something is to be guessed")
    for size in sizes:
        if size is not None and not size.strip("0"):
            raise UserError(f"[MASK:{size[:20]}] hides nothing; give the number of its characters, or only [MASK]")
        if size is not None and len(size) > _DIGITS:
            said = f"[MASK:{size[:20]}] hides more characters than any model reads"
            raise UserError(f"{said}; give the number of its characters, or only [MASK]")
    return MaskedText(tuple(parts), tuple(None if size is None else int(size) for size in sizes))
