"""The filters of a job in their order: the cheap ones first, and for each drop the one reason that is counted."""

from __future__ import annotations

from tokenfree.preprocess.config import FilterConfig
from tokenfree.preprocess.documents.filters.languages import is_of_languages
from tokenfree.preprocess.documents.filters.repeated_lines import repeated_line_share
from tokenfree.preprocess.documents.filters.scripts import script_share
from tokenfree.preprocess.documents.filters.symbols import symbol_share


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
