"""Text with `[MASK]` in it: where each is, and how many characters of it are hidden."""

from __future__ import annotations

import re
from typing import NamedTuple

from tokenfree.preprocess.common.errors import UserError

MOST_CHARACTERS = 16_384  # that a mark hides: more than any model reads
MARK = re.compile(r"\[MASK(?::(\d+))?\]")


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
        UserError: it has none, or one of no character.
    """
    split = MARK.split(text)
    parts, sizes = split[::2], split[1::2]
    if not sizes:
        raise UserError(f"{text!r} has no [MASK]; put one where something is to be guessed")
    if "0" in sizes:
        raise UserError(f"{text!r}: [MASK:0] hides nothing; give the number of its characters, or only [MASK]")
    longest = max((int(size) for size in sizes if size is not None), default=0)
    if longest > MOST_CHARACTERS:
        raise UserError(f"[MASK:{longest}] hides more than {MOST_CHARACTERS:,} characters. Give a smaller number.")
    return MaskedText(tuple(parts), tuple(None if size is None else int(size) for size in sizes))
