"""The filter by the language that a source tells: its tag is compared, the text is not looked at."""

from __future__ import annotations

from collections.abc import Iterable


def is_of_languages(tag: str, wanted: Iterable[str]) -> bool:
    """Whether a language tag lies in one of the ranges `wanted`: `zh` takes `zh-Hant` too, `zh-Hant` takes no `zh`.

    This is the basic filtering of RFC 4647, https://www.rfc-editor.org/rfc/rfc4647#section-3.3.1.
    """
    told = tag.lower()
    return any(told == each.lower() or told.startswith(f"{each.lower()}-") for each in wanted)
