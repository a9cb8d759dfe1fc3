"""The peers of the wikitext cleaner, each as a function from one page's wikitext to its text.

wikiextractor is no dependency of ours (its licence is the AGPL); to measure it, let Python find it:

    pip install --target /tmp/peers 'wikiextractor>=3.1'
    PYTHONPATH=/tmp/peers python -m benchmarks.preprocess.text_quality
"""

import importlib
import logging
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import mwparserfromhell

from benchmarks.preprocess.wiki_pages import read_templates

Cleaner = Callable[[str], str]
HOW_TO_GET_IT = "no wikiextractor to be imported: pip install --target DIR 'wikiextractor>=3.1', and set PYTHONPATH=DIR"


def mwparserfromhell_text(wikitext: str) -> str:
    """What a user of mwparserfromhell writes."""
    return str(mwparserfromhell.parse(wikitext).strip_code())


def wikiextractor_version() -> str | None:
    """The version of wikiextractor that can be imported; 3.0.6 is none on Python 3.11 and later (a flag in a regex)."""
    try:
        importlib.import_module("wikiextractor.extract")
    except (ImportError, re.error):
        return None
    return version("wikiextractor")


def wikiextractor_text(dump: Path) -> Cleaner:
    """What wikiextractor writes of a page of `dump`, whose template pages it knows, as its command would.

    An excerpt of a dump may hold few templates or none; parser functions such as `formatnum` need none.
    """
    extract = importlib.import_module("wikiextractor.extract")
    logging.getLogger("wikiextractor").setLevel(logging.CRITICAL)  # it logs a line for each mistake of a page
    prefix, pages = read_templates(dump)
    templates: dict[str, str] = {}
    redirects: dict[str, str] = {}
    for title, wikitext in pages:
        extract.define_template(title, wikitext.splitlines(keepends=True), templates, redirects)

    def text(wikitext: str) -> str:
        page = extract.Extractor(
            "1", "1", "", "", [wikitext], templates=templates, redirects=redirects, templatePrefix=prefix
        )
        return "\n".join(page.clean_text(wikitext, html_safe=False))

    return text
