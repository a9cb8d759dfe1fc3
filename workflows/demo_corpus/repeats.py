"""Leaves out paragraphs that the corpus already holds: Python's help says many things in several places."""

from __future__ import annotations

import re

_PARAGRAPHS = re.compile(r"\n[ \t]*\n")


class Repeats:
    """Remembers the paragraphs of all texts that went through `new_part`."""

    def __init__(self, min_characters: int = 80) -> None:
        self.min_characters = min_characters
        self._seen: set[str] = set()

    def new_part(self, text: str) -> str:
        """`text` without the paragraphs (of at least `min_characters`) seen before, in this text or an earlier one."""
        kept = []
        for paragraph in _PARAGRAPHS.split(text):
            key = " ".join(paragraph.split())
            if len(key) >= self.min_characters:
                if key in self._seen:
                    continue
                self._seen.add(key)
            kept.append(paragraph)
        return "\n\n".join(kept)
