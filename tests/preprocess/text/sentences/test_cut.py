"""Windows hold all of the text but white space, end between sentences where they can, and never grow too long."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenfree.preprocess.text.sentences import cut, sentence_starts


def windows_of(text: str, max_characters: int) -> list[str]:
    return [text[start:end] for start, end in cut(text, sentence_starts(text), max_characters)]


@pytest.mark.parametrize(
    ("text", "max_characters", "windows"),
    [
        ("One. Two. Three.", 9, ["One. Two.", "Three."]),
        ("One. Two. Three.", 8, ["One.", "Two.", "Three."]),
        ("One. Two. Three.", 16, ["One. Two. Three."]),
        ("One. Two. \n", 9, ["One. Two."]),
        ("A sentence too long", 12, ["A sentence", "too long"]),
        ("A sentence too long", 10, ["A sentence", "too long"]),
        ("A sentence too long", 11, ["A sentence", "too long"]),
        ("unbroken", 3, ["unb", "rok", "en"]),
        ("ab e\u0301e\u0301e\u0301", 4, ["ab", "e\u0301e\u0301", "e\u0301"]),
        ("xxx👩\u200d🔬y", 5, ["xxx", "👩\u200d🔬y"]),
        ("他来了。你呢？很好！", 8, ["他来了。你呢？", "很好！"]),
        ("  \n lead", 16, ["lead"]),
        ("", 16, []),
        (" \n ", 16, []),
    ],
)
def test_examples(text: str, max_characters: int, windows: list[str]) -> None:
    assert windows_of(text, max_characters) == windows


@settings(max_examples=1000, deadline=None)
@given(st.text(st.sampled_from("aB. \n\u0301\u200d。語")) | st.text(), st.integers(1, 20))
@example("a" + "\u0301" * 200, 16)
@example("a." + " " * 40 + "B", 3)
def test_nothing_but_white_space_is_lost(text: str, max_characters: int) -> None:
    spans = cut(text, sentence_starts(text), max_characters)
    assert all(0 < end - start <= max_characters for start, end in spans)
    outside = zip([0, *(end for _, end in spans)], [*(start for start, _ in spans), len(text)], strict=True)
    assert all(not text[start:end].strip() for start, end in outside)
    assert all(text[start:end] == text[start:end].strip() for start, end in spans)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["Yes.", "It was so.", "A somewhat longer one, too."]), min_size=1),
    st.integers(27, 90),
)
def test_sentences_that_fit_are_whole_and_windows_are_full(sentences: list[str], max_characters: int) -> None:
    windows = windows_of(" ".join(sentences), max_characters)
    assert " ".join(windows) == " ".join(sentences)
    assert all(window.endswith(".") for window in windows)
    for window, following in itertools.pairwise(windows):
        head = following[: following.index(".") + 1]
        assert len(window) + 1 + len(head) > max_characters


def test_a_book_costs_one_pass(test_data: Path) -> None:
    text = (test_data / "books" / "en" / "Hardy_Madding_1874.txt").read_text(encoding="utf-8")
    spans = np.array(cut(text, sentence_starts(text), 2040))
    assert "".join(text.split()) == "".join("".join(text[start:end].split()) for start, end in spans)
    assert np.diff(spans).mean() > 1900
