"""What every objective has: rows become arrays of fixed shapes in a collator, arrays become a loss in a head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch

if TYPE_CHECKING:
    from train.model import ModelConfig

Rows = Mapping[str, Sequence[np.ndarray]]  # column -> one array per row, as the shards hold it
Arrays = dict[str, np.ndarray]


class Loss(NamedTuple):
    """Sums over the targets of a batch; the loop divides by the number of targets of the whole global batch."""

    total: torch.Tensor  # float32 scalar, nats
    num_targets: torch.Tensor  # int64 scalar
    num_correct: torch.Tensor  # int64 scalar: the right answer had the highest logit
    means: Mapping[str, tuple[torch.Tensor, torch.Tensor]] = {}  # more to report: by name a sum and its count


class Head(torch.nn.Module):
    """The part of an objective that is trained with the encoder: `head(encoder, batch) -> Loss`."""

    means: tuple[str, ...] = ()  # the names in every `Loss.means` of this head


class Symbols(NamedTuple):
    """What a single target is one of. Knowing only how frequent each is gives the baseline of train/data/unigram.py."""

    name: str  # in the singular
    columns: tuple[str, ...]  # that `ids` reads
    usable: np.ndarray  # bool [size]: may be a target
    ids: Callable[[Rows], np.ndarray]  # all symbols of some rows, int64 [any]; `target_ids` of a batch are such ids


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
        """Arrays whose first axis is the row and whose shapes depend on nothing else; `sample_ids` is int64 [b].

        One of them is `num_characters`, int64 [b]: the characters of text in each example.
        """
        ...


class Objective(Protocol):
    """The `Config` of a file in this package."""

    name: str

    def build(self, width: int, vocabulary_size: int) -> Head:
        """The head for an encoder of `width`."""
        ...

    def collator(self, vocabulary: Pieces | None, length: int, seed: int) -> Collator:
        """The collator; UserError where `length` or `vocabulary` cannot serve."""
        ...

    def check(self, model: ModelConfig, vocabulary: Pieces | None) -> list[str]:
        """What keeps `model` from this objective on data with this vocabulary, one line each."""
        ...

    def symbols(self, vocabulary: Pieces | None) -> Symbols | None:
        """What the targets are; None where no frequencies are to be compared with."""
        ...
