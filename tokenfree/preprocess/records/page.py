"""What a reader gives: one page of a wiki, or one book."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokenfree.preprocess.records.wiki_site import Site


@dataclass(frozen=True)
class Page:
    """One page of a wiki or one book, not yet cleaned.

    `id` is `enwiki:PAGE:REVISION` or `books:NAME`; `text` is wikitext or, for a book, plain text, and always encodes to
    UTF-8; `model` is MediaWiki's content model (`wikitext`, `css`, `Scribunto` ...), `plain` for a book.
    """

    id: str
    language: str
    title: str
    text: str
    namespace: int = 0
    redirect: bool = False
    model: str = "plain"
    site: Site | None = None
    kind: Literal["wikitext", "plain"] = "plain"
