"""The protocol of collators, which turn rows of shards into arrays of fixed shapes, and what they are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

Rows = Mapping[str, Sequence[np.ndarray]]  # column -> one array per row, as the shards hold it


Arrays = dict[str, np.ndarray]


class Symbols(NamedTuple):
    """What a single target is one of. Knowing only how frequent each is gives the baseline of train/data/unigram.py."""

    name: str  # in the singular
    columns: tuple[str, ...]  # that `ids` reads
    usable: np.ndarray  # bool [size]: may be a target
    ids: Callable[[Rows], np.ndarray]  # all symbols of some rows, int64 [any]; `target_ids` of a batch are such ids


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

        One of them is `num_characters`, int64 [b]: the characters of text in each example.
        """
        ...
