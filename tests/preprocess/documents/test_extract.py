"""Every page is counted once, whatever becomes of it."""

import pytest

from tokenfree.preprocess.config import Cleaner, Filter, FilterConfig, Steps
from tokenfree.preprocess.documents import extract as extract_module
from tokenfree.preprocess.documents.extract import DroppedPage, FailedPage, PageCounters, extract
from tokenfree.preprocess.records import Document, Failure, Page, Site, StepFailure

SITE = Site.from_siteinfo("", database="enwiki", language="en")
FILTERS = FilterConfig(min_characters=10, max_characters=100)


def wiki(text: str, **other: object) -> Page:
    values = {
        "id": "enwiki:1:2",
        "language": "en",
        "title": "T",
        "model": "wikitext",
        "kind": "wikitext",
        "site": SITE,
    }
    return Page(text=text, **{**values, **other})  # pyright: ignore[reportArgumentType]


def test_pages_become_documents_counts_or_failures() -> None:
    pages = [
        wiki("A '''goose''' on the [[river|water]]."),
        wiki("#REDIRECT [[Goose]]", redirect=True),
        wiki("Talk about geese, at length.", namespace=1),
        wiki("body { goose: grey }", model="css"),
        wiki("{{infobox}}"),
        wiki("A duck."),
        wiki("goose " * 30),
        Page(id="books:a", language="en", title="", text="  A goose,\r\nin a book.\x00 "),
        Failure("enwiki:9", "bad_xml", "<page>"),
    ]
    counters = PageCounters()
    made = list(extract(pages, (0,), FILTERS, counters))
    assert [document.text for document in made if isinstance(document, Document)] == [
        "A goose on the water.",
        "A goose,\nin a book.",
    ]
    assert [failed.failure.reason for failed in made if isinstance(failed, FailedPage)] == ["bad_xml"]
    dropped = [(page.reason, page.failure.text) for page in made if isinstance(page, DroppedPage)]
    assert dropped == [
        ("not_wikitext", "body { goose: grey }"),
        ("empty", "{{infobox}}"),
        ("too_short", "A duck."),
        ("too_long", "goose " * 29 + "goose"),
    ]
    assert counters.to_json() == {
        "pages": 9,
        "documents": 2,
        "redirects": 1,
        "other_namespaces": 1,
        "filtered": {"not_wikitext": 1, "empty": 1, "too_short": 1, "too_long": 1},
        "failed": {"bad_xml": 1},
        "templates": {},
        "dropped_templates": {},
    }
    total = PageCounters()
    total.add(counters.to_json())
    total.add(counters.to_json())
    assert (total.pages, total.filtered["empty"], total.failed["bad_xml"]) == (18, 2, 2)


def test_one_bad_page_never_stops_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def clean_page(text: str, page: object) -> str:
        return [][0] if "bad" in text else text

    monkeypatch.setattr(extract_module, "clean_page", clean_page)
    counters = PageCounters()
    made = list(extract([wiki("a bad, bad page"), wiki("a good, good page")], (0,), FILTERS, counters))
    assert isinstance(made[0], FailedPage)
    assert made[0].failure == Failure("enwiki:1:2", "error: IndexError", "a bad, bad page")
    assert isinstance(made[1], Document)
    assert counters.failed == {"error: IndexError": 1}


def test_a_huge_page_is_not_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract_module, "MAX_WIKITEXT_CHARACTERS", 20)
    (failed,) = extract([wiki("{{" * 11)], (0,), FILTERS, PageCounters())
    assert isinstance(failed, FailedPage)
    assert failed.failure.reason == "too_large"


class First(Filter):
    name = "steps.First"

    def reason(self, document: Document) -> str | None:
        return {"one": "first", "odd": 1}.get(document.title)  # pyright: ignore[reportReturnType]


class Second(Filter):
    name = "steps.Second"

    def reason(self, document: Document) -> str | None:
        return {"one": "second", "two": "second"}.get(document.title)


class Reverse(Cleaner):
    name = "steps.Reverse"

    def clean(self, wikitext: str, site: Site, title: str) -> str:
        if title == "bug":
            raise ZeroDivisionError(f"a bug on {site.database}")
        return wikitext[::-1]


def test_steps_take_pages_in_order_and_their_exceptions_are_failures() -> None:
    steps = Steps(filters=(First(), Second()), cleaner=Reverse())
    titles = ("zero", "one", "two", "odd", "bug")
    pages = [wiki("a goose, ".ljust(20) + title, title=title) for title in titles]
    counters = PageCounters()
    kept, first, second, odd, bug = extract([*pages], (0,), FILTERS, counters, steps=steps)
    assert kept == Document("enwiki:1:2", "en", "zero", "orez ,esoog a")
    assert isinstance(first, DroppedPage)
    assert isinstance(second, DroppedPage)
    assert (first.reason, second.reason) == ("first", "second")
    assert isinstance(odd, FailedPage)
    assert isinstance(bug, FailedPage)
    assert isinstance(odd.failure, StepFailure)
    assert isinstance(bug.failure, StepFailure)
    assert odd.failure.reason == "steps.First: TypeError"
    assert bug.failure.reason == "steps.Reverse: ZeroDivisionError"
    assert bug.failure.text == pages[4].text
    assert str(bug.failure.error) == "a bug on enwiki"
    assert counters.filtered == {"first": 1, "second": 1}
    assert sum(counters.failed.values()) == 2


def test_steps_see_only_what_the_filters_keep() -> None:
    pages = [wiki("short", title="odd"), wiki("long " * 30, title="odd")]
    reasons = [
        page.reason
        for page in extract(pages, (0,), FILTERS, PageCounters(), steps=Steps(filters=(First(),)))
        if isinstance(page, DroppedPage)
    ]
    assert reasons == ["too_short", "too_long"]
