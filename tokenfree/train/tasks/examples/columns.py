"""Which columns of a table hold the text, the second text of a pair and the label: named, or guessed by usual names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.tasks.examples.files import shown

PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text1", "text2"),
    ("text_a", "text_b"),
)
TEXTS = (
    "text",
    "texts",
    "sentence",
    "review",
    "tweet",
    "comment",
    "document",
    "content",
    "body",
    "premise",
    "question",
)
LABELS = ("label", "gold_label", "labels", "category", "class", "sentiment", "target", "score", "rating", "stars")
WORDS = ("tokens", "words", "forms")
TAGS = ("ner_tags", "tags", "pos_tags", "upos", "labels")


@dataclasses.dataclass(frozen=True)
class Columns:
    """The names of columns; None: guessed. Numbers from 1 are columns of a file without a line of names."""

    text: str | None = None
    second: str | None = None  # guessed only together with the text
    label: str | None = None

    @property
    def named(self) -> list[str]:
        """The names that were given."""
        return [name for name in (self.text, self.second, self.label) if name is not None]

    @property
    def are_numbers(self) -> bool:
        """Whether all that are named are numbers, so that the first line of a file is an example."""
        return bool(self.named) and all(name.isascii() and name.isdigit() for name in self.named)


@dataclasses.dataclass(frozen=True)
class ExampleTable:
    """Rows of named values."""

    source: str  # the file, for messages
    name: str  # of the file in the keys of examples
    names: Sequence[str]  # of all columns, in order
    rows: Iterable[tuple[int, Mapping[str, Any]]]  # where each begins, and its values by name
    unit: str = "line"  # what is counted

    def key(self, number: int) -> str:
        """The key of the example of a row."""
        return f"{self.name}:{number}"

    def place(self, number: int) -> str:
        """Where a row stands, for messages."""
        return f"{self.source}: {self.unit} {number}"


def text_columns(table: ExampleTable, columns: Columns) -> tuple[str, str | None, str | None]:
    """The columns of text, second text and label in this table; None where it has none.

    Raises:
        UserError: a named one is not there, none has a usual name, or two have the name.
    """
    text, second = columns.text, columns.second
    if text is None:
        pairs = [pair for pair in (_first(table, [one, other]) for one, other in PAIRS) if len(pair) == 2]
        if second is None and pairs:
            text, second = pairs[0]
        else:
            text = next(iter(name for name in _first(table, TEXTS) if name != second), None)
    label = columns.label if columns.label is not None else next(iter(_first(table, LABELS)), None)
    if text is None:
        raise UserError(f"{table.source}: no column has a usual name of a text; name one of {_list(table.names)}")
    check_columns(table, [name for name in (text, second, label) if name is not None])
    return text, second, label


def tag_columns(table: ExampleTable, words: str | None, tags: str | None) -> tuple[str, str | None]:
    """The columns of words and tags in this table; no tags where it has none.

    Raises:
        UserError: a named one is not there, none has a usual name, or two have the name.
    """
    words = words if words is not None else next(iter(_first(table, WORDS)), None)
    tags = tags if tags is not None else next(iter(_first(table, TAGS)), None)
    if words is None:
        raise UserError(f"{table.source}: no column has a usual name of words; name one of {_list(table.names)}")
    check_columns(table, [words] if tags is None else [words, tags])
    return words, tags


def check_columns(table: ExampleTable, names: Sequence[str]) -> None:
    """See that each of these columns is there once.

    Raises:
        UserError: it is not.
    """
    for name in names:
        count = table.names.count(name)
        if not count:
            raise UserError(f"{table.source}: no column {shown(name)}; name one of {_list(table.names)}")
        if count > 1:
            raise UserError(f"{table.source}: {count} columns are named {shown(name)}; rename all but one")
    if len(set(names)) < len(names):
        raise UserError(f"{table.source}: one column is named twice ({', '.join(names)}); name different ones")


def _first(table: ExampleTable, usual: Sequence[str]) -> list[str]:
    """The columns that have these names in whatever case, in their order."""
    return [name for wanted in usual for name in table.names if name.strip().lower() == wanted]


def _list(names: Sequence[str]) -> str:
    some = [name if name.isprintable() and len(name) < 40 and name else shown(name) for name in names[:12]]
    return ", ".join(some) + (", ..." if len(names) > 12 else "")
