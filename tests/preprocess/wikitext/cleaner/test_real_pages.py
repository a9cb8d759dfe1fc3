"""Real articles: no markup is left, nothing is lost that a reader would miss, and the table in docs/ is up to date."""

import re
from pathlib import Path

import pytest

from benchmarks.preprocess import text_quality
from benchmarks.preprocess.wiki_pages import read_articles
from benchmarks.preprocess.wikitext import similarities
from tokenfree.preprocess.wikitext.cleaner import clean

DUMPS = [
    "enwiki-2016-shortened.xml.bz2",
    "jawiki-20230501-excerpt.xml.bz2",
    "zhwiki-excerpt.xml",
    "ltgwiki-pages-articles.xml.bz2",
    "minidumps/dewiki.xml.bz2",
    "minidumps/frwiki.xml.bz2",
    "minidumps/arwiki.xml.bz2",
]
# Marks that an article may show as text (in an example of code, say) only very rarely.
MARKS = re.compile(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|'''|<ref|</|\|thumb|\|mini|\dpx\||&nbsp;|&[lg]t;")


@pytest.mark.parametrize("dump", DUMPS)
def test_no_markup_is_left(dump, test_data):
    site, articles = read_articles(test_data / "wiki-dumps" / dump)
    texts = [clean(wikitext, site) for _, wikitext in articles]
    characters = sum(map(len, texts))
    found = [mark for text in texts for mark in MARKS.findall(text)]
    assert len(found) <= characters / 100_000 + 2, found[:20]
    assert characters > 0.2 * sum(len(wikitext) for _, wikitext in articles)
    assert not any(re.search(r"\n\n|[ \t]\n|[\x00-\x08]", text) for text in texts)


@pytest.mark.parametrize(
    "dump", ["enwiki-2016-shortened.xml.bz2", "zhwiki-excerpt.xml", "minidumps/dewiki.xml.bz2"]
)
def test_prose_is_that_of_mwparserfromhell(dump, test_data):
    site, articles = read_articles(test_data / "wiki-dumps" / dump)
    _, plain = similarities([wikitext for _, wikitext in articles[:25]], site)
    assert len(plain) > 100
    assert sum(plain) / len(plain) > 0.99


def test_the_table_of_constructs_is_up_to_date(test_data, monkeypatch):
    monkeypatch.setenv("TOKENFREE_TEST_DATA", str(test_data))
    text = Path(text_quality.OUTPUT).read_text(encoding="utf-8")
    assert text_quality.is_current(text)
    assert not text_quality.is_current(text.replace("about 60 mi", "about 61 mi"))
