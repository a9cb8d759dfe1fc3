"""Word spans against a reading of the rules one character at a time."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenfree.preprocess.text.words import word_spans

MIXED = st.text(
    st.sampled_from("aZ9_é E\u0301Ẹ\u0300ǅß語ข\u0e31👩\u200d🔬\u200f.,-'«\u3000\n\tאنж"), max_size=60
)
CJK = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFD))


def words_of(text: str) -> list[str]:
    starts, ends = word_spans(text)
    encoded = text.encode()
    return [encoded[start:end].decode() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def stands_alone(character: str) -> bool:
    """A CJK character, or one of BERT's punctuation: all ASCII that is no letter or digit, and category P."""
    if character.isascii():
        return 32 < ord(character) < 127 and not character.isalnum()
    cjk = any(start <= ord(character) <= end for start, end in CJK)
    return cjk or unicodedata.category(character)[0] == "P"


def camel_starts(text: str) -> set[int]:
    """Where a word starts for its case, marks and format characters being looked through."""
    categories = [(i, unicodedata.category(character)) for i, character in enumerate(text)]
    solid = [(i, category) for i, category in categories if category not in ("Mn", "Mc", "Me", "Cf")]
    starts = set()
    for (_, before), (position, here), (_, after) in zip(
        solid, solid[1:], [*solid[2:], (0, "")], strict=False
    ):
        capital = here in ("Lu", "Lt")
        if capital and (before in ("Ll", "Nd") or (before in ("Lu", "Lt") and after == "Ll")):
            starts.add(position)
    return starts


def words_by_the_rules(text: str) -> list[str]:
    words: list[str] = []
    camel = camel_starts(text)
    grows = False
    for position, character in enumerate(text):
        if character.isspace():
            grows = False
            continue
        alone = stands_alone(character)
        full = grows and len((words[-1] + character).encode()) > 128
        if grows and not alone and not full and position not in camel:
            words[-1] += character
        else:
            words.append(character)
        grows = not alone
    return words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("foo_bar", ["foo", "_", "bar"]),
        ("camelCase", ["camel", "Case"]),
        ("don't", ["don", "'", "t"]),
        ("HTMLParser2Go", ["HTML", "Parser2", "Go"]),
        ("rAnDoM", ["r", "An", "Do", "M"]),
        ("  two\n\nlines ", ["two", "lines"]),
        ("我爱Python3。", ["我", "爱", "Python3", "。"]),
        ("カタカナと漢字", ["カタカナと", "漢", "字"]),
        ("«Ça va?»", ["«", "Ça", "va", "?", "»"]),
        ("mẸ\u0300kọ\u0301", ["m", "Ẹ\u0300kọ\u0301"]),
        ("ABE\u0301cole", ["AB", "E\u0301cole"]),
        ("می\u200cروم 👩\u200d🔬", ["می\u200cروم", "👩\u200d🔬"]),
        ("$5+x=y", ["$", "5", "+", "x", "=", "y"]),
        ("", []),
        (" \u3000\n", []),
    ],
)
def test_examples(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@settings(max_examples=1000, deadline=None)
@given(MIXED | st.text())
@example("ǅa")
@example("a\u0301B")
def test_follows_the_rules(text: str) -> None:
    assert words_of(text) == words_by_the_rules(text)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "ж", "ข", "👩"]), min_size=30, max_size=400).map("".join))
@example("a" * 128)
@example("a" * 129)
@example("a" + "ข" * 300 + " " + "👩" * 33)
def test_long_words_are_cut_at_character_boundaries(text: str) -> None:
    words = words_of(text)
    assert words == words_by_the_rules(text)
    assert max(len(word.encode()) for word in words) <= 128


def test_real_text_in_every_script(test_data: Path) -> None:
    for file in [*sorted(test_data.glob("udhr/*.txt")), test_data / "nasty" / "blns.txt"]:
        text = file.read_text(encoding="utf-8")
        assert words_of(text) == words_by_the_rules(text), file.name


def test_every_visible_character_is_in_a_word(test_data: Path) -> None:
    text = (test_data / "nasty" / "emoji-test.txt").read_text(encoding="utf-8")
    assert "".join(words_of(text)) == "".join(text.split())
