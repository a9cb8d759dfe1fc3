"""Each filter by itself, and all of them with the reasons that are counted."""

import pytest

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.preprocess.config import FilterConfig, PreprocessConfig
from tokenfree.preprocess.documents.extract import DroppedPage, PageCounters, extract
from tokenfree.preprocess.documents.filters.quality import (
    is_of_languages,
    reason_of_text,
    repeated_line_share,
    script_share,
    symbol_share,
)
from tokenfree.preprocess.records import Document, Page
from tokenfree.preprocess.sources.splits import find_inputs

GEESE = "Seven geese argue about bread"
ГУСИ = "Сім гусей сперечаються про хліб"


@pytest.mark.parametrize(
    ("tag", "wanted", "stays"),
    [
        ("en", ["en"], True),
        ("en-GB", ["de", "EN"], True),
        ("zh-Hant", ["zh-hant"], True),
        ("zh", ["zh-Hant"], False),
        ("eng", ["en"], False),
        ("und", ["en"], False),
    ],
)
def test_languages_are_ranges_of_tags(tag: str, wanted: list[str], stays: bool) -> None:
    assert is_of_languages(tag, wanted) is stays


@pytest.mark.parametrize(
    ("text", "scripts", "share"),
    [
        (GEESE + " 1234 ...", ["Latin"], 1.0),
        (ГУСИ, ["Latin"], 0.0),
        ("abгд", ["Latin"], 0.5),
        ("パンを論じる雁", ["Han", "Hiragana", "Katakana"], 1.0),
        ("12 + 7 = 19", ["Latin"], 0.0),
        ("", ["Latin"], 0.0),
    ],
)
def test_share_of_letters_by_script(text: str, scripts: list[str], share: float) -> None:
    assert script_share(text, scripts) == share


@pytest.mark.parametrize(
    ("text", "share"),
    [
        (GEESE, 0.0),
        ("ab, c.", 0.4),
        ("12 🪿🪿", 0.5),
        ("क्षि", 0.0),  # a mark is no symbol
        ("می‌خواهم", 0.0),  # nor is a joiner inside a word, which is not seen
        (" \n\u200b", 0.0),
        ("", 0.0),
    ],
)
def test_share_of_symbols(text: str, share: float) -> None:
    assert symbol_share(text) == share


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("a\nb\nc", 0.0),
        ("Menu\nMenu\n\nMenu\nText", 0.5),
        ("Home\n  Home ", 0.5),
        ("\n\n\n", 0.0),
        ("", 0.0),
    ],
)
def test_share_of_repeated_lines(text: str, share: float) -> None:
    assert repeated_line_share(text) == share


OFF = FilterConfig(min_characters=1)
DROPPED = {
    "too_short": ("Oh.", {"min_characters": 4}),
    "too_long": (GEESE, {"max_characters": 20}),
    "other_script": (ГУСИ[:20], {"scripts": ("Latin",)}),
    "too_many_symbols": ("+++ a +++", {"max_symbol_share": 0.5}),
    "repeated_lines": ("Home\nHome\nHome", {"max_repeated_line_share": 0.6}),
}


@pytest.mark.parametrize("reason", DROPPED)
def test_a_filter_drops_with_its_reason_and_none_does_by_itself(reason: str) -> None:
    text, settings = DROPPED[reason]
    filters = build(FilterConfig, {"min_characters": 1, **settings}, source="test")
    assert reason_of_text(text, filters) == reason
    assert reason_of_text(text, OFF) is None
    assert reason_of_text(GEESE[:20], filters) is None


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("abгд", {"scripts": ("Latin",), "min_script_share": 0.5}),
        ("+a", {"max_symbol_share": 0.5}),
        ("Ab\nAb", {"max_repeated_line_share": 0.5}),
    ],
)
def test_a_share_at_its_bound_stays(text: str, settings: dict[str, object]) -> None:
    assert reason_of_text(text, build(FilterConfig, {"min_characters": 1, **settings}, source="test")) is None


def test_every_page_is_counted_once() -> None:
    pages = [Page(f"books:{n}", "en", "", text) for n, (text, _) in enumerate(DROPPED.values())]
    pages += [Page("books:a", "uk", "", ГУСИ), Page("books:b", "en-GB", "", GEESE[:20])]
    settings = {key: value for _, chosen in DROPPED.values() for key, value in chosen.items()}
    filters = build(FilterConfig, {**settings, "languages": ["en"]}, source="test")
    counters = PageCounters()
    made = list(extract(pages, (0,), filters, counters))
    assert [document.id for document in made if isinstance(document, Document)] == ["books:b"]
    assert counters.filtered == dict.fromkeys([*DROPPED, "other_language"], 1)
    assert (counters.pages, counters.documents) == (len(pages), 1)


def test_a_page_of_another_language_is_not_even_cleaned() -> None:
    # Cleaned, it would be a failure.
    broken = Page("enwiki:1:1", "en", "", "x", model="wikitext", kind="wikitext")
    counters = PageCounters()
    (dropped,) = extract([broken], (0,), FilterConfig(languages=("uk",)), counters)
    assert dropped == DroppedPage("other_language", broken)
    assert counters.filtered == {"other_language": 1}


def test_what_is_no_script_and_no_language_is_told() -> None:
    with pytest.raises(UserError, match=r"filters.scripts.*'latin'.*known: Latin"):
        build(PreprocessConfig, {"filters": {"scripts": ["latin"]}}, source="test")
    with pytest.raises(UserError, match=r"filters.languages: 'english' is not a language tag"):
        find_inputs(PreprocessConfig(books=("a.txt",), filters=FilterConfig(languages=("english",))))
