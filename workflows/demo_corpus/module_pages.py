"""Pages about the modules of the standard library, from the documentation in their sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from tokenfree.workflows.demo_corpus.dump_writer import DemoPage
from tokenfree.workflows.demo_corpus.module_docs import Entry, ModuleDocs
from tokenfree.workflows.demo_corpus.repeats import Repeats
from tokenfree.workflows.demo_corpus.wikitext import escape, to_wikitext

MIN_CHARACTERS = 300
_ROW = 120  # docstrings of at most so many characters go into a table of their class


def page_title(module: str) -> str:
    """The title of the page about a module, such as `Json (Python module)`."""
    return f"{module[0].upper()}{module[1:]} (Python module)"


def module_pages(modules: Iterable[ModuleDocs], repeats: Repeats) -> list[DemoPage]:
    """A page for each module that has enough to say, linked to the others, and a redirect for the longer names."""
    modules = [module for module in modules if module.characters >= MIN_CHARACTERS]
    links = {module.name: page_title(module.name) for module in modules}
    pages = []
    for module in modules:
        title = links[module.name]
        others = {name: target for name, target in links.items() if target != title}
        body = _body(module, repeats, others)
        if len(body) >= MIN_CHARACTERS:
            pages.append(DemoPage(title, f"{_head(module, repeats)}\n\n{body}\n\n{_tail(module, others)}"))
            if "." in module.name:
                text = f"#REDIRECT [[{title}]] {{{{R from short name}}}}"
                pages.append(DemoPage(f"Python module {module.name}", text, redirect=title))
    return pages


def _head(module: ModuleDocs, repeats: Repeats) -> str:
    counts = {kind: sum(entry.kind == kind for entry in module.entries) for kind in ("class", "function", "method")}
    url = f"https://docs.python.org/3/library/{module.name.partition('.')[0]}.html"
    package, _, _ = module.name.rpartition(".")
    part_of = f"the package [[{page_title(package)}|{package}]]" if package else "the [[Python standard library]]"
    return (
        f"{{{{Infobox Python module\n| name      = {module.name}\n| classes   = {counts['class']}\n"
        f"| functions = {counts['function']}\n| methods   = {counts['method']}\n"
        f"| size      = {{{{formatnum:{module.num_lines}}}}} lines\n}}}}\n"
        f"'''{module.name}''' is a module of {part_of}; its source has {module.num_lines} lines.<ref>"
        f"{{{{cite web |title=The module {module.name} |url={url} |work=docs.python.org}}}}</ref>"
    )


def _body(module: ModuleDocs, repeats: Repeats, links: Mapping[str, str]) -> str:
    summary = repeats.new_part(module.summary)
    parts = [to_wikitext(summary, links=links, top_level=3)]
    if "\n===" in parts[0]:  # a summary with titles of its own
        parts = ["== Overview ==", *parts]
    for kind, entries in groupby(module.entries, key=lambda entry: "function" if entry.kind == "function" else "class"):
        parts += _section(kind, list(entries), repeats, links)
    comments = [text for comment in module.comments if (text := repeats.new_part(comment).strip())]
    if comments:
        parts += ["== Notes in the source ==", *(to_wikitext(text, links=links, top_level=3) for text in comments)]
    return "\n\n".join(filter(None, parts))


def _section(kind: str, entries: list[Entry], repeats: Repeats, links: Mapping[str, str]) -> list[str]:
    parts, rows = [], []
    for entry in entries:
        text = repeats.new_part(entry.text).strip()
        if entry.kind == "class":
            parts += _table(rows)
            rows = []
        elif len(text) <= _ROW and "\n" not in text:
            if text:
                rows.append((entry.name.rpartition(".")[2], text))
            continue
        if not text:
            continue
        heading = f"== {entry.name} ==" if kind == "class" and entry.kind == "class" else f"=== {entry.name} ==="
        code = f'<syntaxhighlight lang="python" inline>{entry.signature}</syntaxhighlight>'
        parts += [heading, code, to_wikitext(text, links=links, top_level=4)]
    parts += _table(rows)
    return ["== Functions ==", *parts] if parts and kind == "function" else parts


def _table(rows: list[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    lines = [f"|-\n| <code>{name}</code>\n| {to_wikitext(text).replace('|', '&#124;')}" for name, text in rows]
    return ['{| class="wikitable sortable"\n! Name !! What it does\n' + "\n".join(lines) + "\n|}"]


def _tail(module: ModuleDocs, links: Mapping[str, str]) -> str:
    see_also = "".join(f"* [[{links[name]}|{escape(name)}]]\n" for name in module.imports if name in links)
    return (
        f"== See also ==\n{see_also}\n" if see_also else ""
    ) + "== References ==\n<references />\n\n[[Category:Python modules]]\n"
