"""What a document's key decides: its position among the shards and, but for one text of a tiny corpus, its split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

KEY_SPACE = 2**64  # of the first eight bytes of a key, by which shards divide it
TRAIN, VALIDATION = "train", "validation"
DATASET_SPLITS = (TRAIN, VALIDATION)
KeyRange = tuple[int, int]  # positions from the first one up to, but without, the second


class Partition(NamedTuple):
    """The documents that share their shards: those of one dataset split and language."""

    dataset_split: str
    language: str


def key_position(key: bytes) -> int:
    """Where a key lies in `range(KEY_SPACE)`: decides the shard."""
    return int.from_bytes(key[:8], "big")


def validation_draw(key: bytes) -> int:
    """The last eight bytes of a key as a number under 2**64: decides between train and validation."""
    return int.from_bytes(key[8:], "big")


@dataclass(frozen=True)
class Partitioning:
    """To which dataset split each document belongs: by its text alone, so that no text is in two splits.

    Validation gets about `validation_fraction` of all texts. A tiny corpus may leave a split empty by that; then what
    lies at the position `moved` of the key space, which is one text, belongs to `moved_to` instead.
    """

    validation_fraction: float
    moved: int | None = None
    moved_to: str = ""

    def drawn_split(self, key: bytes) -> str:
        """The dataset split that a key draws, the one exception left aside. Batches of sorted runs are told by it."""
        return VALIDATION if validation_draw(key) < self.validation_fraction * 2.0**64 else TRAIN

    def dataset_split(self, key: bytes) -> str:
        """The dataset split of the document with this key."""
        return self.moved_to if key_position(key) == self.moved else self.drawn_split(key)

    def ranges(self, dataset_split: str, drawn_split: str) -> tuple[KeyRange, ...]:
        """Where the documents of `dataset_split` lie among those that drew `drawn_split`: ascending ranges, or none."""
        if self.moved is None or drawn_split == self.moved_to:
            return ((0, KEY_SPACE),) if drawn_split == dataset_split else ()
        if dataset_split == self.moved_to:
            return ((self.moved, self.moved + 1),)
        return clipped(((0, self.moved), (self.moved + 1, KEY_SPACE)), 0, KEY_SPACE)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Partitioning:
        """The rule that `to_json` described."""
        return cls(**values)


def clipped(ranges: Iterable[KeyRange], low: int, high: int) -> tuple[KeyRange, ...]:
    """The parts of `ranges` from `low` up to, but without, `high`; empty ones are left out."""
    parts = ((max(first, low), min(end, high)) for first, end in ranges)
    return tuple((first, end) for first, end in parts if first < end)
