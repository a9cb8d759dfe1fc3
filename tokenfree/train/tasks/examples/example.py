"""One example of a task, as its file has it: what every reader gives and every task takes."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair of texts, with its label."""

    key: str  # where it stands, such as "dev.tsv:17"; unique in its file, shown in messages and in predictions
    text: str  # without changes but for the decoding of the file's own format
    second: str | None = None  # of a pair
    label: str | float | None = None  # a class by name, or a number for regression; None: not given
    # The texts as a model of words parts them, where their case changed afterwards.
    before: tuple[str, ...] | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedExample:
    """A sentence of words, each with its tag."""

    key: str  # where it begins, such as "train.conll:120"
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None  # one a word, in BIO for spans; None: not given
    before: tuple[str, ...] | None = dataclasses.field(default=None, repr=False)  # likewise, of the words
