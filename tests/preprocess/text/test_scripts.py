"""Which script a text is in."""

import pytest

from tokenfree.preprocess.text.scripts import SAMPLING, count_scripts


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
