"""Real articles keep the prose that mwparserfromhell shows, and the table in docs/ is up to date."""

from pathlib import Path

import pytest

from benchmarks.preprocess import text_quality
from benchmarks.preprocess.wikitext import similarities
from tools.wiki_pages import read_articles


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
