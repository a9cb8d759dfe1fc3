"""Real articles: no markup is left."""

import re

import pytest

from tokenfree.preprocess.wikitext.cleaner import clean
from tools.wiki_pages import read_articles

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
