"""The short pages of our own, `pages/<language>/<title>.wikitext`, and what a wiki has around its articles."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from tokenfree.workflows.demo_corpus.dump_writer import DemoPage, DumpSite

PAGES = Path(__file__).parent / "pages"
_REDIRECT = re.compile(r"#[^\s\[]+\s*\[\[([^\]|]+)\]\]")
_TEMPLATE = re.compile(r"\{\{([^\s#:{}|<][^:{}|<\n]*?)\s*[|}\n]")


def own_pages(language: str) -> list[DemoPage]:
    """The pages in one language, sorted by title; a page that starts with a redirect is one."""
    return sorted(map(_read, (PAGES / language).glob("*.wikitext")), key=lambda page: page.title)


def _read(path: Path) -> DemoPage:
    # File systems may hand out names decomposed, or in an encoding of the locale; titles are NFC, file names UTF-8.
    title = unicodedata.normalize("NFC", os.fsencode(path.name).decode().removesuffix(".wikitext"))
    text = path.read_text(encoding="utf-8").rstrip("\n")
    found = _REDIRECT.match(text)
    return DemoPage(title, text, redirect=found[1].partition("#")[0] if found else None)


def with_surroundings(articles: Sequence[DemoPage], site: DumpSite) -> list[DemoPage]:
    """The articles, then the pages of other namespaces that go with them: templates and categories used, talk pages."""
    template, category, talk = site.namespaces[10], site.namespaces[14], site.namespaces[1]
    link = re.compile(rf"\[\[(?:{re.escape(category)}|Category):([^\]|]+)", re.IGNORECASE)
    text = "\n".join(page.text for page in articles)
    templates = sorted({_first_upper(name.strip()) for name in _TEMPLATE.findall(text)} - {"!"})
    categories = sorted({_first_upper(name.strip()) for name in link.findall(text)})
    return [
        *articles,
        *(DemoPage(f"{template}:{name}", _template_text(name), namespace=10) for name in templates),
        *(DemoPage(f"{category}:{name}", f"{{{{{template}:Cat main|{name}}}}}", namespace=14) for name in categories),
        *(
            DemoPage(f"{talk}:{page.title}", _talk_text(page), namespace=1)
            for page in [page for page in articles if not page.redirect][::7]
        ),
        DemoPage(f"{site.namespaces[4]}:{site.name}", f"'''{site.name}'''", namespace=4),
    ]


def _template_text(name: str) -> str:
    return (
        f'<includeonly>{{{{#if:{{{{{{1|}}}}}}|<span class="demo">{{{{{{1}}}}}}</span>}}}}</includeonly>'
        f"<noinclude>{{{{documentation}}}} {name}</noinclude>"
    )


def _talk_text(page: DemoPage) -> str:
    signature = "[[User:Demo author|Demo author]]"
    return f"{{{{WikiProject banner|class=C}}}}\n\n== {page.title} ==\n:[[{page.title}]]? {signature}"


def _first_upper(name: str) -> str:
    return name[:1].upper() + name[1:]
