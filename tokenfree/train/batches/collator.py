"""The protocol of collators, which turn rows of shards into arrays of fixed shapes, and what they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

Rows = Mapping[str, Sequence[np.ndarray]]  # column -> one array per row, as the shards hold it


Arrays = dict[str, np.ndarray]


class Symbols(NamedTuple):
    """What a single target is one of, and what the input tells of a hidden one without any context.

    Knowing how frequent each symbol is, overall or for each clue, gives the baselines of train/data/baselines.py.
    """

    name: str  # in the singular
    columns: tuple[str, ...]  # that `read` needs
    usable: np.ndarray  # bool [size]: may be a target
    read: Callable[[Rows], tuple[np.ndarray, np.ndarray]]  # the symbols of some rows and their clues, int64 [any] each
    clue: str | None  # what a clue is, in words; None where the input tells nothing
    clues: Callable[[Arrays], np.ndarray]  # of the targets of a batch, int64 [b, P]; `target_ids` are the symbols
    codepoints: Callable[[Arrays], np.ndarray]  # one of each target, int64 [b, P]: a letter if it has any


class Pieces(Protocol):
    """What an objective needs of a vocabulary; `tokenfree.preprocess.features.vocabulary.Vocabulary` is one."""

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def pieces(self) -> list[str]:
        """The pieces, in the order of their ids."""
        ...


class Collator(Protocol):
    """Turns rows into a batch, a pure function of the rows, their sample ids and the seed it was made with."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the shards that `rows` must hold."""
        ...

    @property
    def length(self) -> int:
        """Positions of an input."""
        ...

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        """Arrays whose first axis is the row and whose shapes depend on nothing else; `sample_ids` is int64 [b].

        `num_characters`, int64 [b], are the characters of text in each example; `target_ids` and `target_mask`, int64
        and bool [b, P], the symbols to predict and where there is one; `target_kinds`, int64 [b, P], whether the input
        hides it (see target_kinds.py).
        """
        ...
