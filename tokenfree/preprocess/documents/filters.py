"""Filters of documents, cheap ones first. Each dropped document has one counted reason.

Repeated lines: Gopher's fraction of characters in duplicate lines, https://arxiv.org/abs/2112.11446, table A1.

The filter by scripts identifies no language. No locked library does that well enough: charset-normalizer, which uses
letter frequencies, named 9 of 17 pieces of 500 characters of Finnish, took Belarusian for Russian, and Kabyle, which it
does not know, for Dutch (sentences of Tatoeba).
"""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable

import numpy as np

from tokenfree.preprocess.config import FilterConfig
from tokenfree.preprocess.text.characters import codepoints_of
from tokenfree.preprocess.text.scripts import scripts_of


def is_of_languages(tag: str, wanted: Iterable[str]) -> bool:
    """Whether a language tag lies in one of the ranges `wanted`: `zh` takes `zh-Hant` too, `zh-Hant` takes no `zh`.

    This is the basic filtering of RFC 4647, https://www.rfc-editor.org/rfc/rfc4647#section-3.3.1.
    """
    told = tag.lower()
    return any(told == each.lower() or told.startswith(f"{each.lower()}-") for each in wanted)


def repeated_line_share(text: str) -> float:
    """The share of the characters of a text that stand in lines which stood in it before; 0 where it has none.

    White space around a line is nothing, and line ends are not counted.
    """
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    characters = sum(map(len, lines))
    once = sum(map(len, set(lines)))
    return (characters - once) / characters if characters else 0.0


def script_share(text: str, scripts: Collection[str]) -> float:
    """The share of the letters of a text that belong to one of `scripts`; 0 where it has no letter.

    What many scripts share, such as digits and punctuation, is no letter here.
    """
    kinds, counts = np.unique(codepoints_of(text), return_counts=True)  # a text has far fewer kinds than characters
    names = scripts_of(kinds)
    letters = counts[names != ""].sum()
    return float(counts[np.isin(names, list(scripts))].sum() / letters) if letters else 0.0


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


def reason_of_language(language: str, filters: FilterConfig) -> str | None:
    """`other_language` where documents of this tag are dropped, else None; asked before a page is cleaned."""
    return "other_language" if filters.languages and not is_of_languages(language, filters.languages) else None


def reason_of_text(text: str, filters: FilterConfig) -> str | None:
    """Why a clean text is dropped, None where it stays: empty, too_short, too_long, other_script, too_many_symbols or
    repeated_lines."""
    if not text:
        return "empty"
    if len(text) < filters.min_characters:
        return "too_short"
    if len(text) > filters.max_characters:
        return "too_long"
    if filters.scripts and script_share(text, filters.scripts) < filters.min_script_share:
        return "other_script"
    if filters.max_symbol_share is not None and symbol_share(text) > filters.max_symbol_share:
        return "too_many_symbols"
    if filters.max_repeated_line_share is not None and repeated_line_share(text) > filters.max_repeated_line_share:
        return "repeated_lines"
    return None
