"""Wikitext markup except templates and links: comments, tags, tables, inline marks, variants, tidying."""

import re
from html.entities import html5

STASH = "\x02"  # STASH digits STASH: literal text set aside (nowiki, pre)
# A pipe written as {{!}}: not a separator of template arguments.
PIPE = "\x03"
HEADING = "\x04"  # at the start of a line, before the level digit of a section title
# Something was dropped here; the tidy pass looks only around these.
GONE = "\x05"
PHONETIC = "\x07"  # around a transcription: dropped from brackets, kept in running text
# An equals sign written as {{=}}: not the mark of a named argument.
EQUALS = "\x06"

_CONTROLS = "".join(map(chr, (*range(9), 11, 12, *range(14, 32), 127)))
_CONTROL_RUN = re.compile(f"[{_CONTROLS}]+")

# A dropped template or reference leaves GONE only after one of these (or another GONE): elsewhere there is no
# residue.
BEFORE_GONE = frozenset(" \t\n\xa0\u3000([{（［「『【〔,;:/、，；：،؛–—-'" + GONE)


def strip_controls(text: str) -> str:
    """Remove control characters except tabs and line breaks. Most pages have none."""
    return _CONTROL_RUN.sub("", text) if any(control in text for control in _CONTROLS) else text


_TAG = re.compile(r"</?([A-Za-z][A-Za-z0-9]{0,14})(?![A-Za-z0-9])[^<>]*>")
_BREAKING = (
    "br p div li ul ol dl dd dt blockquote center h1 h2 h3 h4 h5 h6 hr tr table tbody caption poem pre"
)
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
_QUOTES = re.compile("''+")
_ELISION = re.compile(r"'''(?=[^\W_])(?<=\w''')(?!')")
_ENTITY = re.compile(r"&(?:#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6})|([A-Za-z][A-Za-z0-9]{1,31}));")


def strip_tags(text: str) -> str:
    """Remove the tags of HTML elements and keep their content. Block tags and <br> become line breaks."""
    return _TAG.sub(lambda match: _TAG_TEXT.get(match[1].lower(), match[0]), text) if "<" in text else text


def strip_quotes(text: str) -> str:
    """Remove the apostrophes of bold and italic, but not those of words: l'''Aida'' is l'Aida, as in MediaWiki."""
    if "''" not in text:
        return text
    if _ELISION.search(text):
        text = _fix_elisions(text)
    return _QUOTES.sub(lambda match: "'" if len(match[0]) % 5 in (1, 4) else "", text)


def _fix_elisions(text: str) -> str:
    """Read one apostrophe of three as a letter on a line with unbalanced bold and italic, as MediaWiki does."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        mark = _ELISION.search(line) if "'''" in line else None
        if mark is None:
            continue
        bare = line.replace("'''''", "")
        bold = bare.count("'''")
        if bold % 2 and bare.replace("'''", "").count("''") % 2:
            lines[number] = f"{line[: mark.start()]}\u2019{line[mark.start() + 1 :]}".replace(
                "\u2019''", "'", 1
            )
    return "\n".join(lines)


def mark_titles(text: str) -> str:
    """Replace equals signs of section titles by HEADING and the level.

    The text must begin with a line break.
    """
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
    """Remove list marks, rules and behaviour switches. The text must begin with a line break."""
    text = _LIST.sub("\n", text)
    if "\n----" in text:
        text = _RULE.sub("\n", text)
    return (
        _SWITCH.sub(lambda match: "" if match[0] == match[0].upper() else match[0], text)
        if "__" in text
        else text
    )


def resolve_entities(text: str) -> str:
    """Replace character references by their characters, except those that MediaWiki does not know."""
    return _ENTITY.sub(_character, text) if "&" in text else text


def _character(match: re.Match[str]) -> str:
    decimal, hexadecimal, name = match.groups()
    if name:
        return html5.get(name + ";", match[0])
    code = int(decimal) if decimal else int(hexadecimal, 16)
    return chr(code) if is_valid(code) else match[0]


def is_valid(code: int) -> bool:
    """Return True for what XML 1.0 allows without controls, as MediaWiki does (Sanitizer::validateCodepoint)."""
    return (
        code in (0x09, 0x0A, 0x20)
        or 0x20 < code < 0x7F
        or 0xA0 <= code <= 0xD7FF
        or 0xE000 <= code <= 0xFFFD
        or 0x10000 <= code <= 0x10FFFF
    )


_REFERENCE = re.compile(rf"{STASH}([0-9]+){STASH}")


def restore(text: str, stash: list[str]) -> str:
    """Replace each mark of the stash by its literal text, with entities resolved."""
    return _REFERENCE.sub(lambda match: resolve_entities(stash[int(match[1])]), text)


_DROPPED = """
ref references gallery math chem ce timeline score source syntaxhighlight hiero graph imagemap mapframe maplink
inputbox categorytree templatedata templatestyles includeonly indicator style script section charinsert rss quiz
dynamicpagelist phonos listing ordertable
"""
_LITERAL = ("nowiki", "pre")

# The attributes stop at the next "<", so an unclosed tag is read only once.
_OPENING = re.compile(
    rf"<(?:!--|({'|'.join((*_DROPPED.split(), *_LITERAL))})(?![\w-])([^<>]*)>)", re.IGNORECASE
)
_CLOSING = {
    name: re.compile("</" + "".join(f"[{letter}{letter.upper()}]" for letter in name) + r"\s*>")
    for name in (*_DROPPED.split(), *_LITERAL)
}


def set_aside(text: str) -> tuple[str, list[str]]:
    """Return the text without comments and dropped extension tags, and the literal texts of its STASH marks."""
    stash: list[str] = []
    pieces: list[str] = []
    # Names without a further closing tag: the pass stays linear.
    unclosed: set[str] = set()
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
                content = text[end:content_end]
                stash.append(f"\n{content}\n" if name == "pre" else content)
            elif start and text[start - 1] in BEFORE_GONE:
                pieces.append(GONE)
        opening = _OPENING.search(text, position)
    if not position:
        return text, stash
    pieces.append(text[position:])
    return "".join(pieces), stash


def _content(text: str, name: str, opening: re.Match[str], unclosed: set[str]) -> tuple[int, int]:
    """Return the end of an extension tag's content and the start of the following text.

    An unclosed tag is empty.
    """
    end = opening.end()
    if opening[2].endswith("/") or name in unclosed:
        return end, end
    closing = _CLOSING[name].search(text, end)
    if closing is None:
        unclosed.add(name)
        return end, end
    return closing.start(), closing.end()


def _join_around_comment(pieces: list[str], text: str, position: int) -> None:
    """Remove the line of a comment that is alone on it, as MediaWiki does.

    Otherwise it would split a paragraph.
    """
    if pieces and pieces[-1].endswith("\n") and text.startswith("\n", position):
        pieces[-1] = pieces[-1][:-1]


_EDGES = (
    re.compile(r"\n(?:[ \t:*#;\x05]*\{\||[ \t\x05]*\|\})"),
    re.compile(r"<(?:table\b|/table\s*>)", re.IGNORECASE),
)
_RESIDUE = re.compile(r"\n[ \t:*#;\x05]*(?:\{\||\|)[^\n]*")


def drop_tables(text: str) -> str:
    """Remove tables at any depth. Of an unclosed table, only the lines in table markup are removed."""
    if "{|" in text or "<table" in text:
        text = _drop_closed(text)
    return _RESIDUE.sub("", text)


def _drop_closed(text: str) -> str:
    opened: list[int] = []
    done: list[tuple[int, int]] = []
    for edge in sorted((edge for edges in _EDGES for edge in edges.finditer(text)), key=re.Match.start):
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


_JUNK = " \t\xa0\u3000\u2009\u202f,;:،؛、，；：/|·•–—-=~" + GONE
# `re` searches for a pattern that begins with one literal character, or else a set, many times as fast as for
# others.
_BRACKETS = re.compile(
    r"[(（\[](?:(?<!\[)([^()（）\n\x05]*\x05[^()（）\n]*)[)）]|(?<=\[)([^\[\]\n\x05]*\x05[^\[\]\n]*)\])"
)
_BRACKETED_PHONETIC = re.compile(rf"[(（][^()（）\n{PHONETIC}]*{PHONETIC}[^()（）\n]*")
_PHONETIC = re.compile(rf"{PHONETIC}[^\n{PHONETIC}]*{PHONETIC}")
# Punctuation between something dropped and other punctuation, an opening bracket or the start of the line.
_ORPHAN_BEFORE = re.compile(r"[,;:،؛、，；：][ \xa0]*\x05[\x05 \xa0]*(?=[,;:.)!?،؛、，；：。）])")
_ORPHAN_AFTER = re.compile(r"([\n(（])[ \xa0]*\x05[\x05 \xa0]*[,;:،؛、，；：][ \xa0]*")
_SEPARATOR = re.compile(r"([;,；，、،؛:：])")
# A label whose pronunciation was dropped: "(German: ; born 1900)", "(pronounced )", "（発音：）".
_LABEL = re.compile(
    r"[^\d;,；，、،؛:：]{0,40}[:：][\s\x05]*\x05[\s\x05]*"
    r"|\s*(?<!\w)(?:pronounced|pronunciation|pronunciación|prononcé|Aussprache|phát âm|phiên âm|发音|發音|発音|读音|"
    r"讀音|вимова|вимовляється|произношение|МФА|উচ্চারণ|IPA|AFI|or|also)[\s:：\x05]*\x05[\s\x05]*",
    re.IGNORECASE,
)
_RUN = re.compile(r"\x05[\x05 \xa0]*")
_JUNK_OF_LINE = _JUNK + ".。*"
_CLOSERS = frozenset(",.;:!?)]}，。；：！？、）］」』】»”%\n")
_OPENERS = frozenset(" \n([{（［「『【\u3000")
_SPACES = re.compile(r"[ \xa0]{2,}|\t")


def tidy(text: str) -> str:
    """Return the clean lines, joined by single line breaks."""
    if PHONETIC in text:
        # Between an opening bracket and the next one, a transcription gives the pronunciation.
        text = _BRACKETED_PHONETIC.sub(lambda match: _PHONETIC.sub(GONE, match[0]), text).replace(
            PHONETIC, ""
        )
    lines = [line for raw in text.split("\n") if (line := (_fix_line(raw) if GONE in raw else raw).strip())]
    if HEADING in text:
        lines = _drop_empty_sections(lines)
    return "\n".join(lines)


def _fix_line(line: str) -> str:
    if not line.strip(_JUNK_OF_LINE):
        return ""
    if "  " in line or "\xa0" in line or "\t" in line:
        line = _SPACES.sub(" ", line)
    line = f"\n{line}\n"
    # Brackets in brackets.
    for _ in range(2):
        line, count = _BRACKETS.subn(_fix_bracket, line)
        if not count:
            break
    line = _ORPHAN_AFTER.sub(r"\1", _ORPHAN_BEFORE.sub("", line))
    line = line.replace(" " + GONE, GONE + " ").replace("\xa0" + GONE, GONE + " ")
    return _RUN.sub(_close_gap, line)


def _fix_bracket(match: re.Match[str]) -> str:
    inner = match[1] or match[2]
    kept: list[str] = []
    separator = ""
    pieces = _SEPARATOR.split(_LABEL.sub(GONE, inner))
    for number in range(0, len(pieces), 2):
        piece = pieces[number]
        if piece.strip(_JUNK):
            if kept:
                kept.append(separator)
            kept.append(piece)
            separator = ""
        elif GONE not in piece and not separator:
            kept.append("")
        if number + 1 < len(pieces) and not separator:
            separator = pieces[number + 1]
    content = "".join(kept).strip(" \t" + GONE)
    if not content:
        return GONE
    return f"{match[0][0]}{content}{match[0][-1]}"


def _close_gap(match: re.Match[str]) -> str:
    """Return one space if something between two words was dropped, but none next to punctuation."""
    left, right = match.string[match.start() - 1], match.string[match.end()]
    return (
        " " if len(match[0]) > match[0].count(GONE) and right not in _CLOSERS and left not in _OPENERS else ""
    )


def _drop_empty_sections(lines: list[str]) -> list[str]:
    kept: list[str] = []
    # Level of the highest title between here and the next text.
    highest = 0
    for line in reversed(lines):
        if line[0] != HEADING:
            highest = 7
            kept.append(line)
            continue
        level = int(line[1])
        title = line[2:].lstrip()
        if level < highest and title:
            kept.append(title)
        highest = min(highest, level)
    return kept[::-1]


# Wikis on which MediaWiki converts between scripts; elsewhere `-{` is ordinary text.
CONVERTED = frozenset(
    ("zh", "gan", "sr", "sh", "kk", "ku", "tg", "uz", "crh", "iu", "shi", "ban", "wuu", "hak")
)

_PREFERENCE = (
    *("zh-hans", "zh-cn", "zh", "zh-sg", "zh-my", "zh-hant", "zh-tw", "zh-hk", "zh-mo"),
    *("gan-hans", "gan", "sr-ec", "sr-el", "kk-cyrl", "kk"),
)
_INNERMOST = re.compile(r"-\{([^{}]*)\}-")
_FLAGS = re.compile(r"\s*([A-Za-z+-](?:\s*;\s*[A-Za-z+-])*|(?:zh|sr|gan|kk)[\w-]*(?:;[\w-]+)*)?\s*\|")
_VARIANT_RULE = re.compile(r"\s*([a-z]{2,3}(?:-[a-z]+)*)\s*:(.*)\s*", re.DOTALL)
_RULE_END = re.compile(r";(?=\s*(?:[a-z]{2,3}(?:-[a-z]+)*\s*:|$|[^;{}]{1,40}=>))")
_MAX_DEPTH = 4


def choose_variant(text: str) -> str:
    """Replace every conversion rule by what a reader of the chosen variant sees."""
    for _ in range(_MAX_DEPTH):
        text, count = _INNERMOST.subn(_shown, text)
        if not count:
            break
    return text


def _shown(match: re.Match[str]) -> str:
    content = match[1]
    flags = _FLAGS.match(content)
    if flags:
        names = (flags[1] or "").replace(" ", "").split(";")
        # Sets a rule or the title, shows nothing.
        if any(name in ("H", "T", "-") for name in names):
            return ""
        content = content[flags.end() :]
    if ":" not in content:
        return content
    choices: dict[str, str] = {}
    for part in _RULE_END.split(content):
        rule = _VARIANT_RULE.fullmatch(part)
        if rule and "=>" not in part:
            choices[rule[1]] = rule[2].strip()
    if not choices:
        return content
    return next((choices[name] for name in _PREFERENCE if choices.get(name)), next(iter(choices.values())))
