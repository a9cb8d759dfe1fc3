"""The filter by symbols: tables of signs, code, boxes and rows of emoji are no prose."""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter

UNSEEN, LETTER, SYMBOL = range(3)
_PASSED_OVER = ("Z", "Cc", "Cf")  # white space, and what is not seen, such as joiners inside words


def symbol_share(text: str) -> float:
    """The share of the visible characters of a text that are neither letters nor marks nor digits; 0 where it has none.

    Punctuation counts as symbols: of prose it is a few in a hundred.
    """
    visible = symbols = 0
    for character, count in Counter(text).items():
        kind = _kind(character)
        visible += count * (kind != UNSEEN)
        symbols += count * (kind == SYMBOL)
    return symbols / visible if visible else 0.0


@functools.lru_cache(maxsize=1 << 16)
def _kind(character: str) -> int:
    category = unicodedata.category(character)
    if category.startswith(_PASSED_OVER):
        return UNSEEN
    return LETTER if category[0] in "LMN" else SYMBOL
