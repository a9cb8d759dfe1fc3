"""Marks inside a line or at its start: HTML tags, bold and italic, titles, lists, behaviour switches, entities."""

import re
from html.entities import html5

from tokenfree.preprocess.wikitext.markup.marks import GONE, HEADING

_TAG = re.compile(r"</?([A-Za-z][A-Za-z0-9]{0,14})(?![A-Za-z0-9])[^<>]*>")
_BREAKING = "br p div li ul ol dl dd dt blockquote center h1 h2 h3 h4 h5 h6 hr tr table tbody caption poem pre"
_PLAIN = """
small big b i u s em strong sup sub span font code tt kbd samp var del ins strike abbr cite dfn bdi bdo q mark
ruby rb rp rt rtc wbr a td th thead time data noinclude onlyinclude includeonly nowiki ref
references section tvar translate
languages nobr label input img math gallery templatestyles score timeline source syntaxhighlight chem ce
"""
_TAG_TEXT: dict[str, str] = {**dict.fromkeys(_PLAIN.split(), ""), **dict.fromkeys(_BREAKING.split(), "\n")}

_TITLE = re.compile(r"\n=[^\n]*")
_LIST = re.compile(r"\n[*#:;][*#:; \t]*")
_GONE_BEFORE_MARK = re.compile(r"\n[ \t]*\x05[\x05 \t]*(?=[*#:;=|])")
_RULE = re.compile(r"\n-----*")
_SWITCH = re.compile(r"__(?:[^\W\d_]|_(?!_)){3,40}__")
_ELISION = re.compile(r"'''(?=[^\W_])(?<=\w''')(?!')")
_ENTITY = re.compile(r"&(?:#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6})|([A-Za-z][A-Za-z0-9]{1,31}));")


def strip_tags(text: str) -> str:
    """Removes the tags of HTML elements, keeping what they hold; block tags and <br> become line breaks."""
    return _TAG.sub(_tag_text, text) if "<" in text else text


def _tag_text(match: re.Match[str]) -> str:
    text = _TAG_TEXT.get(match[1])
    if text is None:
        text = _TAG_TEXT.get(match[1].lower())
    return match[0] if text is None else text


def strip_quotes(text: str) -> str:
    """Removes the apostrophes of bold and italic but not those of words: l'''Aida'' is l'Aida, as in MediaWiki."""
    if "''" not in text:
        return text
    if _ELISION.search(text):
        text = _mend_elisions(text)
    return text.replace("'''''", "").replace("'''", "").replace("''", "")


def _mend_elisions(text: str) -> str:
    """On a line where neither bold nor italic is balanced, MediaWiki takes one apostrophe of three for a letter."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        mark = _ELISION.search(line) if "'''" in line else None
        if mark is None:
            continue
        bare = line.replace("'''''", "")
        bold = bare.count("'''")
        if bold % 2 and bare.replace("'''", "").count("''") % 2:
            lines[number] = f"{line[: mark.start()]}\u2019{line[mark.start() + 1 :]}".replace("\u2019''", "'", 1)
    return "\n".join(lines)


def mark_titles(text: str) -> str:
    """Section titles without equals signs, behind HEADING and the level. The text must begin with a line break."""
    if "\n" + GONE in text:
        text = _GONE_BEFORE_MARK.sub("\n", text)
    return _TITLE.sub(_title, text) if "\n=" in text else text


def _title(match: re.Match[str]) -> str:
    line = match[0].strip(" \t\n\xa0" + GONE)
    if line[-1] != "=" or len(line) < 3:
        return match[0]
    title = line.strip("=")
    level = min(6, (len(line) - len(title)) // 2) or 1
    return f"\n{HEADING}{level}{title.strip()}"


def strip_line_marks(text: str) -> str:
    """List items without their marks, no rules, no behaviour switches. The text must begin with a line break."""
    text = _LIST.sub("\n", text)
    if "\n----" in text:
        text = _RULE.sub("\n", text)
    return _SWITCH.sub(_switch, text) if "__" in text else text


def _switch(match: re.Match[str]) -> str:
    name = match[0]
    return "" if name.upper() == name else name


def resolve_entities(text: str) -> str:
    """Named and numeric character references as characters; those that MediaWiki does not know stay as they are."""
    return _ENTITY.sub(_character, text) if "&" in text else text


def _character(match: re.Match[str]) -> str:
    decimal, hexadecimal, name = match.groups()
    if name:
        return html5.get(name + ";", match[0])
    code = int(decimal) if decimal else int(hexadecimal, 16)
    return chr(code) if is_valid(code) else match[0]


def is_valid(code: int) -> bool:
    """MediaWiki's rule for numeric references (Sanitizer::validateCodepoint): what XML 1.0 allows, without controls."""
    return (
        code in (0x09, 0x0A, 0x20)
        or 0x20 < code < 0x7F
        or 0xA0 <= code <= 0xD7FF
        or 0xE000 <= code <= 0xFFFD
        or 0x10000 <= code <= 0x10FFFF
    )
