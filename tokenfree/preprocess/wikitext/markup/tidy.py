"""Last pass: no empty brackets or stray punctuation where something was dropped, no empty sections, tidy lines."""

import re

from tokenfree.preprocess.wikitext.markup.marks import GONE, HEADING, PHONETIC

_JUNK = " \t\xa0\u3000\u2009\u202f,;:،؛、，；：/|·•–—-=~" + GONE
_BRACKETS = re.compile(r"[(（]([^()（）\n\x05]*\x05[^()（）\n]*)[)）]|\[([^\[\]\n\x05]*\x05[^\[\]\n]*)\]")
_BRACKETED_PHONETIC = re.compile(rf"[(（][^()（）\n{PHONETIC}]*{PHONETIC}[^()（）\n]*")
_PHONETIC = re.compile(rf"{PHONETIC}[^\n{PHONETIC}]*{PHONETIC}")
# Punctuation between something dropped and other punctuation, an opening bracket or the start of the line.
_ORPHAN_BEFORE = re.compile(r"[,;:،؛、，；：][ \xa0]*\x05[\x05 \xa0]*(?=[,;:.)!?،؛、，；：。）])")
_ORPHAN_AFTER = re.compile(r"(^|[(（])[ \xa0]*\x05[\x05 \xa0]*[,;:،؛、，；：][ \xa0]*")
_SEPARATOR = re.compile(r"([;,；，、،؛:：])")
# A label of which only the dropped pronunciation is left: "(German: ; born 1900)", "(pronounced )", "（発音：）".
_LABEL = re.compile(
    r"[^\d;,；，、،؛:：]{0,40}[:：][\s\x05]*\x05[\s\x05]*"
    r"|\s*(?<!\w)(?:pronounced|pronunciation|pronunciación|prononcé|Aussprache|phát âm|phiên âm|发音|發音|発音|读音|"
    r"讀音|вимова|вимовляється|произношение|МФА|উচ্চারণ|IPA|AFI|or|also)[\s:：\x05]*\x05[\s\x05]*",
    re.IGNORECASE,
)
_RUN = re.compile(r"[ \xa0]*\x05[\x05 \xa0]*")
_JUNK_OF_LINE = _JUNK + ".。*"
_CLOSERS = frozenset(",.;:!?)]}，。；：！？、）］」』】»”%\n")
_OPENERS = frozenset(" \n([{（［「『【\u3000")
# A title of which nothing is left goes with its line.
_TITLE_MARK = re.compile(rf"{HEADING}[1-6]\s*")
_SPACES = re.compile(r"  +")


def tidy(text: str) -> str:
    """Clean lines joined by single line breaks."""
    if PHONETIC in text:
        text = _BRACKETED_PHONETIC.sub(_drop_phonetic, text).replace(PHONETIC, "")
    if "\xa0" in text:
        text = text.replace("\xa0\xa0", " ").replace(" \xa0", " ").replace("\xa0 ", " ")
    if "\t" in text:
        text = text.replace("\t", " ")
    if "  " in text:
        text = _SPACES.sub(" ", text)
    lines = [line for raw in text.split("\n") if (line := (_mend(raw) if GONE in raw else raw).strip())]
    text = "\n".join(lines)
    return _drop_empty_sections(text) if HEADING in text else text


def _drop_phonetic(match: re.Match[str]) -> str:
    """Transcriptions go from an opening bracket up to the next bracket: there they tell how the title is pronounced."""
    return _PHONETIC.sub(GONE, match[0])


def _mend(line: str) -> str:
    """A line in which something was dropped, without what that left behind."""
    if not line.strip(_JUNK_OF_LINE):
        return ""
    for _ in range(2):  # brackets in brackets
        line, count = _BRACKETS.subn(_mend_bracket, line)
        if not count:
            break
    line = _ORPHAN_AFTER.sub(r"\1", _ORPHAN_BEFORE.sub("", line))
    return _SPACES.sub(" ", _RUN.sub(_close_gap, line))


def _mend_bracket(match: re.Match[str]) -> str:
    """The content of a bracket without the pieces, between separators, of which nothing is left."""
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
    """One space where something between two words was dropped, none beside punctuation or where there was none."""
    text = match.string
    before = text[match.start() - 1] if match.start() else "\n"
    after = text[match.end()] if match.end() < len(text) else "\n"
    if after in _CLOSERS or before in _OPENERS:
        return ""
    return " " if match[0].strip(GONE) else ""


def _drop_empty_sections(text: str) -> str:
    """Removes titles of sections of which no text is left, from the deepest level up, then the marks of the others."""
    text += "\n"
    for level in range(6, 0, -1):
        mark = f"{HEADING}{level}"
        if mark in text:
            text = re.sub(rf"{mark}[^\n]*\n(?={HEADING}[1-{level}]|\Z)", "", text)
    return _TITLE_MARK.sub("", text).strip()
