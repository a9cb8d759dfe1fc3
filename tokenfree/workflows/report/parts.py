"""Parts of a page: sections of cards and blocks, which hold text, figures and tables.

Also formats numbers.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from tokenfree.core.settings_values import flatten
from tokenfree.workflows.terminal.results import clock

_NUMBER = re.compile(r"[-+]?[\d.,]+( ?[kMGTP%]|%)?( ± [\d.,]+)?|nan|–|")
_UNITS = ((1e15, 1e15, " P"), (1e12, 1e12, " T"), (1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e3, 1e4, " k"))


@dataclass(frozen=True)
class Card:
    """A question or quantity, its answer, and a note."""

    title: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under a header. A `folded` table is closed until a reader opens it."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: bool = False

    @property
    def numeric(self) -> list[bool]:
        return [
            any(row[column] for row in self.rows) and all(_NUMBER.fullmatch(row[column]) for row in self.rows)
            for column in range(len(self.header))
        ]


@dataclass(frozen=True)
class Block:
    """An optional heading, a paragraph, a command to copy, a grid of figures, and tables.

    Empty tables are omitted.
    """

    title: str = ""
    text: str = ""
    command: str = ""
    figures: Sequence[Markup] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Section:
    """One part of the page, about one folder or several."""

    title: str
    subtitle: str
    cards: Sequence[Card] = ()
    blocks: Sequence[Block] = ()


def count(value: float) -> str:
    """Return a number as `987`, `12.3 k` or `4.5 M`."""
    for size, threshold, unit in _UNITS:
        if value >= threshold:
            return f"{value / size:.3g}{unit}"
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Return seconds as `12.3 s`, `3:05` or `2:03:05`."""
    return f"{seconds:.1f} s" if seconds < 60 else clock(seconds)


def decimal(value: float | None, digits: int = 4) -> str:
    # Adding 0.0 avoids -0.00.
    return "–" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"


def plus_minus(mean: float | None, half: float | None, digits: int = 4) -> str:
    """Return `4.2288 ± 0.0031`, only the mean if there is no interval, or a dash if there is no mean."""
    return decimal(mean, digits) + ("" if half is None else f" ± {half:.{digits}f}")


def baseline_note(scores: Mapping[str, float]) -> str:
    """Return ` Baseline: 0.5092 (larger class), 0.7993 (character n-grams).`, or an empty text without baselines."""
    listed = ", ".join(f"{decimal(score)} ({name})" for name, score in scores.items())
    return f" Baseline: {listed}." if listed else ""


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}%"


def cut(text: str, max_length: int) -> str:
    """Return at most `max_length` characters of `text`. A longer text ends with an ellipsis."""
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def settings_table(caption: str, mapping: Mapping[str, Any]) -> Table:
    return Table(
        caption, ["key", "value"], [[key, _shown(value)] for key, value in flatten(mapping)], folded=True
    )


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)


def bdi(text: str) -> Markup:
    """Return text isolated from the direction of its surroundings, with unprintable characters as code points."""
    visible = "".join(
        character if character.isprintable() else f"U+{ord(character):04X}" for character in text
    )
    return Markup("<bdi>{}</bdi>").format(visible)
