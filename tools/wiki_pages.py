"""Read articles and templates of dumps for the text benchmarks, without redirects, with the site of the dump."""

import bz2
import html
import os
import re
from collections.abc import Iterator
from pathlib import Path

from tokenfree.preprocess.records import Site
from tools import REPOSITORY

_PAGE = re.compile(r"<page>(.*?)</page>", re.DOTALL)
_TITLE = re.compile(r"<title>(.*?)</title>")
_TEXT = re.compile(r"<text[^>]*[^/>]>(.*?)</text>", re.DOTALL)
_HEAD_CHARACTERS = 20_000
_TEMPLATES = 10  # namespace of templates


def data_folder() -> Path:
    """Return the folder that contains wiki-dumps/: TOKENFREE_TEST_DATA, or shared/data next to the repository."""
    return Path(os.environ.get("TOKENFREE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))


def read_articles(path: Path) -> tuple[Site, list[tuple[str, str]]]:
    """Return the site and the (title, wikitext) of every article of a small dump, in order."""
    site, xml = _read(path)
    return site, list(_pages(xml, namespace=0))


def read_templates(path: Path, *, redirects: bool = False) -> tuple[str, list[tuple[str, str]]]:
    """Return the prefix of template pages (`Template:` in the wiki's language), and their titles and wikitext."""
    site, xml = _read(path)
    names = site.namespaces.get(_TEMPLATES, ("Template",))
    return f"{names[0]}:", list(_pages(xml, namespace=_TEMPLATES, redirects=redirects))


def _read(path: Path) -> tuple[Site, str]:
    raw = bz2.decompress(path.read_bytes()) if path.suffix == ".bz2" else path.read_bytes()
    xml = raw.decode("utf-8", "replace")
    language = None
    if path.parent.name == "minidumps":  # their siteinfo is that of the English wiki
        language = path.name.partition("wiki")[0]
    return Site.from_siteinfo(
        xml[:_HEAD_CHARACTERS], database=path.name.partition("-")[0], language=language
    ), xml


def _pages(xml: str, namespace: int, *, redirects: bool = False) -> Iterator[tuple[str, str]]:
    for page in _PAGE.finditer(xml):
        title, text = _TITLE.search(page[1]), _TEXT.search(page[1])
        is_wanted = f"<ns>{namespace}</ns>" in page[1] and (redirects or "<redirect" not in page[1])
        if title and text and is_wanted:
            yield html.unescape(title[1]), html.unescape(text[1])
