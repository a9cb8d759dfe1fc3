"""Recognize old encodings of texts: the escape encodings of Japanese and Chinese, and single bytes of Latin script.

Wrong letters cost more than a missing text. An encoding counts only if nearly all letters beyond ASCII are those of
one language, because most mistakes show: Polish in Windows-1250 is no language in Windows-1252.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

# Letters beyond ASCII of each language that Windows-1252 holds, and of others.
_WESTERN_LETTERS = """
àâæçèéêëîïôœùûüÿ äöüß áéíñóúü àáâãçéêíóôõúü àèéìíîòóùú áèéêëïíóöúü åäöé åæøéóòôèêâ áðéíóúýþæö áíóúýðæø äõöüšž
àçèéíïòóúü ëç áàéèíìóòúù
"""
_EASTERN_LETTERS = """
ąćęłńóśźż áčďéěíňóřšťúůýž áäčďéíĺľňóôŕšťúýž áéíóöőúüű ăâîşţ ăâîșț čćđšž čšž ąčęėįšųūž āčēģīķļņšūž çğıöşüâîû
ĉĝĥĵŝŭ ċġħżàèìòù
"""
_WESTERN = _WESTERN_LETTERS.split()
_EASTERN = _EASTERN_LETTERS.split()
# Letters of foreign words and names, which are frequent in some books.
_FOREIGN = frozenset("éèêàáçñíóöäü")
_MARKS = frozenset("“”‘’„‚«»‹›–—…•·§°©®™£€¿¡×½¼¾²³¹ªº¶\xa0\xad†")
_IN_WORD = re.compile(r"(?<=[a-z])([^\x00-\x7f’‘·–—…\xad])(?=[a-zªº¹²³¼½¾»¿À-ɏ])")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_CODE_PAGES = """
cp1250 iso8859_2 cp1254 iso8859_3 cp1257 iso8859_4 iso8859_10 iso8859_13 iso8859_16 mac_roman mac_latin2
mac_croatian mac_turkish cp437 cp850 cp852 cp775 cp857
"""
SAMPLE_CHARACTERS = 2_000_000
MIN_LETTERS = 30  # beyond ASCII, for all encodings except Windows-1252

_ESCAPES = re.compile(rb"\x1b\$[@AB()]|\x1b\.[AF]")
_ESCAPE_ENCODINGS = (
    "iso2022_kr",
    "iso2022_jp",
    "iso2022_jp_2",
    "iso2022_jp_2004",
    "iso2022_jp_3",
    "iso2022_jp_ext",
)
_HZ = re.compile(rb"~\{(?:[\x21-\x7d][\x21-\x7e])+~\}")


def escaped_text(data: bytes) -> str | None:
    """Return the text of seven-bit bytes in ISO-2022 or HZ, or None if they are not in these."""
    names = _ESCAPE_ENCODINGS if _ESCAPES.search(data) else ("hz",) if _HZ.search(data) else ()
    return next(_decoded(data, names), None)


def latin_text(data: bytes) -> str | None:
    """Return the text of bytes in Latin script, or None if no encoding or several give words of a language."""
    for text in _decoded(data, ["cp1252"]):
        sample = text[:SAMPLE_CHARACTERS]
        # An English book has letters beyond ASCII in words of many languages, a German one in French words.
        few = len(_BEYOND_ASCII.findall(sample)) < len(sample) / 200
        alphabets = ["".join(_WESTERN)] if few else _WESTERN
        if _strangeness(text, alphabets, _FOREIGN) <= 0.03:
            return text
    texts = {
        text
        for text in _decoded(data, _CODE_PAGES.split())
        if len(_BEYOND_ASCII.findall(text[:SAMPLE_CHARACTERS])) >= MIN_LETTERS
        and _strangeness(text, [*_WESTERN, *_EASTERN], frozenset()) <= 0.01
    }
    return texts.pop() if len(texts) == 1 else None


def _decoded(data: bytes, encodings: Sequence[str]) -> Iterator[str]:
    for name in encodings:
        try:
            yield data.decode(name)
        except UnicodeDecodeError:
            continue


def _strangeness(text: str, alphabets: Sequence[str], foreign: frozenset[str]) -> float:
    """Return the share of characters beyond ASCII that do not belong to the language that fits best."""
    text = text[:SAMPLE_CHARACTERS]
    counts = Counter(_BEYOND_ASCII.findall(text.lower()))
    # Capitals and symbols inside words are letters of another encoding.
    in_word = sum(not mark.isalpha() or mark.isupper() or mark in _MARKS for mark in _IN_WORD.findall(text))
    letters = {letter: number for letter, number in counts.items() if letter not in _MARKS}
    odd_letters = min(
        sum(
            number * (0.25 if letter in foreign else 1)
            for letter, number in letters.items()
            if letter not in alphabet
        )
        for alphabet in alphabets
    )
    # One odd letter is a misprint.
    return (odd_letters + in_word) / max(40, counts.total())
