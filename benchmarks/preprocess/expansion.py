"""Templates expanded by the definitions of a dump: their costs, markup that is left, and the guess without them.

    python -m benchmarks.preprocess.expansion [DUMP ...]      (default: ltgwiki, with 347 templates, and English)

CPU seconds of cleaning all articles of a dump without and with definitions, and of whole jobs (the best of
three, of this process and its children). Peers count if they can be imported: wikiextractor with the same
templates (benchmarks/preprocess/wiki_peers.py), and wikitextprocessor 0.4.96, which needs setuptools below 80:
its expansion, which gives wikitext, compared with ours alone, and with its conversion to text, compared with our
whole clean. Markup left counts `{{`, `}}`, `[[`, `]]` and tags, except those that a page shows as text
(`<nowiki>`, `<pre>`, source code and character references). The last table compares, for calls in running text
that have a definition, the words of a guess with those of the definition.
"""

import argparse
import contextlib
import importlib
import io
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.preprocess.wiki_peers import wikiextractor_text, wikiextractor_version
from tokenfree.core.machine import version_of
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.records import Site
from tokenfree.preprocess.wikitext.cleaner import clean, clean_page, page_of
from tokenfree.preprocess.wikitext.markup import set_aside
from tokenfree.preprocess.wikitext.template_rules import guess
from tokenfree.preprocess.wikitext.templates import (
    Call,
    Definitions,
    Node,
    PageExpansion,
    compile_node,
    is_inline,
    positional,
)
from tools.wiki_pages import data_folder, read_articles, read_templates

DUMPS = ("ltgwiki-pages-articles.xml.bz2", "enwiki-2016-shortened.xml.bz2")
ROUNDS = 3
MARKUP = re.compile(
    r"\{\{|\}\}|\[\[|\]\]|</?(?:ref|div|span|table|br|sup|sub|small|nowiki|includeonly|noinclude)\b"
)
SHOWN_MARKUP = re.compile(
    r"<(nowiki|pre|source|syntaxhighlight)\b[^<>]*>.*?</\1\s*>|&(?:lt|amp|#0*(?:60|91|93|123|125));|<(?='')",
    re.DOTALL | re.IGNORECASE,
)
INVOKE = re.compile(r"\{\{\s*#invoke:[^{}]*\}\}", re.IGNORECASE)
GUESSES: dict[str, Callable[[str, dict[str, str], str], str]] = {
    "nothing": lambda name, arguments, before: "",
    "first argument": lambda name, arguments, before: (positional(arguments) or [""])[0],
    "last argument": lambda name, arguments, before: (positional(arguments) or [""])[-1],
    "all arguments": lambda name, arguments, before: " ".join(positional(arguments)),
    "the guess": guess,
}


def best(function: Callable[[], object]) -> float:
    """Return the CPU seconds of the best of several calls."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def job(dump: Path, expand: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="tokenfree-") as folder:
        config = PreprocessConfig(
            wikipedia=(str(dump),), expand_templates=expand, vocabulary=VocabularyConfig(size=8000)
        )
        run_preprocess(config, f"{folder}/out", notice=lambda line: None)


def expand_with_wikitextprocessor(
    articles: list[tuple[str, str]], templates: list[tuple[str, str]], prefix: str, *, to_text: bool
) -> Callable[[], None]:
    """Return a function that expands all articles without Lua, and converts them to text if asked."""
    peer = importlib.import_module("wikitextprocessor")
    with contextlib.redirect_stdout(io.StringIO()):
        context = peer.Wtp(quiet=True)
        for title, text in templates:
            context.add_page("wikitext", f"Template:{title.removeprefix(prefix)}", text)
        context.analyze_templates()

    def expand() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            for title, text in articles:
                context.start_page(title)
                expanded = context.expand(text, expand_invoke=False, quiet=True)
                if to_text:
                    # Modules would be called again, which are not part of this comparison.
                    context.node_to_text(context.parse(INVOKE.sub("", expanded)))

    return expand


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", text))


class GuessedPage(PageExpansion):
    """A page whose calls are also guessed, as if they had no definition."""

    scores: dict[str, list[int]]

    def _expansion(self, text: str, node: Node) -> str:
        expansion = super()._expansion(text, node)
        call = compile_node(text, node)
        if self._outcome != "definition" or not isinstance(call, Call) or call.function or not call.arguments:
            return expansion
        if is_inline(text, node[0], node[1]):
            expected = words(clean(expansion, self.site))
            values, before = self._values(call, None), text[max(0, node[0] - 12) : node[0]]
            for name, make in GUESSES.items():
                inserted = words(clean(make(self._name(call, None), values, before), self.site))
                correct = inserted & expected
                counts = (*(sum(count.values()) for count in (correct, inserted, expected)), 1)
                self.scores[name] = [a + b for a, b in zip(self.scores[name], counts, strict=True)]
        return expansion


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "dumps", nargs="*", type=Path, default=[data_folder() / "wiki-dumps" / n for n in DUMPS]
    )
    for dump in parser.parse_args().dumps:
        report(dump)


def report(dump: Path) -> None:
    site, articles = read_articles(dump)
    prefix, templates = read_templates(dump, redirects=True)
    size = sum(len(text) for _, text in articles)
    print(f"\n{dump.name}: {len(articles):,} articles, {size:,} characters, {len(templates):,} templates")

    def clean_all(texts: Mapping[str, str]) -> list[str]:
        definitions = Definitions.of_titles(texts, site)
        return [clean_page(text, page_of(site, title, definitions)) for title, text in articles]

    def expand_all() -> None:
        definitions = Definitions.of_titles(dict(templates), site)
        for title, text in articles:
            page_of(site, title, definitions).replace(set_aside(f"\n{text}\n"))

    without, expanded = best(lambda: clean_all({})), best(lambda: clean_all(dict(templates)))
    print(
        f"  clean without definitions {without:.2f} s, with them {expanded:.2f} s ({expanded / without:.2f}x)"
    )
    plain, whole = best(lambda: job(dump, False)), best(lambda: job(dump, True))
    print(f"  job without expansion {plain:.2f} s, with it {whole:.2f} s ({whole / plain:.2f}x)")
    if wikiextractor_version():
        extract = wikiextractor_text(dump)
        seconds = best(lambda: [extract(text) for _, text in articles])
        print(f"  wikiextractor with templates {seconds:.2f} s ({seconds / expanded:.1f}x our clean)")
    with contextlib.suppress(ImportError):
        version = version_of("wikitextprocessor")
        for to_text, ours in ((False, best(expand_all)), (True, expanded)):
            seconds = best(expand_with_wikitextprocessor(articles, templates, prefix, to_text=to_text))
            what = "expansion and text" if to_text else "expansion"
            print(
                f"  wikitextprocessor {version}, {what} {seconds:.2f} s, ours {ours:.2f} s ({seconds / ours:.1f}x)"
            )
    definitions = Definitions.of_titles(dict(templates), site)
    texts = [
        clean_page(SHOWN_MARKUP.sub("", text), page_of(site, title, definitions)) for title, text in articles
    ]
    characters = sum(map(len, texts))
    marks = Counter(mark for text in texts for mark in MARKUP.findall(text))
    print(f"  markup left per million characters: {1e6 * sum(marks.values()) / characters:.2f} {dict(marks)}")
    show_guesses(site, articles, dict(templates))


def show_guesses(site: Site, articles: list[tuple[str, str]], templates: Mapping[str, str]) -> None:
    scores = {name: [0, 0, 0, 0] for name in GUESSES}
    definitions = Definitions.of_titles(templates, site)
    for title, text in articles:
        page = GuessedPage(site, title, definitions, lambda name: None, lambda *call: "")
        page.scores = scores
        clean_page(text, page)
    for name, (correct, inserted, expected, calls) in scores.items():
        if expected:
            print(
                f"  {name:15} of {calls} calls: inserted words right {correct / max(inserted, 1):.1%}, "
                f"words kept {correct / expected:.1%}"
            )


if __name__ == "__main__":
    main()
