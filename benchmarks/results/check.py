"""Compare docs/results.md, benchmarks/results/README.md and numbers of README.md with the lines of results."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path

from benchmarks.results.data import LANGUAGES, NAMES, SETS
from benchmarks.results.linear import CRF, REGRESSION
from benchmarks.results.page import Lines, of_run
from benchmarks.results.rows import ENGLISH_TEXTS, LARGER, PRETRAINED, SCRATCH
from benchmarks.results.simple import FREQUENT_TAG
from benchmarks.results.tables import Scores, pages
from benchmarks.results.verdicts import BETTER

README = "README.md"
NUMBER = r"(-?[0-9]+(?:\.[0-9]+)?)"


def check(repository: Path, lines: Lines, earlier: Lines) -> list[str]:
    """Return a message for each place where a page or README.md and the lines differ."""
    problems = []
    for page, expected in pages(repository, lines, earlier).items():
        text = (repository / page).read_text(encoding="utf-8")
        problems += [f"{page}:{difference}" for difference in differences(text, expected)]
    readme = (repository / README).read_text(encoding="utf-8")
    for sentence, numbers in readme_sentences(lines, earlier).items():
        problems += [f"{README}: {problem}" for problem in wrong_numbers(readme, sentence, numbers)]
    return problems


def differences(text: str, expected: str) -> Iterator[str]:
    """Yield line number and both values of each line, or cell of a table, that is not as expected."""
    lines, expected_lines = text.splitlines(), expected.splitlines()
    matcher = SequenceMatcher(None, lines, expected_lines, autojunk=False)
    for tag, start, end, expected_start, expected_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        pairs = zip_longest(lines[start:end], expected_lines[expected_start:expected_end], fillvalue="")
        for number, (line, expected_line) in enumerate(pairs, start + 1):
            cells, expected_cells = (side.split(" | ") for side in (line, expected_line))
            if len(cells) != len(expected_cells):
                cells, expected_cells = [line], [expected_line]
            for cell, expected_cell in zip(cells, expected_cells, strict=True):
                if cell != expected_cell:
                    yield f"{number}: the page has {cell!r}; the lines give {expected_cell!r}"


def wrong_numbers(text: str, sentence: str, numbers: tuple[str, ...]) -> Iterator[str]:
    """Yield a message if a text lacks a sentence, or for each number of it that is not as expected.

    Args:
        text: Text of a page.
        sentence: Part of a sentence with `{}` for each number.
        numbers: Expected numbers.
    """
    words = r"\s+".join(re.escape(word).replace(r"\{\}", NUMBER) for word in sentence.split())
    match = re.search(words, text)
    if match is None:
        yield f"nothing reads {sentence.format(*numbers)!r}"
        return
    for number, expected in zip(match.groups(), numbers, strict=True):
        if number != expected:
            yield f"{sentence!r} has {number}; the lines give {expected}"


def readme_sentences(lines: Lines, earlier: Lines) -> Mapping[str, tuple[str, ...]]:
    """Return the parts of sentences of README.md that have numbers of the page, with these numbers."""
    scores = Scores(lines)
    margins = [
        line["scores"]["margin"] for line in of_run(earlier, "fast-") if line["scores"]["steps"] == 6000
    ]
    means = [
        statistics.fmean(scores.mean(name, predictor, "f1") or float("nan") for name in LANGUAGES)
        for predictor in (SCRATCH, CRF)
    ]
    gaps = [
        100
        * ((scores.mean(name, LARGER, "accuracy") or 0) - (scores.mean(name, REGRESSION, "accuracy") or 0))
        for name in ENGLISH_TEXTS
    ]
    above = [scores.verdict(name, PRETRAINED, FREQUENT_TAG) for name in SETS if SETS[name].kind == NAMES]
    seeds = min(len(scores.values(name, SCRATCH, "f1")) for name in LANGUAGES)
    page = "docs/results.md"
    return {
        f"of `canine-fast-tiny`, which has no linear path, give [{{}} to {{}}]({page}#pretraining-in-20-cpu-minutes)": (
            f"{min(margins):.2f}",
            f"{max(margins):.2f}",
        ),
        f"[four minutes]({page}#four-minutes-on-a-gpu) of a larger model on an H100 give {{}}.": (
            f"{earlier['all-gpu-0-english']['scores']['margin']:.1f}",
        ),
        f"most frequent tag of each word on [{{}} of {{}} sets]({page}#fine-tuning-and-the-papers-claims)": (
            str(above.count(BETTER)),
            str(len(above)),
        ),
        f"hand-made features are [{{}} and {{}}]({page}#fine-tuning-and-the-papers-claims) (seeds: {{}})": (
            f"{means[0]:.3f}",
            f"{means[1]:.3f}",
            str(seeds),
        ),
        "the larger model classifies reviews {} points below to {} above logistic regression": (
            f"{-min(gaps):.1f}",
            f"{max(gaps):.1f}",
        ),
    }
