"""Small dumps for the readers' tests."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Failure, InputSplit, Page
from tokenfree.preprocess.sources.splits import plan_splits, read_split

HEAD = """<mediawiki version="0.11" xml:lang="sw"><siteinfo><dbname>swwiki</dbname><namespaces>
<namespace key="0" /><namespace key="6">Picha</namespace><namespace key="14">Jamii</namespace></namespaces></siteinfo>
"""
TAIL = "</mediawiki>\n"


def page_xml(number: int, text: str = "Habari ya dunia", namespace: int = 0) -> str:
    return (
        f"  <page>\n    <title>Ukurasa {number}</title>\n    <ns>{namespace}</ns>\n    <id>{number}</id>\n"
        f"    <revision>\n      <id>{number + 1000}</id>\n      <contributor><id>7</id></contributor>\n"
        f'      <model>wikitext</model>\n      <text bytes="1" xml:space="preserve">{text}</text>\n'
        "    </revision>\n  </page>\n"
    )


@pytest.fixture(scope="session")
def make_page() -> Callable[..., str]:
    """The XML of one page with a number, a text and a namespace."""
    return page_xml


@pytest.fixture(scope="session")
def make_dump() -> Callable[..., str]:
    """The XML of a dump with a page for each text given."""
    return lambda texts: (
        HEAD + "".join(page_xml(number + 1, text) for number, text in enumerate(texts)) + TAIL
    )


@pytest.fixture(scope="session")
def read_all() -> Callable[..., list[Page | Failure]]:
    """All that the splits of a dump give, in order."""

    def read(*paths: Path | str, **settings: object) -> list[Page | Failure]:
        config = PreprocessConfig(wikipedia=tuple(map(str, paths)), **settings)  # pyright: ignore[reportArgumentType]
        return [found for split in plan_splits(config) for found in read_split(split)]

    return read


@pytest.fixture(scope="session")
def read_cut() -> Callable[[InputSplit, list[int]], list[Page | Failure]]:
    """All that a split gives when it is cut at the given places."""

    def read(split: InputSplit, cuts: list[int]) -> list[Page | Failure]:
        places = [split.start, *sorted(cuts), split.end]
        return [
            found
            for start, end in pairwise(places)
            for found in read_split(replace(split, start=start, end=end))
        ]

    return read
