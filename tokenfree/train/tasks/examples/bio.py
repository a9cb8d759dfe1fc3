"""Tags of spans: B- begins one, I- goes on with it, O is outside."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_BIO = re.compile(r"O|[BI]-.+")
_SPANS = re.compile(r"[BI]-.+")


def are_bio(tags: Iterable[str]) -> bool:
    """Whether tags are meant as BIO: one of them, or more, begins or continues a span (POS tags have none such)."""
    return any(_SPANS.fullmatch(tag) for tag in tags)


def is_bio(tag: str) -> bool:
    """Whether this is `O`, `B-TYPE` or `I-TYPE`."""
    return _BIO.fullmatch(tag) is not None


def misfits(tags: Sequence[str]) -> list[int]:
    """Where an `I-TYPE` follows neither `B-TYPE` nor `I-TYPE`."""
    before = ("O", *tags)
    return [n for n, tag in enumerate(tags) if tag[:2] == "I-" and not (before[n] != "O" and before[n][2:] == tag[2:])]


def mended(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags with `B-` for each `I-` that goes on with no span: the spans that conlleval finds in them.

    This turns IOB1, in which `B-` stands only between two spans of a type, into BIO (IOB2).
    """
    wrong = set(misfits(tags))
    return tuple(f"B{tag[1:]}" if n in wrong else tag for n, tag in enumerate(tags))
