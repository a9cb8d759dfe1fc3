"""Writes docs/text_quality.md: thirty constructs from real pages, as cleaned here and by mwparserfromhell.

    python -m benchmarks.text_quality [--check]

Every snippet is looked up in its page, so the table cannot hold wikitext that no editor wrote. `--check` writes nothing
and fails if the file on disk is not what would be written.
"""

import argparse
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import mwparserfromhell

from benchmarks.text_snippets import DUMPS, SNIPPETS
from benchmarks.wiki_pages import data_folder, read_articles
from preprocess.site import Site
from preprocess.wikitext import clean

OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "text_quality.md"
HEAD = f"""# Text quality

What the wikitext cleaner makes of {len(SNIPPETS)} constructs, beside `strip_code()` of mwparserfromhell {{version}}.
The snippets stand in real pages of {{wikis}} Wikipedias (text CC BY-SA, by the contributors of each page). `⏎` is a
line break, `∅` nothing at all. Made by `python -m benchmarks.text_quality`; speed and similarity over whole pages:
`python -m benchmarks.wikitext`.

| construct | page | wikitext | tokenfree | mwparserfromhell |
|---|---|---|---|---|
"""


@cache
def articles(dump: str) -> tuple[Site, dict[str, str]]:
    """The site and the wikitext by title of one dump."""
    site, pages = read_articles(data_folder() / "wiki-dumps" / dump)
    return site, dict(pages)


def cell(text: str) -> str:
    """Text as a code cell of a Markdown table."""
    if not text.strip():
        return "∅"
    text = text.replace("\n", "⏎").replace("|", "\\|")
    # Outer spaces of the text are no matter here.
    fence = "``" if "`" in text else "`"
    return f"{fence}{text.strip()}{fence}"


def rows() -> Iterator[str]:
    """The lines of the table; ValueError for a snippet that is not in its page."""
    for construct, wiki, title, snippet in SNIPPETS:
        site, pages = articles(DUMPS[wiki])
        if snippet not in pages.get(title, ""):
            raise ValueError(f"{wiki}: page {title!r} does not hold {snippet!r}: correct benchmarks/text_snippets.py")
        theirs = str(mwparserfromhell.parse(snippet).strip_code())
        yield f"| {construct} | {wiki}: {title} | {cell(snippet)} | {cell(clean(snippet, site))} | {cell(theirs)} |\n"


def document() -> str:
    """The whole file."""
    wikis = len({wiki for _, wiki, _, _ in SNIPPETS})
    return HEAD.format(version=mwparserfromhell.__version__, wikis=wikis) + "".join(rows())


def main() -> None:
    """Writes the file, or checks it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if the file is out of date")
    options = parser.parse_args()
    if options.check:
        if OUTPUT.read_text(encoding="utf-8") != document():
            raise SystemExit(f"{OUTPUT} is out of date: run python -m benchmarks.text_quality")
        return
    OUTPUT.write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
