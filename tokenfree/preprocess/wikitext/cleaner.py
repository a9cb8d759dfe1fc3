"""`clean`: the passes in order."""

from tokenfree.preprocess.records import Site
from tokenfree.preprocess.wikitext import markup
from tokenfree.preprocess.wikitext.links import hidden_prefixes, replace_links
from tokenfree.preprocess.wikitext.template_rules import rules_for
from tokenfree.preprocess.wikitext.templates import replace_templates


def clean(wikitext: str, site: Site) -> str:
    """Return the text of an article as readers see it: paragraphs, section titles and list items, one per line.

    Tables, files, references, formulas and most templates are left out. White space inside lines is left for
    `normalize` to tidy. Time and memory are linear in the length of any page.
    """
    text = markup.strip_controls(wikitext)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    text, stash = markup.set_aside(f"\n{text}\n") if "<" in text else (f"\n{text}\n", [])
    if "{{" in text:
        text = replace_templates(text, rules_for(site.language))
    if "{" in text or "}" in text:
        text = text.replace("{{", "").replace("}}", "")
    text = markup.drop_tables(text)
    if "-{" in text and site.language.partition("-")[0] in markup.CONVERTED:
        text = markup.choose_variant(text)
    text = replace_links(text, hidden_prefixes(site))
    text = markup.strip_tags(text)
    text = markup.mark_titles(text)
    text = markup.strip_line_marks(text)
    text = markup.strip_quotes(text)
    text = markup.resolve_entities(text)
    if stash:
        text = markup.restore(text, stash)
    return markup.tidy(text)
