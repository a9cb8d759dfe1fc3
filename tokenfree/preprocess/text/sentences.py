"""Find sentence boundaries by rules for any language, and cut documents into windows at them.

Doubtful cases (initials, abbreviations, ordinals) are not boundaries, because a missed one costs less than a
wrong one.
"""

import bisect
import re
import unicodedata

import numpy as np

# These end a sentence only before white space and a character that can start one: Latin, Greek, Cyrillic, ...
_WEAK = ".!?…‽⁇⁈⁉‼"
# These end a sentence whatever follows (Sentence_Terminal=STerm of the Unicode Character Database, less the
# above): Armenian, Arabic, Syriac, Devanagari and its neighbours, Burmese, Ethiopic, Khmer, Mongolian, ...,
# Chinese, Japanese. The Burmese little section is a comma, and not among them.
_STRONG = "։؝؞؟۔܀܁܂߹࠷࠹࠽࠾।॥။።፧፨᙮᜵᜶។៕᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᰻᰼᱾᱿。꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫！？｡"
_CLOSERS = "\"'”’»›)\\]}」』）】》〉〕〗〙〛］｝｣"
_OPENERS = "\"'“‘«‹„‚([{「『（【《〈¿¡–—-"

_OPENING = rf"(?:[{re.escape(_OPENERS)}]\s?){{0,3}}"
# Weak matches start only at the first mark of a run, because a long run would otherwise take quadratic time.
# The lookbehinds follow the first mark, because `re` scans for a set three times as fast as for an assertion.
_STRONG_END = rf"(?<=[{_STRONG}])[{_WEAK}{_STRONG}]*(?P<closers>[{_CLOSERS}]*)(?P<space>\s*)"
_WEAK_END = rf"(?<![{_WEAK}]{{2}})[{_WEAK}]*[{_CLOSERS}]*(?P<gap>[^\S\n]+){_OPENING}(?=\w)"
_SENTENCE_END = re.compile(rf"[{_WEAK}{_STRONG}](?:{_STRONG_END}|{_WEAK_END})")
_LINE_END = re.compile(r"\n\s*")
_HIRAGANA = range(0x3041, 0x30A0)
_MAX_ABBREVIATION = 16  # characters examined before a full stop

# Abbreviations that are usually followed by a capital: titles and the like. Those before numbers need no
# list, since a number does not start a sentence after a short word.
_TITLES = (
    "mr mrs ms mx dr drs prof rev gen col capt cpt lt sgt cmdr cdr maj adm gov sen rep pres supt st ste sr sra "
    "srta mt ft vs cf ca ed eds viz messrs phil univ assn dept dist "
    "bzw bd bde hrsg vgl geb gest dipl ing sog hl kath nr str abb "
    "mme mlle mgr env dra dña dn ud uds núm pág págs avda sigg dott avv arch geom "
    "dhr mevr mej bijv ds mw im ul św zob inż hab tzn tzw np ks bp abp tzv mudr judr paeddr "
    "св им ул пр пл гр проф акад доц инж ген полк тов напр см ср рис табл изд просп вул ім див рр "
    "tp ths ts gs pgs bs doç yrd müh κα δρ αγ "
    "pvz žr plg vok piem npr esim örn bv bspw ggf inkl resp pow woj gm godz łac niem "
    "डॉ डा श्री प्रो पं स्व ডা ড মো திரு டாக்டர்"
)
_ABBREVIATIONS = frozenset(_TITLES.split())
_TAIL = 5  # characters: words with more at their end are abbreviations only if they end in one of these
_ABBREVIATED_TAILS = frozenset(word[-_TAIL:] for word in _ABBREVIATIONS if len(word) >= _TAIL)
# These are as often followed by a capital as they end a sentence, of which the next word tells.
_DOUBTFUL = frozenset(
    ("inc", "ltd", "co", "corp", "llc", "plc", "bros", "jr", "esq", "al", "pt", "cv", "tbk", "jl", "ok")
)
_STARTERS = """
a an the this that these those it its he she they we you i his her their our my your in on at after before during
when while since as if for from by with but and however although though there here then now one some many most all
both each other another no not so what who where why how is are was were do does did has have had will would can
"""
_SENTENCE_STARTERS = frozenset(_STARTERS.split())
_FIRST_WORD = re.compile(r"\w+")


def sentence_starts(text: str) -> np.ndarray:
    """Return codepoint offsets of the sentences of `text`, uint32 [sentences], increasing from 0.

    A sentence starts at every line with text. It also starts after a full stop, exclamation or question mark
    if white space and a capital or a letter without case follow, and after the terminal marks of other
    scripts. Spaces alone never end a sentence (Thai, Lao).
    """
    starts = {match.end() for match in _LINE_END.finditer(text)}
    for match in _SENTENCE_END.finditer(text):
        gap = match.start("gap")
        if gap < 0:
            if not _is_quotation(text, match) and not _is_inside_quotation(text, match.end()):
                starts.add(match.end())
        elif _is_boundary(text, match.start(), gap, match.end()):
            starts.add(match.end("gap"))
    first = len(text) - len(text.lstrip())
    return np.array(
        [0, *(start for start in sorted(starts) if first < start < len(text))][: len(text)], np.uint32
    )


def _is_quotation(text: str, match: re.Match[str]) -> bool:
    """Return True if a sentence continues after a quotation: in 「...。」と言った and in “……。”他说。"""
    follower = text[match.end() : match.end() + 1]
    if not match["closers"] or match["space"] or not follower:
        return False
    return ord(follower) in _HIRAGANA or _SPEECH.match(text, match.end()) is not None


# A short clause with a Chinese verb of speech.
_SPEECH = re.compile(r"[^\W\d_a-zA-Z]{0,7}?[说說道问問答喊叫嚷]")
_QUOTATION_END = re.compile(r"[^「」『』\n]*[」』]")
_MAX_QUOTATION = 200  # characters on each side of a boundary that are searched for the marks of a quotation


def _is_inside_quotation(text: str, end: int) -> bool:
    """Return True in a Japanese quotation inside a sentence, as after はい in 彼は「はい。そうです。」と言った."""
    before = text[max(0, end - _MAX_QUOTATION) : end]
    opening = max(before.rfind("「"), before.rfind("『"))
    if opening < 1 or not before[opening - 1].isalpha() or any(mark in before[opening:] for mark in "」』\n"):
        return False
    return _QUOTATION_END.match(text, end, end + _MAX_QUOTATION) is not None


def _is_boundary(text: str, start: int, space: int, end: int) -> bool:
    """Return True if marks from `start` to `space` end a sentence. The next one would begin at `end`."""
    follower = text[end]
    if follower.islower() or follower == "_":
        return False
    # Only a single full stop can be something else than a terminal.
    if space != start + 1 or text[start] != ".":
        return True
    # Most sentences end in a long word.
    tail = text[max(0, start - _TAIL) : start]
    is_long = len(tail) == _TAIL and tail.isalpha() and tail.islower()
    if is_long and follower.isalpha() and tail.casefold()[-_TAIL:] not in _ABBREVIATED_TAILS:
        return True
    word = _word_before(text, start)
    if not follower.isalpha():
        return len(word) >= 5 and word.islower() and word.isalpha() and word not in _ABBREVIATIONS
    if word.casefold() in _DOUBTFUL or ("." in word and word.isupper()):
        first_word = _FIRST_WORD.match(text, end)
        return first_word is not None and first_word[0].casefold() in _SENTENCE_STARTERS
    return not _is_abbreviation(word)


def _word_before(text: str, end: int) -> str:
    """Return the word that ends at `end`, including full stops, without opening marks, such as "U.S" of "U.S. Army"."""
    words = text[max(0, end - _MAX_ABBREVIATION) : end].split()
    return "" if not words or text[end - 1].isspace() else words[-1].lstrip(_OPENERS)


def _is_abbreviation(word: str) -> bool:
    last = word.rpartition(".")[2]
    # An ordinal in German, Finnish, Turkish, ...; a year or a fraction ends a sentence.
    if last.isdecimal():
        return len(last) <= 2 and "." not in word
    # e.g., U.S., Ph.D., т.д., พ.ศ.
    if "." in word and len(last) <= 2:
        return True
    # An initial; one letter without case is a word in Korean and others, but not in Arabic.
    if len(last) == 1:
        return last.isupper() or last.islower() or "\u0620" <= last <= "\u064a"
    return last.casefold() in _ABBREVIATIONS


# Characters searched backwards for a cut that keeps marks and joiners with their base.
_LONGEST_CLUSTER = 64
_JOINERS = "\u200c\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)


def cut(text: str, sentence_starts: np.ndarray, max_characters: int) -> list[tuple[int, int]]:
    """Return codepoint spans of the windows of `text`, filled greedily from the left, of at most `max_characters` each.

    A window ends before the last sentence start that fits. A sentence that is too long is cut at the last
    white space that fits, and a word that is too long between characters, if possible not inside a grapheme.
    White space between windows is dropped.
    """
    windows = []
    starts = sentence_starts.tolist()
    start = _skip_space(text, 0)
    while start < len(text):
        end = _window_end(text, start, starts, max_characters)
        windows.append((start, end))
        start = _skip_space(text, end)
    return windows


def _window_end(text: str, start: int, sentence_starts: list[int], max_characters: int) -> int:
    limit = start + max_characters
    # White space between windows is dropped, so the next window may start after the limit.
    latest = _skip_space(text, limit)
    if latest >= len(text):
        return start + len(text[start:limit].rstrip())
    index = bisect.bisect_right(sentence_starts, latest) - 1
    if index >= 0 and sentence_starts[index] > start:
        return start + len(text[start : min(limit, sentence_starts[index])].rstrip())
    if text[limit].isspace() or text[limit - 1].isspace():
        return start + len(text[start:limit].rstrip())
    head = text[start:limit].rsplit(maxsplit=1)[0]
    return start + len(head) if len(head) < max_characters else _cluster_end(text, start, limit)


def _skip_space(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _cluster_end(text: str, start: int, limit: int) -> int:
    ends = range(limit, max(start, limit - _LONGEST_CLUSTER), -1)
    return next(
        (end for end in ends if not _joins_previous(text[end]) and text[end - 1] not in _JOINERS), limit
    )


def _joins_previous(character: str) -> bool:
    return unicodedata.category(character)[0] == "M" or character in _JOINERS or ord(character) in _SKIN_TONES
