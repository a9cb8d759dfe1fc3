"""Wikitext markup except templates and links: comments, tags, tables, inline marks, variants, tidying."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from html.entities import html5
from importlib.resources import files

HEADING = "\x04"  # at the start of a line, before the level digit of a section title
# Something was dropped here; the tidy pass looks only around these.
GONE = "\x05"
PHONETIC = "\x07"  # around a transcription: dropped from brackets, kept in running text

_CONTROLS = "".join(map(chr, (*range(9), 11, 12, *range(14, 32), 127)))
_CONTROL_RUN = re.compile(f"[{_CONTROLS}]+")

# A dropped template or reference leaves GONE only after one of these (or another GONE): elsewhere there is no
# residue.
BEFORE_GONE = frozenset(" \t\n\xa0\u3000([{（［「『【〔,;:/、，；：،؛–—-'" + GONE)


@cache
def wiki_words(kind: str) -> frozenset[str]:
    """Return the words of all languages of a kind, as `folded` gives them: switch, redirect, file or category."""
    lines = files("tokenfree.preprocess.wikitext").joinpath("words.txt").read_text("utf-8").splitlines()
    return frozenset(name for line in lines for of, _, name in [line.partition("\t")] if of == kind)


def folded(word: str) -> str:
    return unicodedata.normalize("NFC", word).casefold()


def strip_controls(text: str) -> str:
    """Remove control characters except tabs and line breaks. Most pages have none."""
    return _CONTROL_RUN.sub("", text) if any(control in text for control in _CONTROLS) else text


_TAG = re.compile(r"</?([A-Za-z][A-Za-z0-9]{0,14})(?=[\s/>])[^<>]*>")
_BREAKING = (
    "br p div li ul ol dl dd dt blockquote center h1 h2 h3 h4 h5 h6 hr tr table tbody caption poem pre"
)
_PLAIN = """
small big b i u s em strong sup sub span font code tt kbd samp var del ins strike abbr cite dfn bdi bdo q mark
ruby rb rp rt rtc wbr a td th thead time data noinclude onlyinclude includeonly nowiki ref
references section tvar translate
languages nobr label input img link meta html math gallery templatestyles score timeline source syntaxhighlight chem ce
"""
_TAG_TEXT: dict[str, str] = {**dict.fromkeys(_PLAIN.split(), ""), **dict.fromkeys(_BREAKING.split(), "\n")}

_TITLE = re.compile(r"\n=[^\n]*")
_LIST = re.compile(r"\n[*#:;][*#:; \t]*")
_GONE_BEFORE_MARK = re.compile(r"\n[ \t]*\x05[\x05 \t]*(?=[*#:;=|])")
_RULE = re.compile(r"\n-----*")
_SWITCH = re.compile(r"[_＿]{2}((?:[^\s_＿<>|=&;]|[_＿](?![_＿])){1,60})[_＿]{2}")
_LATIN = re.compile("[a-z]")
_QUOTES = re.compile("''+")
_ENTITY = re.compile(r"&(?:#0*([0-9]{1,7})|#[xX]0*([0-9A-Fa-f]{1,6})|([A-Za-z][A-Za-z0-9]{1,31}|רלמ|رلم));")
_HTML_TITLE = re.compile(r"<h([1-6])\b[^<>]*>(.*?)</h\1\s*>", re.IGNORECASE)


_EXPONENT = re.compile(
    r"<sup(?<=[0-9]<sup)\b[^<>]{0,100}>\s*((?:[+\u2212-]|&minus;)?[0-9]{1,20})\s*</sup\s*>"
)
_SUPERSCRIPTS = str.maketrans("0123456789+-\u2212", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")


def strip_tags(text: str) -> str:
    """Remove the tags of HTML elements and keep their content. Block tags and <br> become line breaks.

    A raised number after a digit becomes one of superscript digits: 10<sup>8</sup> is not 108.
    """
    if "<" in text and "<sup" in text:
        text = _EXPONENT.sub(lambda match: match[1].replace("&minus;", "-").translate(_SUPERSCRIPTS), text)
    return _TAG.sub(lambda match: _TAG_TEXT.get(match[1].lower(), match[0]), text) if "<" in text else text


def strip_quotes(text: str) -> str:
    """Remove the apostrophes of bold and italic, but not those of words: l'''Aida'' is l'Aida, as in MediaWiki."""
    if "''" not in text:
        return text
    if "'''" in text:
        # Without a bold mark, every mark is a mark.
        lines = text.split("\n")
        for number, line in enumerate(lines):
            if "'''" in line and (line.count("'''") % 2 or "''''''" in line):
                lines[number] = _without_quotes(line)
        text = "\n".join(lines)
    return _without_marks(text)


def _without_quotes(line: str) -> str:
    widths = [len(mark) for mark in _QUOTES.findall(line)]
    bold = sum(width > 2 for width in widths)
    italic = sum(width == 2 or width > 4 for width in widths)
    letter = _apostrophe(line) if bold % 2 and italic % 2 else -1
    parts = [line] if letter < 0 else [line[:letter], line[letter + 1 :]]
    return "'".join(map(_without_marks, parts))


def _without_marks(line: str) -> str:
    if "''''" not in line:
        return _QUOTES.sub("", line)
    return _QUOTES.sub(lambda mark: "'" * (1 if len(mark[0]) == 4 else max(0, len(mark[0]) - 5)), line)


def _apostrophe(line: str) -> int:
    """Return where the first apostrophe of a bold mark is a letter, on a line with unbalanced bold and italic."""
    candidates: dict[int, int] = {}
    for mark in _QUOTES.finditer(line):
        if len(mark[0]) in (3, 4):
            start = mark.end() - 3
            before = line[max(0, start - 2) : start]
            # After a word of a single letter, else of several, else after a space.
            rank = 2 if before[-1:] == " " else 0 if before[:1] == " " and len(before) == 2 else 1
            candidates.setdefault(rank, start)
            if not rank:
                break
    return candidates[min(candidates)] if candidates else -1


def mark_titles(text: str) -> str:
    """Replace equals signs of section titles by HEADING and the level.

    The text must begin with a line break.
    """
    if "\n" + GONE in text:
        text = _GONE_BEFORE_MARK.sub("\n", text)
    if "<" in text and ("<h" in text or "<H" in text):
        text = _HTML_TITLE.sub(rf"\n{HEADING}\1\2\n", text)
    return _TITLE.sub(_title, text)


def _title(match: re.Match[str]) -> str:
    line = match[0].strip(" \t\n\xa0" + GONE)
    if line[-1] != "=" or len(line) < 3:
        return match[0]
    title = line.strip("=")
    level = min(6, (len(line) - len(title)) // 2) or 1
    title = _TAG.sub(lambda tag: "" if tag[1].lower() in _TAG_TEXT else tag[0], title).strip()
    return f"\n{HEADING}{level}{title}\n"


def strip_line_marks(text: str) -> str:
    """Remove list marks, rules and behaviour switches. The text must begin with a line break."""
    text = _LIST.sub("\n", text)
    if "\n----" in text:
        text = _RULE.sub("\n", text)
    return _SWITCH.sub(_kept_switch, text) if "_" in text or "＿" in text else text


def _kept_switch(match: re.Match[str]) -> str:
    name = match[1]
    # Extensions have more: a name without small Latin letters is none of a program.
    is_switch = (len(name) > 2 and not _LATIN.search(name)) or folded(name) in wiki_words("switch")
    return "" if is_switch else match[0]


def resolve_entities(text: str) -> str:
    """Replace character references by their characters, except those that MediaWiki does not know."""
    return _ENTITY.sub(_character, text) if "&" in text else text


def _character(match: re.Match[str]) -> str:
    decimal, hexadecimal, name = match.groups()
    if name:
        return html5.get(name + ";") or (match[0] if name.isascii() else "\u200f")
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


_DROPPED = """
ref references gallery math chem ce timeline score source syntaxhighlight hiero graph imagemap mapframe maplink
inputbox categorytree templatedata templatestyles includeonly indicator style script section charinsert rss quiz
dynamicpagelist phonos listing ordertable pages pagelist pagequality googlemap youtube embedvideo randomimage poll
"""
LITERAL = ("nowiki", "pre")
_INCLUSION = ("noinclude", "includeonly")

# The attributes hold one "<" at most, so an unclosed tag is read only twice.
_OPENING = re.compile(
    rf"<(?:!--|({'|'.join((*_DROPPED.split(), *LITERAL, *_INCLUSION))})(?![\w-])([^<>]*(?:<[^<>!]*)?)>)",
    re.IGNORECASE,
)
_CLOSING = {
    name: re.compile("</" + "".join(f"[{letter}{letter.upper()}]" for letter in name) + r"\s*>")
    for name in (*_DROPPED.split(), *LITERAL, *_INCLUSION)
}
_ONLY = re.compile(r"<onlyinclude\s*>(.*?)(?:</onlyinclude\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_INLINE = re.compile(r"(?<![\w-])inline(?![\w-])", re.IGNORECASE)
_INCLUSION_TAG = re.compile(r"</?(?:noinclude|includeonly|onlyinclude)\s*/?>", re.IGNORECASE)
_MARKS = re.compile(r"&[#\w]{1,32};|[\[\]{}|=*#:;'<>_~!\n-]")
_NOWIKI = re.compile(r"<nowiki\s*>(.*?)</nowiki\s*>", re.IGNORECASE | re.DOTALL)


def escape(text: str) -> str:
    """Return text in which no character is markup: nowiki and pre show it as it is, with its entities."""
    return _MARKS.sub(lambda match: match[0] if len(match[0]) > 1 else f"&#{ord(match[0])};", text)


def literal(name: str, content: str) -> str:
    if name == "pre":
        content = _NOWIKI.sub(r"\1", content) if "</" in content else content
        return f"\n{escape(content)}\n"
    return escape(content.replace("\n", " ")) or GONE


def set_aside(text: str, *, transcluded: bool = False) -> str:
    """Return the text without comments and dropped extension tags, and with literal text escaped.

    What only an included template shows is dropped from a page, and the rest from one that is `transcluded`.
    """
    left_out = "noinclude" if transcluded else "includeonly"
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
            if name in _INCLUSION and name != left_out:
                content_end = position = end
            else:
                content_end, position = _content(text, name, opening, unclosed)
            content = text[end:content_end]
            if name in LITERAL or (name in ("syntaxhighlight", "source") and _INLINE.search(opening[2])):
                pieces.append(literal(name, content))
            elif name == "math" and len(content.strip()) == 1 and content.strip().isalpha():
                pieces.append(content.strip())
            elif name == left_out:
                position = (
                    len(text) if content_end == end == position and opening[2][-1:] != "/" else position
                )
            elif start and text[start - 1] in BEFORE_GONE and name not in _INCLUSION:
                pieces.append(GONE)
        opening = _OPENING.search(text, position)
    if position:
        pieces.append(text[position:])
        text = "".join(pieces)
    return _INCLUSION_TAG.sub("", text) if "include" in text or "INCLUDE" in text else text


def included_part(text: str) -> str:
    """Return what <onlyinclude> encloses in a template, or all of it."""
    return "".join(_ONLY.findall(text)) if "<onlyinclude" in text.lower() else text


def _content(text: str, name: str, opening: re.Match[str], unclosed: set[str]) -> tuple[int, int]:
    """Return the end of an extension tag's content and the start of the following text.

    An unclosed tag is empty.
    """
    end = opening.end()
    if text[end - 2] == "/" or name in unclosed:
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
_TABLE_MARKS = ("{{", "{|", "\n|-", "\n|}", "<table", "<TABLE")
_RESIDUE = re.compile(r"\n[ \t:*#;\x05]*(?:\{\||\|)[^\n]*")
_OPEN_RESIDUE = re.compile(r"\n[ \t:*#;\x05]*(?:\{\||\||!)[^\n]*")  # of a table without an end


def drop_tables(text: str) -> str:
    """Remove tables at any depth. Of an unclosed table, only the lines in table markup are removed."""
    # Without any of these marks, a line that begins with a bar is text.
    if not any(mark in text for mark in _TABLE_MARKS if mark[0] in text):
        return text
    text = drop_closed_tables(text)
    return (_OPEN_RESIDUE if "\n{|" in text else _RESIDUE).sub("", text)


def drop_closed_tables(text: str) -> str:
    pieces: list[str] = []
    position = 0
    for start, end in reversed(table_spans(text)):
        pieces += (text[position:start], "\n" + GONE)
        position = end
    return "".join((*pieces, text[position:])) if pieces else text


def table_spans(text: str, calls: Sequence[tuple[int, int]] = ()) -> list[tuple[int, int]]:
    """Return where the outermost closed tables are, the last one first. Marks inside `calls` are none of tables."""
    if "{|" not in text and "<table" not in text:
        return []
    starts = [start for start, _ in calls]
    opened: list[int] = []
    done: list[tuple[int, int]] = []
    for edge in sorted((edge for edges in _EDGES for edge in edges.finditer(text)), key=re.Match.start):
        before = bisect_right(starts, edge.start())
        if (before and calls[before - 1][1] > edge.start()) or edge.end() in starts[before : before + 1]:
            continue
        if edge[0][-1] == "|" or edge[0][1] in "tT":
            opened.append(edge.start())
        elif opened:
            start = opened.pop()
            while done and done[-1][0] > start:
                done.pop()
            done.append((start, edge.end()))
    return done[::-1]


# What TextExtracts, the extension that gives the plain text of articles, leaves out by default. A `div` is
# kept if it only sets text apart; one with a name, a role or an appearance is a box or a note.
_HIDDEN_TAGS = frozenset(("table", "script", "input", "style"))
_CLASSES = """
mw-editsection reference references error nomobile noprint noexcerpt sortkey metadata navbox infobox hatnote
"""
_HIDDEN_CLASSES = frozenset(_CLASSES.split())
_ATTRIBUTE = re.compile(r"([a-z-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))", re.IGNORECASE)
_BOX_STYLE = re.compile(
    r"float\s*:\s*(?!none)|border(?!-)|background|display\s*:\s*none|position\s*:\s*(?:abs|fix)|clear\s*:"
)
_ELEMENT = re.compile(r"<(/?)([a-z][a-z0-9]*)\b([^<>]*?)(/?)>", re.IGNORECASE)


def drop_hidden(text: str) -> str:
    """Return what a template expands to without the elements that are no running text."""
    text = set_aside(text)
    tags = list(_ELEMENT.finditer(text))
    pieces: list[str] = []
    position = index = 0
    while index < len(tags):
        tag = tags[index]
        index += 1
        if tag[1] or tag[4] or not _is_hidden(tag[2].lower(), tag[3]):
            continue
        depth, name = 1, tag[2].lower()
        for later in range(index, len(tags)):
            other = tags[later]
            if other[2].lower() == name and not other[4]:
                depth += -1 if other[1] else 1
                if not depth:
                    before = text[position : tag.start()]
                    pieces += (before, GONE if before[-1:] in BEFORE_GONE or not before else "")
                    position, index = other.end(), later + 1
                    break
    return "".join((*pieces, text[position:]))


def _is_hidden(name: str, attributes: str) -> bool:
    if name in _HIDDEN_TAGS:
        return True
    if "=" not in attributes:
        return False
    values = {
        match[1].lower(): match[2] or match[3] or match[4] or "" for match in _ATTRIBUTE.finditer(attributes)
    }
    classes, style = values.get("class", "").lower(), values.get("style", "").lower()
    if not _HIDDEN_CLASSES.isdisjoint(classes.split()):
        return True
    if name == "ul" and "gallery" in classes:
        return True
    if "none" in style and re.search(r"display\s*:\s*none", style):
        return True
    return name == "div" and ("id" in values or "role" in values or _BOX_STYLE.search(style) is not None)


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
    return f"{match[0][0]}{content}{match[0][-1]}" if content else GONE


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
    choices: dict[str, str] = {}
    for part in _RULE_END.split(content):
        rule = _VARIANT_RULE.fullmatch(part)
        if rule and "=>" not in part:
            choices[rule[1]] = rule[2].strip()
    first = next(iter(choices.values()), content)
    return next((choices[name] for name in _PREFERENCE if choices.get(name)), first)
