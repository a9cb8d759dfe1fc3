"""Filters on the text of a document. Each gives a reason, which is counted."""

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable

import numpy as np

from tokenfree.preprocess.config import FilterConfig
from tokenfree.preprocess.text.characters import codepoints_of, scripts_of

# Filters of documents, cheap ones first. Each dropped document has one counted reason. The filter by scripts
# identifies no language, unlike the one of language.py.


def is_of_languages(tag: str, languages: Iterable[str]) -> bool:
    """Return True if a tag lies in one of the ranges `languages`: `zh` includes `zh-Hant` (RFC 4647, section 3.3.1)."""
    lower = tag.lower()
    return any(
        lower == language.lower() or lower.startswith(f"{language.lower()}-") for language in languages
    )


def repeated_line_share(text: str) -> float:
    """Return the share of characters in repeated lines (Gopher, https://arxiv.org/abs/2112.11446, table A1), or 0."""
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    characters = sum(map(len, lines))
    return (characters - sum(map(len, set(lines)))) / characters if characters else 0.0


def script_share(text: str, scripts: Collection[str]) -> float:
    """Return the share of a text's letters, without digits and punctuation, that belong to one of `scripts`, or 0."""
    # Few distinct characters.
    kinds, counts = np.unique(codepoints_of(text), return_counts=True)
    names = scripts_of(kinds)
    letters = counts[names != ""].sum()
    return float(counts[np.isin(names, list(scripts))].sum() / letters) if letters else 0.0


_PASSED_OVER = ("Z", "Cc", "Cf")  # white space and invisible characters, such as joiners inside words


def symbol_share(text: str) -> float:
    """Return the share of visible characters, such as punctuation, that are neither letters, marks nor digits, or 0."""
    kinds = [(unicodedata.category(character), count) for character, count in Counter(text).items()]
    visible = sum(count for kind, count in kinds if not kind.startswith(_PASSED_OVER))
    letters = sum(count for kind, count in kinds if kind[0] in "LMN")
    return (visible - letters) / visible if visible else 0.0


def reason_of_text(text: str, filters: FilterConfig) -> str | None:
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
    if (
        filters.max_repeated_line_share is not None
        and repeated_line_share(text) > filters.max_repeated_line_share
    ):
        return "repeated_lines"
    return None
