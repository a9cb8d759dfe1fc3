"""Which script a text is in."""

import numpy as np
import pytest

from tokenfree.preprocess.text.scripts import SAMPLING, count_scripts, scripts_of


@pytest.mark.parametrize(
    ("letter", "script"),
    [("a", "Latin"), ("é", "Latin"), ("ж", "Cyrillic"), ("語", "Han"), ("ひ", "Hiragana"), ("カ", "Katakana"),
     ("한", "Hangul"), ("ع", "Arabic"), ("ש", "Hebrew"), ("ক", "Bengali"), ("ก", "Thai"), ("λ", "Greek"),
     ("አ", "Ethiopic"), ("𠀀", "Han"), ("ა", "Georgian")],
)  # fmt: skip
def test_letters_count_for_their_script(letter: str, script: str) -> None:
    assert count_scripts(letter * SAMPLING * 3) == {script: 3}


@pytest.mark.parametrize("mark", [" ", "7", "。", "…", "🦆", "\n", "€"])
def test_marks_and_symbols_belong_to_no_script(mark: str) -> None:
    assert count_scripts(mark * SAMPLING) == {}
    assert count_scripts("") == {}


def test_scripts_of_any_shape() -> None:
    codepoints = np.array([[ord("a"), ord("7")], [ord("ж"), 0x10FFFF]])
    assert scripts_of(codepoints).tolist() == [["Latin", ""], ["Cyrillic", ""]]
