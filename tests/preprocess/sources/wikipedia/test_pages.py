"""A page comes as MediaWiki wrote it, a broken one as a failure that says why."""

import bz2
import random
import resource
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Failure, InputSplit, Page, Site
from tokenfree.preprocess.sources.splits import plan_splits, read_split
from tokenfree.preprocess.sources.wikipedia import parse_page, unescape
from tokenfree.preprocess.wikitext.markup import wiki_words

SITE = Site.from_siteinfo("", database="swwiki", language="sw")
PAGE = (
    "<page><title>Simba &amp; Chui</title><ns>14</ns><id>12</id><revision><id>34</id><contributor><id>5</id>"
    '</contributor><model>wikitext</model><text xml:space="preserve">Paka &lt;b&gt;wakubwa&lt;/b&gt;</text>'
    "</revision></page>"
)


def summary(found: list[Page | Failure]) -> list[tuple[str, str]]:
    return [(each.id, each.reason if isinstance(each, Failure) else each.text) for each in found]


def test_a_page() -> None:
    assert parse_page(PAGE.encode(), SITE) == Page(
        id="swwiki:12:34",
        language="sw",
        title="Simba & Chui",
        text="Paka <b>wakubwa</b>",
        namespace=14,
        redirect=False,
        model="wikitext",
        site=SITE,
        kind="wikitext",
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("<title>Simba &amp; Chui</title>", "", "missing_title"),
        ("<ns>14</ns>", "", "missing_ns"),
        ("<id>12</id>", "", "missing_id"),
        ("text", "texts", "missing_text"),
        ("</text>", "", "missing_text"),
        ("revision", "version", "missing_text"),
    ],
)
def test_a_page_without_one_of_its_parts(old: str, new: str, reason: str) -> None:
    broken = PAGE.replace(old, new)
    found = parse_page(broken.encode(), SITE)
    assert isinstance(found, Failure)
    assert (found.reason, found.text) == (reason, broken)
    assert found.id.startswith("swwiki:")


@pytest.mark.parametrize(
    "empty", ["<text/>", '<text bytes="0" />', '<text deleted="deleted"/>', "<text></text>"]
)
def test_an_empty_text_is_an_empty_page(empty: str) -> None:
    start, end = PAGE.index("<text"), PAGE.index("</text>") + len("</text>")
    found = parse_page((PAGE[:start] + empty + PAGE[end:]).encode(), SITE)
    assert isinstance(found, Page)
    assert found.text == ""


def test_of_several_revisions_the_newest_counts() -> None:
    revisions = [
        f"<revision><id>{year}</id><timestamp>{year}-01-01T00:00:00Z</timestamp><text>{year}.</text></revision>"
        for year in (2020, 2021, 2019)
    ]
    start, end = PAGE.index("<revision>"), PAGE.index("</page>")
    page = parse_page((PAGE[:start] + "".join(revisions) + PAGE[end:]).encode(), SITE)
    assert isinstance(page, Page)
    assert (page.id, page.text) == ("swwiki:12:2021", "2021.")


def test_redirect_words_of_all_languages() -> None:
    words = wiki_words("redirect")
    assert len(words) > 150
    for word in [*words, "WEITERLEITUNG", "ПЕРЕНАПРАВЛЕНИЕ", "REDIRECCIÓN"]:
        page = parse_page(PAGE.replace("Paka", f"#{word}: [[Duma]]").encode(), SITE)
        assert isinstance(page, Page)
        assert page.redirect, word
    page = parse_page(PAGE.replace("Paka", "# Orodha [[Duma]]").encode(), SITE)
    assert isinstance(page, Page)
    assert not page.redirect


def test_of_several_revisions_the_last_counts() -> None:
    revision = PAGE[PAGE.index("<revision>") : PAGE.index("</page>")]
    newer = revision.replace("<id>34", "<id>35").replace("Paka", "Samba").replace("wikitext", "css")
    found = parse_page(PAGE.replace(revision, revision + newer).encode(), SITE)
    assert isinstance(found, Page)
    assert (found.id, found.text, found.model) == ("swwiki:12:35", "Samba <b>wakubwa</b>", "css")


def test_the_model_may_follow_the_text() -> None:
    after = PAGE.replace("<model>wikitext</model>", "").replace(
        "</revision>", "<model>Scribunto</model></revision>"
    )
    found = parse_page(after.encode(), SITE)
    assert isinstance(found, Page)
    assert found.model == "Scribunto"


def test_redirects_are_known_by_their_element_or_by_their_text() -> None:
    by_element = PAGE.replace("<revision>", '<redirect title="Paka" /><revision>')
    by_text = PAGE.replace("Paka", "#redirect [[Paka]]")
    assert [getattr(parse_page(xml.encode(), SITE), "redirect", None) for xml in (by_element, by_text)] == [
        True,
        True,
    ]


def test_old_dumps_tell_the_namespace_by_the_title() -> None:
    found = parse_page(
        PAGE.replace("<ns>14</ns>", "").replace("Simba", "User:Simba").encode(), SITE, needs_ns=False
    )
    assert isinstance(found, Page)
    assert found.namespace == 2


def test_undecodable_bytes_fail_the_page() -> None:
    found = parse_page(PAGE.encode().replace(b"Paka", b"Pak\xff"), SITE)
    assert isinstance(found, Failure)
    assert (found.id, found.reason) == ("swwiki:12:34", "bad_encoding")
    assert "Pak\ufffd" in found.text


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("&lt;ref&gt;&amp;nbsp;&quot;&apos;", "<ref>&nbsp;\"'"),
        ("&amp;lt;", "&lt;"),
        ("&#38;lt;&#x26;lt;", "&lt;&lt;"),
        ("&#233;&#x1F600;", "é😀"),
        (f"&#x{'0' * 5000}41;&#{'0' * 5000}66;", "AB"),
        ("&#xD800;&#0;&#x110000;&#99999999;", "\ufffd" * 4),
        ("&#" + "9" * 10_000 + ";", "&#" + "9" * 10_000 + ";"),
        ("&lol9;&nbsp;& &;", "&lol9;&nbsp;& &;"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("a<![CDATA[b&amp;", "a<![CDATA[b&"),
        ("<![CDATA[1 < 2 &amp; 3]]>&amp;", "1 < 2 &amp; 3&"),
    ],
)
def test_entities(raw: str, text: str) -> None:
    assert unescape(raw) == text


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0")))
def test_what_xml_escapes_comes_back(text: str) -> None:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    assert unescape(escaped) == text
    assert unescape("".join(f"&#x{ord(character):X};" for character in text)) == text


@given(st.binary(max_size=300), st.integers(0, len(PAGE)))
def test_no_bytes_make_it_raise(junk: bytes, at: int) -> None:
    data = PAGE.encode()
    found = parse_page(data[:at] + junk + data[at + len(junk) // 2 :], SITE)
    assert found.id.startswith("swwiki:")
    assert (found.text + getattr(found, "title", "")).encode() is not None


class Streams(list[bytes]):
    """A list that does not fill the screen when an example fails."""

    def __repr__(self) -> str:
        return f"<{len(self)} streams>"


@pytest.fixture(scope="module")
def streams() -> Streams:
    """Parts of a dump whose pages and tags lie across them, as pbzip2 cuts them, each a bz2 stream."""
    rng = random.Random(1)
    pages = "".join(
        f"<page><title>P{number}</title><ns>0</ns><id>{number}</id><revision><id>{number}</id>"
        f"<text>{'x' * rng.randrange(400)}</text></revision></page>\n"
        for number in range(40)
    )
    data = f"<mediawiki version='0.11'>{pages}</mediawiki>".encode()
    cuts = sorted(
        {
            0,
            len(data),
            *rng.sample(range(1, len(data)), 25),
            *(data.index(b"<page>", 3000) + at for at in (0, 3)),
        }
    )
    return Streams(bz2.compress(data[start:end]) for start, end in pairwise(cuts))


def a_split(path: Path, data: bytes, stored: Literal["xml", "bz2"]) -> InputSplit:
    path.write_bytes(data)
    return InputSplit(
        kind="wikipedia",
        format=stored,
        inputs=(str(path),),
        names=("n",),
        versions=("1",),
        languages=("sw",),
        start=0,
        end=len(data),
        size=len(data),
        site=SITE,
        rooted=True,
        needs_ns=True,
    )


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.lists(st.floats(0, 1), max_size=6),
    damage=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), max_size=4),
    lost=st.floats(0, 0.3),
    plain=st.booleans(),
)
@example(cuts=[0.5], damage=[], lost=0, plain=False)
def test_no_cut_changes_what_is_read_and_no_damage_raises(
    cuts: list[float],
    damage: list[tuple[float, int]],
    lost: float,
    plain: bool,
    streams: Streams,
    read_cut: Callable[..., list[Page | Failure]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    data = bytearray(b"".join(map(bz2.decompress, streams)) if plain else b"".join(streams))
    for place, change in damage:
        data[int(place * (len(data) - 1))] ^= change
    data = data[: len(data) - int(lost * len(data))]
    split = a_split(tmp_path_factory.mktemp("cut") / "dump", bytes(data), "xml" if plain else "bz2")
    # A last range without a tag cannot know whether it is within a page, and so not whether the dump's end is
    # missing.
    last = data.rfind(b"</page>") if plain else len(data)
    places = [min(int(cut * split.end), last) for cut in cuts]
    whole = summary(list(read_split(split)))
    assert summary(read_cut(split, places)) == whole
    if not damage and not lost:
        assert [name for name, _ in whole] == [f"swwiki:{number}:{number}" for number in range(40)]
    elif lost > 0.01:
        assert any(reason in ("truncated", "damaged_stream", "trailing_garbage") for _, reason in whole)


def test_every_place_of_a_cut(
    streams: Streams, read_cut: Callable[..., list[Page | Failure]], tmp_path: Path
) -> None:
    data = b"".join(map(bz2.decompress, streams))[:3000] + b"</mediawiki>"
    split = a_split(tmp_path / "dump", data, "xml")
    whole = summary(list(read_split(split)))
    assert len(whole) > 5
    for cut in range(len(data) + 1):
        assert summary(read_cut(split, [cut])) == whole


def test_hostile_pages_cost_bounded_memory_and_fail_alone(
    tmp_path: Path, make_page: Callable[..., str]
) -> None:
    path = tmp_path / "swwiki.xml"
    bomb = '<!DOCTYPE m [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><mediawiki version="0.11">'
    with path.open("w") as file:
        file.write(bomb)
        file.write(make_page(1, "&b;&b;"))
        file.write(make_page(2, "y" * 50_000_000))
        start, _, end = make_page(3, "TEXT").partition("TEXT")
        file.write(start)
        for _ in range(150):
            file.write("z" * 1_000_000)
        file.write(end)
        file.write(make_page(4, "na\0na &#xD800; na"))
        file.write("</mediawiki>")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = [
        each for split in plan_splits(PreprocessConfig(wikipedia=(str(path),))) for each in read_split(split)
    ]
    assert [each.id for each in found] == [f"swwiki:{number}:{number + 1000}" for number in range(1, 5)]
    assert found[0].text == "&b;&b;"
    assert found[1].text == "y" * 50_000_000
    assert isinstance(found[2], Failure)
    assert (found[2].reason, len(found[2].text)) == ("too_large", 1_000_000)
    assert found[3].text == "na\0na \ufffd na"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


@pytest.mark.parametrize(
    "piece", ["<page>", "<page><revision>", "</page>", "<text ", "<page><title ", "<![CDATA["]
)
def test_no_repetition_takes_quadratic_time(
    piece: str, tmp_path: Path, make_page: Callable[..., str]
) -> None:
    path = tmp_path / "swwiki.xml"
    path.write_text(f"<mediawiki version='0.11'>{make_page(1, piece * 100_000)}{make_page(2)}</mediawiki>")
    start = time.process_time()
    found = [
        each for split in plan_splits(PreprocessConfig(wikipedia=(str(path),))) for each in read_split(split)
    ]
    assert found[-1].id == "swwiki:2:1002"
    assert time.process_time() - start < 7  # seconds; quadratic time would be minutes


def test_a_history_of_many_revisions_is_not_held_whole(tmp_path: Path) -> None:
    path = tmp_path / "swwiki.xml"
    with path.open("w") as file:
        file.write('<mediawiki version="0.11"><page><title>T</title><ns>0</ns><id>1</id>')
        for number in range(130):
            file.write(f"<revision><id>{number}</id><text>{number} {'x' * 1_000_000}</text></revision>")
        file.write("</page></mediawiki>")
    (split,) = plan_splits(PreprocessConfig(wikipedia=(str(path),), split_bytes=1_000_000_000))
    (page,) = read_split(split)
    assert page.id == "swwiki:1:129"
    assert page.text.startswith("129 x")
