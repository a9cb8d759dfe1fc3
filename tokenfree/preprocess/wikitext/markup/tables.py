"""Third pass: tables, in wiki and HTML markup, go with all that they hold."""

import re

from tokenfree.preprocess.wikitext.markup.marks import GONE

_EDGES = re.compile(r"\n[ \t:*#;\x05]*\{\||\n[ \t\x05]*\|\}|<table\b|</table\s*>", re.IGNORECASE)
_RESIDUE = re.compile(r"\n[ \t:*#;\x05]*(?:\{\||\|)[^\n]*")


def drop_tables(text: str) -> str:
    """Removes tables however deeply nested. Of a table that never ends only the lines in table markup are removed."""
    if "{|" in text or "<table" in text:
        text = _drop_closed(text)
    return _RESIDUE.sub("", text)


def _drop_closed(text: str) -> str:
    opened: list[int] = []
    done: list[tuple[int, int]] = []
    for edge in _EDGES.finditer(text):
        if edge[0][-1] == "|" or edge[0][1] in "tT":
            opened.append(edge.start())
        elif opened:
            start = opened.pop()
            while done and done[-1][0] > start:
                done.pop()
            done.append((start, edge.end()))
    pieces: list[str] = []
    position = 0
    for start, end in done:
        pieces += (text[position:start], "\n" + GONE)
        position = end
    pieces.append(text[position:])
    return "".join(pieces)
