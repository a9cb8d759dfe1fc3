"""Which script a text is in."""

import sys
import unicodedata

import numpy as np
import pytest
from fontTools import unicodedata as unicode

from tokenfree.preprocess.text.characters import SAMPLING, count_scripts, scripts_of


@pytest.mark.parametrize(
    ("letter", "script"),
    [("a", "Latin"), ("é", "Latin"), ("ж", "Cyrillic"), ("語", "Han"), ("ひ", "Hiragana"), ("カ", "Katakana"),
     ("한", "Hangul"), ("ع", "Arabic"), ("ש", "Hebrew"), ("ক", "Bengali"), ("ก", "Thai"), ("λ", "Greek"),
     ("አ", "Ethiopic"), ("𠀀", "Han"), ("ა", "Georgian")],
)  # fmt: skip
def test_letters_count_for_their_script(letter: str, script: str) -> None:
    assert count_scripts([letter * SAMPLING * 3]) == {script: 3}


@pytest.mark.parametrize("mark", [" ", "7", "。", "…", "🦆", "\n", "€"])
def test_marks_and_symbols_belong_to_no_script(mark: str) -> None:
    assert count_scripts([mark * SAMPLING]) == {}
    assert count_scripts([""]) == {}


def test_table_is_that_of_unicode() -> None:
    """fontTools has all of it."""
    codepoints = np.arange(0, 0x110000, 7)
    expected = [
        unicode.script_name(unicode.script(chr(point))).replace("_", " ") for point in codepoints.tolist()
    ]
    shared = {"Common", "Inherited", "Unknown"}
    assert scripts_of(codepoints).tolist() == ["" if name in shared else name for name in expected]


def test_scripts_of_any_shape() -> None:
    codepoints = np.array([[ord("a"), ord("7")], [ord("ж"), 0x10FFFF]])
    assert scripts_of(codepoints).tolist() == [["Latin", ""], ["Cyrillic", ""]]


# Of characters with such names, by the names that Python knows; Unicode's blocks, which hold several scripts,
# say more.
NAMED = {
    "LATIN SMALL LETTER ": "Latin", "CYRILLIC SMALL LETTER ": "Cyrillic", "GREEK SMALL LETTER ": "Greek",
    "COPTIC SMALL LETTER ": "Coptic", "CJK UNIFIED IDEOGRAPH-": "Han", "HANGUL SYLLABLE ": "Hangul",
    "HIRAGANA LETTER ": "Hiragana", "HENTAIGANA LETTER ": "Hiragana", "HALFWIDTH KATAKANA LETTER": "Katakana",
    "ARABIC LETTER ": "Arabic", "HEBREW LETTER ": "Hebrew", "ORIYA LETTER ": "Oriya",
    "ETHIOPIC SYLLABLE ": "Ethiopic", "CANADIAN SYLLABICS ": "Canadian Aboriginal", "CHEROKEE ": "Cherokee",
    "CUNEIFORM SIGN ": "Cuneiform", "VAI SYLLABLE ": "Vai", "ADLAM SMALL": "Adlam",
    "OLD HUNGARIAN SMALL ": "Old Hungarian", "NKO LETTER ": "Nko", "BALINESE LETTER ": "Balinese",
}  # fmt: skip


@pytest.mark.parametrize(("name", "script"), NAMED.items())
def test_all_letters_of_a_script(name: str, script: str) -> None:
    letters = [
        codepoint
        for codepoint in range(sys.maxunicode)
        if (char := chr(codepoint)).isalpha() and unicodedata.name(char, "").startswith(name)
    ]
    assert len(letters) >= 20
    assert set(scripts_of(np.array(letters)).tolist()) == {script}
    assert count_scripts(chr(letter) * SAMPLING for letter in letters) == {script: len(letters)}


def test_no_script_is_counted_as_another() -> None:
    letters = np.array([codepoint for codepoint in range(sys.maxunicode) if chr(codepoint).isalpha()])
    scripts = set(scripts_of(letters).tolist())
    assert "other" not in scripts
    assert len(scripts) > 150
