"""First pass: comments and the extension tags whose content is not wikitext. References, formulas, galleries and code
go; the content of <nowiki> and <pre> is set aside and comes back as it was written."""

import re

from tokenfree.preprocess.wikitext.markup.marks import BEFORE_GONE, GONE, STASH

_DROPPED = """
ref references gallery math chem ce timeline score source syntaxhighlight hiero graph imagemap mapframe maplink
inputbox categorytree templatedata templatestyles includeonly indicator style script section charinsert rss quiz
dynamicpagelist phonos listing ordertable
"""
_LITERAL = ("nowiki", "pre")

# The attributes stop at the next "<", so a tag that never ends is read once only.
_OPENING = re.compile(rf"<(?:!--|({'|'.join((*_DROPPED.split(), *_LITERAL))})(?![\w-])([^<>]*)>)", re.IGNORECASE)
_CLOSING = {
    name: re.compile("</" + "".join(f"[{letter}{letter.upper()}]" for letter in name) + r"\s*>")
    for name in (*_DROPPED.split(), *_LITERAL)
}


def set_aside(text: str) -> tuple[str, list[str]]:
    """The text without comments and dropped extension tags, and the literal texts that STASH marks in it refer to."""
    stash: list[str] = []
    pieces: list[str] = []
    unclosed: set[str] = set()  # names with no closing tag further on: never searched again, so the pass stays linear
    position = 0
    opening = _OPENING.search(text)
    while opening:
        start, end = opening.span()
        if start > position:
            pieces.append(text[position:start])
        name = opening[1]
        if name is None:
            close = text.find("-->", end)
            position = len(text) if close < 0 else close + 3
            _join_around_comment(pieces, text, position)
        else:
            name = name.lower()
            content_end, position = _content(text, name, opening, unclosed)
            if name in _LITERAL:
                pieces.append(f"{STASH}{len(stash)}{STASH}")
                stash.append(_literal(name, text[end:content_end]))
            elif start and text[start - 1] in BEFORE_GONE:
                pieces.append(GONE)
        opening = _OPENING.search(text, position)
    if not position:
        return text, stash
    pieces.append(text[position:])
    return "".join(pieces), stash


def _content(text: str, name: str, opening: re.Match[str], unclosed: set[str]) -> tuple[int, int]:
    """Where the content of an extension tag ends and where the text goes on; an unclosed tag is taken as empty."""
    end = opening.end()
    if opening[2].endswith("/") or name in unclosed:
        return end, end
    closing = _CLOSING[name].search(text, end)
    if closing is None:
        unclosed.add(name)
        return end, end
    return closing.start(), closing.end()


def _join_around_comment(pieces: list[str], text: str, position: int) -> None:
    """A comment alone on its line goes with the line, as in MediaWiki: otherwise it would part a paragraph."""
    if pieces and pieces[-1].endswith("\n") and text.startswith("\n", position):
        pieces[-1] = pieces[-1][:-1]


def _literal(name: str, content: str) -> str:
    return f"\n{content}\n" if name == "pre" else content
