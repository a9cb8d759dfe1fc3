"""What a page is made of: sections of blocks, which hold text, pictures and tables; and how numbers are written."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

BESIDE, WIDE = 62, 110  # characters of a table that fits beside a picture, and of one that needs a smaller hand
_NUMBER = re.compile(r"[-+]?[\d.,]+( ?[kMGTP%]|%)?( ± [\d.,]+)?|nan|–|")


@dataclass(frozen=True)
class Table:
    """Rows under a header; `folded` ones are closed until a reader opens them, under their caption."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold nothing but numbers, and are set flush right."""
        return [
            any(row[column] for row in self.rows) and all(_NUMBER.fullmatch(row[column]) for row in self.rows)
            for column in range(len(self.header))
        ]

    @property
    def is_keyed(self) -> bool:
        """Whether it says the value of each key, and is to be read without scrolling."""
        return len(self.header) == 2 or self.header[-1] == "value"

    @property
    def width(self) -> int:
        """About how many characters a line needs."""
        longest = [max((len(row[column]) for row in self.rows), default=0) for column in range(len(self.header))]
        words = [max(map(len, cell.split()), default=0) for cell in self.header]
        return sum(max(pair) + 2 for pair in zip(longest, words, strict=True))


@dataclass(frozen=True)
class Block:
    """A heading (or none), a paragraph, a command to copy, pictures as SVG in a grid, and tables."""

    title: str = ""
    text: str = ""
    command: str = ""
    pictures: Sequence[str] = ()
    small: bool = False  # pictures that stand three in a row where there is room
    tables: Sequence[Table] = ()

    @property
    def beside(self) -> bool:
        """Whether picture and table are narrow enough to stand side by side."""
        return len(self.pictures) == 1 and all(table.width <= BESIDE and not table.folded for table in self.tables)


@dataclass(frozen=True)
class Section:
    """One part of the page: headline numbers (value, meaning) and blocks."""

    title: str
    subtitle: str
    numbers: Sequence[tuple[str, str]] = ()
    blocks: Sequence[Block] = ()


def count(value: float) -> str:
    """`987`, `12.3 k`, `4.5 M`."""
    for size, least, unit in (
        (1e15, 1e15, " P"),
        (1e12, 1e12, " T"),
        (1e9, 1e9, " G"),
        (1e6, 1e6, " M"),
        (1e3, 1e4, " k"),
    ):
        if value >= least:
            return f"{value / size:.3g}{unit}"
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """`12.3 s`, `3:05`, `2:03:05`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def decimal(value: float | None, digits: int = 4) -> str:
    """A number with `digits` after the point; a dash for none."""
    return "–" if value is None else f"{value:.{digits}f}"


def flat(mapping: Any, prefix: str = "") -> list[tuple[str, str]]:
    """The leaves of nested mappings by dotted key."""
    if not isinstance(mapping, dict) or not mapping:
        return [(prefix, _leaf(mapping))]
    return [row for key, value in mapping.items() for row in flat(value, f"{prefix}.{key}" if prefix else str(key))]


def _leaf(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)
