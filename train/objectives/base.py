"""What every objective has: rows become arrays of fixed shapes in a collator, arrays become a loss in a head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch

Rows = Mapping[str, Sequence[np.ndarray]]  # column -> one array per row, as the shards hold it
Arrays = dict[str, np.ndarray]


class Loss(NamedTuple):
    """Sums over the targets of a batch; the loop divides by the number of targets of the whole global batch."""

    total: torch.Tensor  # float32 scalar, nats
    num_targets: torch.Tensor  # int64 scalar
    num_correct: torch.Tensor  # int64 scalar: the right answer had the highest logit


class Pieces(Protocol):
    """What an objective needs of a vocabulary; `preprocess.vocabulary.Vocabulary` is one."""

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
        """Arrays whose first axis is the row and whose shapes depend on nothing else; `sample_ids` is int64 [b]."""
        ...


class Objective(Protocol):
    """The `Config` of a file in this package."""

    name: str

    def build(self, width: int, vocabulary_size: int) -> torch.nn.Module:
        """The head: `module(encoder, batch) -> Loss`."""
        ...

    def collator(self, vocabulary: Pieces | None, length: int, seed: int) -> Collator:
        """The collator; UserError where `length` or `vocabulary` cannot serve."""
        ...
