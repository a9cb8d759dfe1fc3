"""Clean text: composed, without control characters, tidy white space, and stable under a second pass."""

import itertools
import time
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenfree.preprocess.text.normalize import normalize


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("Cafe\u0301 de\tla  gare ", "Café de la gare"),
        ("one\r\ntwo\rthree\u2028four\x85five", "one\ntwo\nthree\nfour\nfive"),
        ("\n\n a\n \n\t\n\n b \n\n", "a\n\nb"),
        ("no\x00 spe\x02cial\x04 by\x1btes\x7f", "no special bytes"),
        ("\ufeffByte\ufffe order\uffff\U0001ffff mark", "Byte order mark"),
        ("lone \ud800surrogate\udfff", "lone surrogate"),
        ("\ue000\ue004C\ue00fLS", "CLS"),
        ("private \ue010 stays", "private \ue010 stays"),
        ("日本\u3000語\xa0text", "日本 語 text"),
        ("क्\u200dष می\u200cروم 👩\u200d🔬 🏳️\u200d🌈", "क्\u200dष می\u200cروم 👩\u200d🔬 🏳️\u200d🌈"),
        ("e\x00\u0301", "é"),
        ("", ""),
        (" \t\r\n\u2029 ", ""),
    ],
)
def test_examples(raw: str, clean: str) -> None:
    assert normalize(raw) == clean


@settings(max_examples=1000, deadline=None)
@given(
    st.text(st.characters(codec=None) | st.sampled_from("\x00\x04\t\r\n \x85\xa0e\u0301\ud800\ue000\ufeff"))
)
@example("\n\x00\n\x00\n\x00\n")
@example(" \u0301")
def test_twice_changes_nothing_and_the_result_is_clean(text: str) -> None:
    clean = normalize(text)
    assert normalize(clean) == clean
    assert unicodedata.is_normalized("NFC", clean)
    assert clean.encode().decode() == clean
    assert not any(unicodedata.category(character) == "Cc" and character != "\n" for character in clean)
    assert not any(character.isspace() and character not in " \n" for character in clean)
    assert "  " not in clean
    assert "\n\n\n" not in clean
    assert all(line == line.strip() for line in clean.split("\n"))


@settings(deadline=None)
@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_only_composition_changes_what_is_visible(text: str) -> None:
    assert normalize(text) == unicodedata.normalize("NFC", text)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "é", "字", "\u0344", "\u0301\u0316", "\u0f71\u0f74", "𝅗𝅥"]),
            st.integers(0, 40),
        )
    )
)
def test_runs_of_marks_are_limited(runs: list[tuple[str, int]]) -> None:
    clean = normalize("".join(unit * count for unit, count in runs))
    assert normalize(clean) == clean
    assert unicodedata.is_normalized("NFC", clean)
    starters = [
        -1,
        *(i for i, character in enumerate(clean) if not unicodedata.combining(character)),
        len(clean),
    ]
    assert max(after - before for before, after in itertools.pairwise(starters)) <= 31


def test_thirty_marks_are_kept() -> None:
    assert normalize("x" + "\u0301" * 30 + "y") == "x" + "\u0301" * 30 + "y"
    assert normalize("x" + "\u0301" * 31 + "y") == "x" + "\u0301" * 30 + "y"


@pytest.mark.parametrize(
    "unit", ["\u0301\u0316", "\0", " \n", "\u0344", "x \t", "\r\n\n", "e\u0301", "👩\u200d", "가\u11a8"]
)
def test_hostile_text_costs_linear_time(unit: str) -> None:
    before = time.process_time()
    assert len(normalize(unit * 200_000)) <= 200_000 * len(unit)
    assert time.process_time() - before < 5  # about 0.1 s; quadratic time would be minutes


SHORT_TEXTS = st.text(st.sampled_from("ab  \n\t\xa0é\u0301\u0345日\u200d\ue000\ue010\x00\u0958"), max_size=40)


@settings(max_examples=1000, deadline=None)
@given(SHORT_TEXTS | st.text(max_size=20))
@example(" ")
@example("a" + "\u0301" * 40)
@example("क" + "\u0345" * 40)
def test_short_texts_are_normalized_like_long_ones(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokenfree.preprocess.text.normalize.SHORT", -1)
        expected = normalize(text)
    assert normalize(text) == expected
