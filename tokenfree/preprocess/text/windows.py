"""Cutting documents into windows: between sentences, else between words, else between characters."""

import unicodedata

import numpy as np

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
