"""Write docs/text_quality.md: thirty constructs from real pages, as cleaned by tokenfree and by two peers.

    PYTHONPATH=DIR python -m benchmarks.preprocess.text_quality     (DIR: see benchmarks/preprocess/wiki_peers.py)
    python -m benchmarks.preprocess.text_quality --check

The peers are mwparserfromhell and wikiextractor. Every snippet is looked up in its page, so the table
contains only real wikitext. `--check` writes nothing and fails if the file is out of date. It ignores the
column of wikiextractor, which need not be installed.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import mwparserfromhell

from benchmarks.preprocess.text_snippets import DUMPS, SNIPPETS
from benchmarks.preprocess.wiki_peers import (
    HOW_TO_GET_IT,
    Cleaner,
    mwparserfromhell_text,
    wikiextractor_text,
    wikiextractor_version,
)
from tokenfree.preprocess.records import Site
from tokenfree.preprocess.wikitext.cleaner import clean
from tools.wiki_pages import data_folder, read_articles, read_templates

OUTPUT = Path(__file__).resolve().parents[2] / "docs" / "text_quality.md"
HEAD = f"""# Text quality

The wikitext cleaner on {len(SNIPPETS)} constructs, compared with `strip_code()` of mwparserfromhell and with
wikiextractor, which gets the templates that the same dumps define. The snippets are from real pages of
{len({wiki for _, wiki, _, _ in SNIPPETS})} Wikipedias (CC BY-SA, by their contributors). `⏎` is a line break,
`∅` no text. `python -m benchmarks.preprocess.text_quality` writes this page.

## MediaWiki's own tests

The parser tests of MediaWiki (Parsoid, August 2026) give wikitext and its HTML. Tables, files, references, formulas and
empty sections are left out of the HTML. The words of the cleaner equal those that remain in 96.0% of 753 tests without
templates, and in 75.6% of 393 with templates (before templates were expanded: 90.7% and 28.8%). The other 126 tests:

| kind | tests | reason |
|---|---:|---|
| clock, revision, counts, server and user | 27 | text must not depend on the day, and a dump does not have the rest |
| links and brackets that do not match | 17 | the link is read as its author meant it, and stray brackets are removed |
| functions of extensions, tags of the tests | 16 | no dump defines them |
| missing pages, messages, special pages | 15 | a red link with the name of a template is no text |
| names of languages and tables of MediaWiki | 15 | these tables are not part of a dump |
| text inside tables, table lines outside them | 12 | tables are left out, with what MediaWiki moves before them |
| configuration of the test wiki | 11 | Wikipedias have another one |
| errors and boxes | 4 | they are left out on purpose |
| others | 9 | single cases |

A template in running text that has no definition, as in an excerpt of a dump, shows its first argument (behind a code
of a language the second), or after a number its name. On a wiki with 347 definitions, all words that this guess inserts
are those of the definition, which has half as many again. `python -m benchmarks.preprocess.expansion` measures it.

## Constructs

"""
COLUMNS = ("construct", "page", "wikitext", "tokenfree", f"mwparserfromhell {mwparserfromhell.__version__}")
BORDER = " | "  # cells do not contain it, because `|` is escaped


@cache
def articles(dump: Path) -> tuple[Site, dict[str, str], dict[str, str]]:
    """Return the site, and the wikitext of each page and of each template by title, of a dump."""
    site, pages = read_articles(dump)
    return site, dict(pages), dict(read_templates(dump, redirects=True)[1])


def cell(text: str) -> str:
    """Return text as a code cell of a Markdown table."""
    if not text.strip():
        return "∅"
    text = text.replace("\n", "⏎").replace("|", "\\|")
    # White space around the text does not matter here.
    fence = "``" if "`" in text else "`"
    return f"{fence}{text.strip()}{fence}"


def rows(third: Callable[[Path], Cleaner] | None) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each line. A `third` cleaner, if given, adds the last cell.

    Raises:
        ValueError: A snippet is not in its page.
    """
    for construct, wiki, title, snippet in SNIPPETS:
        dump = data_folder() / "wiki-dumps" / DUMPS[wiki]
        site, pages, templates = articles(dump)
        if snippet not in pages.get(title, ""):
            raise ValueError(
                f"{wiki}: page {title!r} does not hold {snippet!r}: correct benchmarks/preprocess/text_snippets.py"
            )
        texts = [
            snippet,
            clean(snippet, site, title=title, templates=templates),
            mwparserfromhell_text(snippet),
        ]
        texts += [third(dump)(snippet)] if third else []
        yield construct, f"{wiki}: {title}", *map(cell, texts)


def document(wikiextractor: str | None) -> str:
    """Return the whole file, with a column for this version of `wikiextractor`, or without it."""
    third = cache(wikiextractor_text) if wikiextractor else None
    columns = (*COLUMNS, f"wikiextractor {wikiextractor}") if wikiextractor else COLUMNS
    lines = [columns, *rows(third)]
    table = [f"| {BORDER.join(cells)} |\n" for cells in lines]
    table.insert(1, "|---" * len(columns) + "|\n")
    return HEAD + "".join(table)


def is_current(text: str) -> bool:
    """Return True if all columns except wikiextractor's are up to date, and that column exists."""
    head, _, table = text.partition("| construct |")
    first, rule, *lines = ("| construct |" + table).splitlines()
    cut = [line.rpartition(BORDER)[0] + " |" for line in (first, *lines)]
    cut.insert(1, rule.removesuffix("---|"))
    return head + "\n".join(cut) + "\n" == document(None) and "| wikiextractor " in first


def main() -> None:
    """Write or check the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fail if the file is out of date")
    options = parser.parse_args()
    if options.check:
        if not is_current(OUTPUT.read_text(encoding="utf-8")):
            raise SystemExit(f"{OUTPUT} is out of date: run python -m benchmarks.preprocess.text_quality")
        return
    version = wikiextractor_version()
    if version is None:
        raise SystemExit(HOW_TO_GET_IT)
    OUTPUT.write_text(document(version), encoding="utf-8")


if __name__ == "__main__":
    main()
