"""Wikitext to plain text: `clean(wikitext, site)`. A few linear passes over the page, each driven by a compiled scan
for one family of marks; nothing recurses on nesting depth and nothing looks back, so hostile pages cost no more per
character than ordinary ones."""

from preprocess.wikitext.cleaner import clean

__all__ = ["clean"]
