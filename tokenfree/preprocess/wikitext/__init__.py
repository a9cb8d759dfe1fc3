"""Wikitext to plain text: a few linear passes over a page, so that hostile pages cost no more than others."""
