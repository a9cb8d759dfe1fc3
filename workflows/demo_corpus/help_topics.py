"""Pages from the interpreter's own help topics (`help("comparisons")`), the text of Python's language reference."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from tokenfree.workflows.demo_corpus.dump_writer import DemoPage
from tokenfree.workflows.demo_corpus.repeats import Repeats
from tokenfree.workflows.demo_corpus.wikitext import to_wikitext

MIN_CHARACTERS = 200


def help_topics() -> Mapping[str, str]:
    """The topics by name; none where Python was installed without them (as in Debian's `python3-minimal`)."""
    try:
        return importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        return {}


def topic_pages(repeats: Repeats) -> list[DemoPage]:
    """A page for each topic, linked to the others, and a redirect from the name of each topic to its page."""
    topics = {name: text.strip() for name, text in help_topics().items()}
    titles = {name: _title(name, text) for name, text in topics.items()}
    links = {title: title for title in titles.values() if " " in title}
    pages, taken = [], set()
    # Long topics contain short ones as sections: from short to long, every section finds its own page first.
    for name in sorted(topics, key=lambda name: (len(topics[name]), name)):
        title = titles[name]
        _, _, body = topics[name].partition("\n\n")
        body = repeats.new_part(body)
        if title in taken or len(body) < MIN_CHARACTERS:
            continue
        taken.add(title)
        others = {phrase: target for phrase, target in links.items() if target != title}
        pages.append(DemoPage(title, _page(name, title, to_wikitext(body, links=others))))
        alias = f"Help topic {name}"
        pages.append(DemoPage(alias, f"#REDIRECT [[{title}]]\n\n{{{{R from alternative name}}}}", redirect=title))
    return pages


def _title(name: str, text: str) -> str:
    """The heading of a topic, or else its name, as the title of a page (which may not hold every character)."""
    title = text.partition("\n")[0].strip().replace('"', "").replace("`", "")
    if not title or len(title) > 80 or any(character in title for character in "[]{}|<>#:"):
        title = name
    return title[0].upper() + title[1:]


def _page(name: str, title: str, body: str) -> str:
    source = f"{{{{cite web |title={title} |work=The Python Language Reference |url=https://docs.python.org/3/}}}}"
    return (
        f"{{{{Short description|Help topic of the Python language}}}}\n"
        f"{{{{Infobox help topic\n| name = {title}\n| topic = {name}\n| image = [[File:Python logo.svg|120px]]\n}}}}\n"
        f"'''{title}''' is a topic of the [[Python (programming language)|Python]] language reference."
        f"<ref>{source}</ref>\n\n{body}\n\n== References ==\n{{{{reflist}}}}\n\n[[Category:Python language]]\n"
    )
