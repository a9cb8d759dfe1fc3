"""Puts back the literal texts that the first pass set aside."""

import re

from tokenfree.preprocess.wikitext.markup.inline import resolve_entities
from tokenfree.preprocess.wikitext.markup.marks import STASH

_REFERENCE = re.compile(rf"{STASH}([0-9]+){STASH}")


def restore(text: str, stash: list[str]) -> str:
    """The text with each mark of the stash replaced by the literal text, entities resolved."""
    return _REFERENCE.sub(lambda match: resolve_entities(stash[int(match[1])]), text)
