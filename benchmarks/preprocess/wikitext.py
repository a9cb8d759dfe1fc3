"""The wikitext cleaner compared with mwparserfromhell's strip_code and wikiextractor, on the same real pages.

    python -m benchmarks.preprocess.wikitext [--megabytes 1.5] [DUMP ...]

For each dump, it prints megabytes of wikitext (UTF-8) per CPU second of each, and the ratio of ours to
theirs. wikiextractor is included only if it can be imported (see wiki_peers.py). It also prints how similar
our text is to mwparserfromhell's on prose, with and without paragraphs that have templates: the mean over
paragraphs of the Jaccard similarity of their sets of character 5-grams.

A paragraph is a line of at least 200 characters of running text without files and formulas, and without list,
table or template marks at its start. Its references are removed from the wikitext first, because
mwparserfromhell keeps their text.
"""

import argparse
import re
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.preprocess.wiki_peers import (
    HOW_TO_GET_IT,
    mwparserfromhell_text,
    wikiextractor_text,
    wikiextractor_version,
)
from tokenfree.preprocess.records import Site
from tokenfree.preprocess.wikitext.cleaner import clean
from tools.wiki_pages import data_folder, read_articles

DUMPS = (
    "enwiki-2016-shortened.xml.bz2 viwiki-20230501-excerpt-multistream.xml.bz2 ukwiki-20230501-excerpt.xml.bz2 "
    "jawiki-20230501-excerpt.xml.bz2 bnwiki-20230501-excerpt.xml.bz2 zhwiki-excerpt.xml ltgwiki-pages-articles.xml.bz2 "
    "minidumps/dewiki.xml.bz2 minidumps/frwiki.xml.bz2"
)
NGRAM = 5
SHORTEST_PARAGRAPH = 200
_REFERENCE = re.compile(r"<ref[^<>]*/>|<ref[^<>]*>.*?</ref>")
# A letter, a quotation mark, bold, or a link that is not to a file, at the start of the line.
_PROSE = re.compile(r"\w|'''|[\"«“„「『(（]|\[\[[^:\[\]]+\]\]")
_NOT_PROSE = re.compile(
    r"</?ref|<gallery|<math|\[\[[^\[\]|:]*:[^\[\]|]*\.(?:jpe?g|png|svg|gif|tiff?|og[gv])", re.IGNORECASE
)


def cpu_seconds(function: Callable[[str], str], texts: list[str], repeats: int) -> float:
    """Return the CPU seconds of the best of several runs over all texts."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        for text in texts:
            function(text)
        times.append(time.process_time() - start)
    return min(times)


def prose(wikitext: str) -> Iterator[str]:
    """Yield the lines of running text, with their links and templates, but without references."""
    depth = 0
    for line in wikitext.split("\n"):
        line = _REFERENCE.sub("", line)
        at_top = depth <= 0 and bool(_PROSE.match(line))
        depth += line.count("{{") + line.count("{|") - line.count("}}") - line.count("|}")
        balanced = all(
            line.count(a) == line.count(b) for a, b in (("{{", "}}"), ("[[", "]]"), ("<!--", "-->"))
        )
        if at_top and balanced and len(line) >= SHORTEST_PARAGRAPH and not _NOT_PROSE.search(line):
            yield line


def ngrams(text: str) -> set[str]:
    """Return the set of character 5-grams, with runs of white space as one space."""
    text = " ".join(text.split())
    return {text[i : i + NGRAM] for i in range(len(text) - NGRAM + 1)}


def similarity(ours: str, theirs: str) -> float:
    """Return the Jaccard similarity of the two sets of 5-grams, or 1 for two empty texts."""
    a, b = ngrams(ours), ngrams(theirs)
    return len(a & b) / len(a | b) if a or b else 1.0


def similarities(texts: list[str], site: Site) -> tuple[list[float], list[float]]:
    """Return the similarity of each paragraph, and of each without templates, most of which only we keep."""
    everything: list[float] = []
    plain: list[float] = []
    for line in (line for text in texts for line in prose(text)):
        everything.append(similarity(clean(line, site), mwparserfromhell_text(line)))
        if "{{" not in line:
            plain.append(everything[-1])
    return everything, plain


def compare(path: Path, megabytes: float, third: bool) -> None:
    """Print the line of one dump, for its first `megabytes` of articles, including wikiextractor if `third`."""
    site, articles = read_articles(path)
    texts: list[str] = []
    size = 0
    for _, text in articles:
        if size >= megabytes * 1e6:
            break
        texts.append(text)
        size += len(text.encode())
    peers = [mwparserfromhell_text, *([wikiextractor_text(path)] if third else [])]
    ours = size / 1e6 / cpu_seconds(lambda text: clean(text, site), texts, repeats=3)
    columns = [f"{path.name[:26]:26} {size / 1e6:6.2f} MB {ours:8.2f} MB/s"]
    for peer in peers:
        theirs = size / 1e6 / cpu_seconds(peer, texts, repeats=1)
        columns.append(f"{theirs:8.2f} MB/s {ours / theirs:5.1f}x")
    everything, plain = similarities(texts, site)
    columns += [f"{statistics.fmean(values):8.4f} of {len(values):4}" for values in (everything, plain)]
    print(" ".join(columns), flush=True)


def main() -> None:
    """Run the comparison on the given dumps, or on those of the test data."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dumps", nargs="*", type=Path)
    parser.add_argument("--megabytes", type=float, default=1.5, help="wikitext taken from each dump")
    options = parser.parse_args()
    folder = data_folder() / "wiki-dumps"
    version = wikiextractor_version()
    if version is None:
        print(HOW_TO_GET_IT)
    names = ["mwparserfromhell", *([f"wikiextractor {version}"] if version else [])]
    peers = " ".join(f"{name:>20}" for name in names)
    print(f"{'dump':26} {'wikitext':>9} {'ours':>13} {peers} {'alike':>16} {'no templates':>16}")
    for path in options.dumps or [folder / name for name in DUMPS.split()]:
        compare(path, options.megabytes, version is not None)


if __name__ == "__main__":
    main()
