"""`clean`: the passes in order."""

from collections.abc import Iterator

from tokenfree.preprocess.records import Site
from tokenfree.preprocess.wikitext.links import hidden_prefixes, replace_links
from tokenfree.preprocess.wikitext.markup import (
    CONVERTED,
    choose_variant,
    drop_tables,
    mark_titles,
    resolve_entities,
    restore,
    set_aside,
    strip_controls,
    strip_line_marks,
    strip_quotes,
    strip_tags,
    tidy,
)
from tokenfree.preprocess.wikitext.template_rules import rules_for
from tokenfree.preprocess.wikitext.templates import replace_templates

# Twice what MediaWiki lets an editor save (2 MiB). A longer page is no article, and is cleaned in pieces of this
# size, so that memory stays under about 200 MB whatever it holds.
LONGEST_PIECE = 4 << 20


def clean(wikitext: str, site: Site) -> str:
    """Return the text of an article as readers see it: paragraphs, section titles and list items, one per line.

    Tables, files, categories, references, formulas and most templates are left out; templates for numbers, units,
    dates, languages, quotations and the like are kept. White space inside lines is that of the page, for `normalize` to
    tidy. Time and memory are linear in the length of any page.
    """
    if len(wikitext) <= LONGEST_PIECE:
        return _clean(wikitext, site)
    return "\n".join(filter(None, (_clean(piece, site) for piece in _pieces(wikitext))))


def _pieces(wikitext: str) -> Iterator[str]:
    """Cut at the last line break, else at the last space, else anywhere."""
    start = 0
    while start < len(wikitext):
        end = start + LONGEST_PIECE
        if end < len(wikitext):
            end = (wikitext.rfind("\n", start, end) + 1) or (wikitext.rfind(" ", start, end) + 1) or end
        yield wikitext[start:end]
        start = end


def _clean(wikitext: str, site: Site) -> str:
    text = strip_controls(wikitext)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    text, stash = set_aside(f"\n{text}\n") if "<" in text else (f"\n{text}\n", [])
    if "{{" in text:
        text = replace_templates(text, rules_for(site.language))
    if "{" in text or "}" in text:
        text = text.replace("{{", "").replace("}}", "")
    text = drop_tables(text)
    if "-{" in text and site.language.partition("-")[0] in CONVERTED:
        text = choose_variant(text)
    text = replace_links(text, hidden_prefixes(site))
    text = strip_tags(text)
    text = mark_titles(text)
    text = strip_line_marks(text)
    text = strip_quotes(text)
    text = resolve_entities(text)
    if stash:
        text = restore(text, stash)
    return tidy(text)
