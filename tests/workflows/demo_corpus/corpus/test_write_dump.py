"""Dumps that we write: readable by anything that reads XML, cut into streams."""

import bz2
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tokenfree.workflows.demo_corpus.corpus import PAGES_PER_STREAM, DemoPage, write_dump

NAMESPACE = "{http://www.mediawiki.org/xml/export-0.11/}"
PAGES = [
    DemoPage("AT&T", "'''AT&T''' is < a company > & \"more\".\n\n* [[Хлеб]]"),
    DemoPage("Bread & butter", "#REDIRECT [[AT&T]]", redirect="AT&T"),
    DemoPage("Talk:AT&T", "Who wrote\tthis?", namespace=1),
]


def texts(xml: str) -> dict[str, str]:
    pages = ElementTree.fromstring(xml).iter(f"{NAMESPACE}page")
    return {
        page.findtext(f"{NAMESPACE}title", ""): page.findtext(f"{NAMESPACE}revision/{NAMESPACE}text", "")
        for page in pages
    }


def read(path: Path) -> str:
    return bz2.decompress(path.read_bytes()).decode()


def test_text_and_titles_come_back_as_they_were(tmp_path: Path) -> None:
    write_dump(tmp_path / "enwiki.xml.bz2", PAGES)
    assert texts(read(tmp_path / "enwiki.xml.bz2")) == {page.title: page.text for page in PAGES}


def test_a_page_has_its_namespace_ids_and_target(tmp_path: Path) -> None:
    write_dump(tmp_path / "enwiki.xml.bz2", PAGES)
    root = ElementTree.fromstring(read(tmp_path / "enwiki.xml.bz2"))
    assert root.findtext(f"{NAMESPACE}siteinfo/{NAMESPACE}dbname") == "enwiki"
    pages = list(root.iter(f"{NAMESPACE}page"))
    assert [page.findtext(f"{NAMESPACE}ns") for page in pages] == ["0", "0", "1"]
    assert [page.findtext(f"{NAMESPACE}id") for page in pages] == ["12", "14", "16"]
    assert [page.findtext(f"{NAMESPACE}revision/{NAMESPACE}id") for page in pages] == ["5007", "5014", "5021"]
    redirect = pages[1].find(f"{NAMESPACE}redirect")
    assert redirect is not None
    assert redirect.get("title") == "AT&T"


def test_the_first_stream_is_the_head_and_the_last_the_foot(tmp_path: Path) -> None:
    path = tmp_path / "enwiki-multistream.xml.bz2"
    write_dump(path, PAGES * PAGES_PER_STREAM)
    rest, streams = path.read_bytes(), []
    while rest:
        reader = bz2.BZ2Decompressor()
        streams.append(reader.decompress(rest))
        rest = reader.unused_data
    assert len(streams) == 5
    assert streams[0].endswith(b"</siteinfo>\n")
    assert streams[1].startswith(b"  <page>")
    assert streams[-1] == b"</mediawiki>\n"


def test_a_character_that_xml_forbids_is_replaced(tmp_path: Path) -> None:
    write_dump(tmp_path / "enwiki.xml.bz2", [DemoPage("Bell", "ring\x07 it")])
    assert texts(read(tmp_path / "enwiki.xml.bz2")) == {"Bell": "ring\ufffd it"}
