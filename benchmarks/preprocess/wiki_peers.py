"""The peers of the wikitext cleaner, each as a function from the wikitext of a page to its text.

wikiextractor is not a dependency, because its licence is the AGPL. To measure it, make it importable:

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

from tools.wiki_pages import read_templates

Cleaner = Callable[[str], str]
HOW_TO_GET_IT = (
    "no wikiextractor to be imported: pip install --target DIR 'wikiextractor>=3.1', and set PYTHONPATH=DIR"
)


def mwparserfromhell_text(wikitext: str) -> str:
    """Return the text, with the code that a user of mwparserfromhell writes."""
    return str(mwparserfromhell.parse(wikitext).strip_code())


def wikiextractor_version() -> str | None:
    """Return the version of wikiextractor, or None if it cannot be imported.

    Version 3.0.6 cannot be imported on Python 3.11 and later, because of a flag in a regular expression.
    """
    try:
        importlib.import_module("wikiextractor.extract")
    except (ImportError, re.error):
        return None
    return version("wikiextractor")


def wikiextractor_text(dump: Path) -> Cleaner:
    """Return a cleaner that gives the output of wikiextractor's command for pages of `dump`, whose templates it knows.

    An excerpt of a dump may contain few templates or none. Parser functions such as `formatnum` need none.
    """
    extract = importlib.import_module("wikiextractor.extract")
    logging.getLogger("wikiextractor").setLevel(logging.CRITICAL)  # it logs a line for each error in a page
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
