"""Dumps that we write: readable by anything that reads XML, cut into streams where the index says, always the same."""

import bz2
import hashlib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from tokenfree.workflows.demo_corpus.dump_writer import PAGES_PER_STREAM, DemoPage, index_path, write_dump

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


def test_siteinfo_names_the_wiki_and_its_namespaces(tmp_path: Path) -> None:
    write_dump(tmp_path / "enwiki.xml.bz2", PAGES)
    root = ElementTree.fromstring(read(tmp_path / "enwiki.xml.bz2"))
    info = root.find(f"{NAMESPACE}siteinfo")
    assert info is not None
    assert root.get("version") == "0.11"
    assert info.findtext(f"{NAMESPACE}dbname") == "enwiki"
    names = {int(entry.get("key", "")): entry.text or "" for entry in info.iter(f"{NAMESPACE}namespace")}
    assert (names[-2], names[0], names[1], names[10], names[15]) == ("Media", "", "Talk", "Template", "Category talk")


def test_a_page_has_all_that_an_official_page_has(tmp_path: Path) -> None:
    write_dump(tmp_path / "enwiki.xml.bz2", PAGES)
    first, second, third = ElementTree.fromstring(read(tmp_path / "enwiki.xml.bz2")).iter(f"{NAMESPACE}page")
    order = ["id", "parentid", "timestamp", "contributor", "comment", "origin", "model", "format", "text", "sha1"]
    revision = first.find(f"{NAMESPACE}revision")
    assert revision is not None
    assert [child.tag.removeprefix(NAMESPACE) for child in revision] == order
    redirect = second.find(f"{NAMESPACE}redirect")
    assert redirect is not None
    assert redirect.get("title") == "AT&T"
    assert third.findtext(f"{NAMESPACE}ns") == "1"
    sha1 = int(hashlib.sha1(PAGES[0].text.encode()).hexdigest(), 16)
    assert int(revision.findtext(f"{NAMESPACE}sha1", ""), 36) == sha1
    text = revision.find(f"{NAMESPACE}text")
    assert text is not None
    assert int(text.get("bytes", "")) == len(PAGES[0].text.encode())


def test_each_index_line_leads_to_the_stream_of_its_page(tmp_path: Path) -> None:
    pages = [DemoPage(f"Page {number} & <co>", f"Text {number}.") for number in range(2 * PAGES_PER_STREAM + 1)]
    path = tmp_path / "enwiki-multistream.xml.bz2"
    write_dump(path, pages)
    lines = bz2.decompress(index_path(path).read_bytes()).decode().splitlines()
    assert len(lines) == len(pages)
    assert len({line.split(":")[0] for line in lines}) == 3
    content = path.read_bytes()
    for line, page in zip(lines, pages, strict=True):
        offset, page_id, title = line.split(":", 2)
        stream = bz2.BZ2Decompressor().decompress(content[int(offset) :])
        found = texts(f'<mediawiki xmlns="{NAMESPACE[1:-1]}">{stream.decode()}</mediawiki>')
        assert f"<id>{page_id}</id>".encode() in stream
        assert title == page.title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        assert found[page.title] == page.text


def test_the_first_stream_is_the_head_and_the_last_the_foot(tmp_path: Path) -> None:
    path = tmp_path / "enwiki-multistream.xml.bz2"
    write_dump(path, PAGES)
    rest, streams = path.read_bytes(), []
    while rest:
        reader = bz2.BZ2Decompressor()
        streams.append(reader.decompress(rest))
        rest = reader.unused_data
    assert len(streams) == 3
    assert streams[0].endswith(b"</siteinfo>\n")
    assert streams[1].startswith(b"  <page>")
    assert streams[2] == b"</mediawiki>\n"


def test_a_character_that_xml_forbids_is_replaced(tmp_path: Path) -> None:
    write_dump(tmp_path / "enwiki.xml.bz2", [DemoPage("Bell", "ring\x07 it")])
    assert texts(read(tmp_path / "enwiki.xml.bz2")) == {"Bell": "ring\ufffd it"}
