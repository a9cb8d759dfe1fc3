"""Sentence boundaries by rules for any language, and documents cut into windows at them.

A wrong boundary costs little and a missed one less, so that doubtful cases (initials, abbreviations, ordinals) are
not boundaries.
"""

from __future__ import annotations

import re
import unicodedata

import numpy as np

# These end a sentence only before white space and something that can start one: Latin, Greek, Cyrillic, ...
_WEAK = ".!?…‽⁇⁈⁉‼"
# These end a sentence whatever follows (Sentence_Terminal=STerm of the Unicode Character Database, less the above):
# Armenian, Arabic, Syriac, Devanagari and its neighbours, Burmese, Ethiopic, Khmer, Mongolian, ..., Chinese, Japanese.
_STRONG = ("։؝؞؟۔܀܁܂߹࠷࠹࠽࠾।॥၊။።፧፨᙮᜵᜶។៕᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᰻᰼᱾᱿。꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫！？｡").replace(
    "၊", ""
)  # the Burmese little section is a comma
_CLOSERS = "\"'”’»›)\\]}」』）】》〉〕〗〙〛］｝｣"
_OPENERS = "\"'“‘«‹„‚([{「『（【《〈¿¡–—-"

_OPENING = rf"(?:[{re.escape(_OPENERS)}]\s?){{0,3}}"
# Matches start at the head of a run of marks only: from its middle too, a long run would cost quadratic time. One looks
# back behind the first mark rather than before it, since `re` scans for a set three times as fast as for an assertion.
_WEAK_END = re.compile(rf"[{_WEAK}](?<![{_WEAK}]{{2}})[{_WEAK}]*[{_CLOSERS}]*(\s+){_OPENING}(?=\w)")
_STRONG_END = re.compile(rf"[{_STRONG}][{_WEAK}{_STRONG}]*([{_CLOSERS}]*)(\s*)")
_LINE_END = re.compile(r"\n\s*")
_HIRAGANA = range(0x3041, 0x30A0)
_MAX_ABBREVIATION = 16  # characters looked at before a full stop

# Abbreviations that are usually followed by a capital: titles and the like. Those before numbers need no list, since
# a number does not start a sentence after a short word.
_TITLES = (
    "mr mrs ms mx dr drs prof rev gen col capt cpt lt sgt cmdr cdr maj adm gov sen rep pres supt st ste sr sra "
    "srta mt ft vs cf ca ed eds viz messrs phil univ assn dept dist "
    "bzw bd bde hrsg vgl geb gest dipl ing sog hl kath nr str abb "
    "mme mlle mgr env dra dña dn ud uds núm pág págs avda sigg dott avv arch geom "
    "dhr mevr mej bijv ds mw im ul św zob inż hab tzn tzw np ks bp abp tzv mudr judr paeddr "
    "св им ул пр пл гр проф акад доц инж ген полк тов напр см ср рис табл изд просп вул ім див рр "
    "tp ths ts gs pgs bs doç yrd müh κα δρ αγ"
)
_ABBREVIATIONS = frozenset(_TITLES.split())


def sentence_starts(text: str) -> np.ndarray:
    """Codepoint offsets of the sentences of `text`, uint32 [sentences], increasing from 0; none for an empty text.

    A sentence starts at every line with text; behind a full stop, exclamation or question mark and closing quotes,
    where white space and a capital or a letter without case follow (with opening quotes or a dash between); and behind
    the terminal marks of other scripts, with or without white space. Spaces alone never end one (Thai, Lao).
    """
    starts = {match.end() for match in _LINE_END.finditer(text)}
    starts.update(match.end() for match in _STRONG_END.finditer(text) if not _is_quotation(text, match))
    starts.update(match.end(1) for match in _WEAK_END.finditer(text) if _is_boundary(text, match))
    first = len(text) - len(text.lstrip())
    return np.array([0, *(start for start in sorted(starts) if first < start < len(text))][: len(text)], np.uint32)


def _is_quotation(text: str, match: re.Match[str]) -> bool:
    """Whether a Japanese sentence goes on behind what it quotes: the particle in 「...。」と言った is Hiragana."""
    follower = text[match.end() : match.end() + 1]
    return bool(match[1] and not match[2] and follower) and ord(follower) in _HIRAGANA


def _is_boundary(text: str, match: re.Match[str]) -> bool:
    follower = text[match.end()]
    if follower.islower() or follower == "_":
        return False
    start, space = match.span(0)[0], match.start(1)
    if space != start + 1 or text[start] != ".":  # only a lone full stop is ever anything but a terminal
        return True
    word = _word_before(text, start)
    if not follower.isalpha():
        return _is_long_word(word)
    return not _is_abbreviation(word)


def _word_before(text: str, end: int) -> str:
    """The word that ends at `end`, with full stops inside it, without opening marks: "U.S" before "U.S. Army"."""
    words = text[max(0, end - _MAX_ABBREVIATION) : end].split()
    if not words or text[end - 1].isspace():
        return ""
    return words[-1].lstrip(_OPENERS)


def _is_long_word(word: str) -> bool:
    return len(word) >= 5 and word.islower() and word.isalpha() and word not in _ABBREVIATIONS


def _is_abbreviation(word: str) -> bool:
    last = word.rpartition(".")[2]
    if last.isdecimal():  # an ordinal in German, Finnish, Turkish, ...; a year or a fraction ends a sentence
        return len(last) <= 2 and "." not in word
    if "." in word and len(last) <= 2:  # e.g., U.S., Ph.D., т.д., พ.ศ.
        return True
    if len(last) == 1:  # an initial; one letter without case is a word in Korean and others
        return last.isupper() or last.islower()
    return last.casefold() in _ABBREVIATIONS


_LONGEST_CLUSTER = 64  # characters searched backwards for a cut that leaves marks and joiners with their base
_JOINERS = "\u200c\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)


def cut(text: str, sentence_starts: np.ndarray, max_characters: int) -> list[tuple[int, int]]:
    """Codepoint spans of the windows of `text`, greedily filled from the left, each of at most `max_characters`.

    A window ends before the last sentence start (from `sentence_starts`, integers [sentences], increasing codepoint
    offsets) that lets it fit; a sentence that is too long alone is cut at its last white space that fits, and a word
    that is too long alone between characters, if possible not before a combining mark, a joiner or a skin tone. No
    window starts or ends with white space, and all of the text but white space is in some window.
    """
    windows = []
    start = _skip_space(text, 0, len(text))
    while start < len(text):
        end = _window_end(text, start, sentence_starts, max_characters)
        windows.append((start, end))
        start = _skip_space(text, end, len(text))
    return windows


def _window_end(text: str, start: int, sentence_starts: np.ndarray, max_characters: int) -> int:
    limit = start + max_characters
    # White space between windows is dropped, so that the next one may start behind the limit.
    latest = _skip_space(text, limit, len(text))
    if latest >= len(text):
        return start + len(text[start:limit].rstrip())
    index = int(np.searchsorted(sentence_starts, latest, side="right")) - 1
    if index >= 0 and sentence_starts[index] > start:
        return start + len(text[start : min(limit, int(sentence_starts[index]))].rstrip())
    if text[limit].isspace() or text[limit - 1].isspace():
        return start + len(text[start:limit].rstrip())
    head = text[start:limit].rsplit(maxsplit=1)[0]
    return start + len(head) if len(head) < max_characters else _cluster_end(text, start, limit)


def _skip_space(text: str, start: int, end: int) -> int:
    while start < end and text[start].isspace():
        start += 1
    return start


def _cluster_end(text: str, start: int, limit: int) -> int:
    """The last position up to `limit` where a character that is seen as one is not cut; `limit` where none is near."""
    for end in range(limit, max(start, limit - _LONGEST_CLUSTER), -1):
        if not _joins_previous(text[end]) and text[end - 1] not in _JOINERS:
            return end
    return limit


def _joins_previous(character: str) -> bool:
    return unicodedata.category(character)[0] == "M" or character in _JOINERS or ord(character) in _SKIN_TONES
