"""Collators: rows of shards to arrays of fixed shapes, and the random choice of targets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tokenfree.train.batches import counter_random as random

Rows = Mapping[str, Sequence[np.ndarray]]  # column -> one array per row, as the shards hold it


Arrays = dict[str, np.ndarray]


class Symbols(NamedTuple):
    """What a single target is one of, and what the input tells of a hidden one without any context: see `Baselines`."""

    name: str  # in the singular
    columns: tuple[str, ...]  # that `read` needs
    usable: np.ndarray  # bool [size]: may be a target
    read: Callable[[Rows], tuple[np.ndarray, np.ndarray]]  # the symbols of some rows and their clues, int64 [any] each
    clue: str | None  # what a clue is, in words; None where the input tells nothing
    clues: Callable[[Arrays], np.ndarray]  # of the targets of a batch, int64 [b, P]; `target_ids` are the symbols
    codepoints: Callable[[Arrays], np.ndarray]  # one of each target, int64 [b, P]: a letter if it has any


class Collator(ABC):
    """Turns rows into a batch, a pure function of the rows, their sample ids and the seed it was made with."""

    columns: tuple[str, ...]  # of the shards, which `rows` must hold
    length: int  # positions of an input

    @abstractmethod
    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        """Return the arrays of a batch; their first axis is the row. `sample_ids` is int64 [b].

        They are int64, or bool where they are masks: `codepoints` and `mask` [b, length], the input and where it is
        real; `num_characters` [b], the characters of text in it; `target_ids` and `target_mask` [b, P], the symbols to
        predict and where there is one; `target_positions` [b, P], where they stand in the input; `target_kinds` [b, P],
        whether the input hides them. Unused places are 0.
        """


_INDEX_BITS = np.uint64(16)  # the number of an item in its window fits: windows have at most 16,383 characters
_INDEX = np.uint64(0xFFFF)
_NEVER = np.uint64(2**64 - 1)
_MASKED, _REPLACED = 0.8, 0.1


class Selection(NamedTuple):
    """The items selected in each of b rows, in the order in which they were drawn."""

    mask: np.ndarray  # bool [b, most]: which places hold an item; the first ones of each row
    rows: np.ndarray  # int64 [n]: the row of each item
    places: np.ndarray  # int64 [n]: its place there
    items: np.ndarray  # int64 [n]: the items themselves, counted through all rows
    seed: int
    sample_ids: np.ndarray  # int64 [b]

    def only(self, kept: np.ndarray) -> Selection:
        """Return those of the items that are `kept`, bool [n]."""
        return self._replace(rows=self.rows[kept], places=self.places[kept], items=self.items[kept])

    def uniform(self, purpose: str) -> np.ndarray:
        """Return a number in [0, 1) for each item, float64 [n]."""
        count = int(self.places.max(initial=0)) + 1
        return random.uniform(self.seed, purpose, self.sample_ids, count)[self.rows, self.places]

    def fates(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which items are masked, bool [n], and which are replaced: 80% and 10% (Devlin et al. 2019)."""
        action = self.uniform("action")
        return action < _MASKED, (action >= _MASKED) & (action < _MASKED + _REPLACED)

    def laid_out(self, values: np.ndarray) -> np.ndarray:
        """Return the values of the items at their places, int64 [b, most]."""
        found = np.zeros(self.mask.shape, dtype=np.int64)
        found[self.rows, self.places] = values
        return found

    def targets(self, positions: np.ndarray, ids: np.ndarray, kinds: np.ndarray) -> Arrays:
        """Return the arrays of a batch that tell of targets, from int64 [n] each."""
        return {
            "target_positions": self.laid_out(positions),
            "target_ids": self.laid_out(ids),
            "target_mask": self.mask,
            "target_kinds": self.laid_out(kinds),
        }


def select(
    counts: np.ndarray, usable: np.ndarray, *, fraction: float, most: int, seed: int, sample_ids: np.ndarray
) -> Selection:
    """Select `fraction` of the usable items of each row, rounded, at least one and at most `most`, without return.

    `counts`, int64 [b], says how many items each row has; `usable`, bool [counts.sum()], is over the items of all rows.
    """
    of = np.repeat(np.arange(len(counts)), counts)
    before = np.cumsum(counts) - counts
    available = np.bincount(of[usable], minlength=len(counts))
    wanted = np.maximum(np.floor(fraction * available + 0.5), 1)
    wanted = np.minimum(np.minimum(wanted, available), most).astype(np.int64)
    # Every item draws 48 bits above its own number; the least are selected. Partitioning such integers is vectorised
    # inside NumPy, and their low bits tell who they were.
    numbers = np.arange(max(int(counts.max(initial=0)), 1))
    keys = random.bits(seed, "selection", sample_ids, len(numbers)) << _INDEX_BITS | numbers.astype(np.uint64)
    chosen = np.zeros(keys.shape, dtype=bool)
    chosen[numbers < counts[:, None]] = usable
    keys[~chosen] = _NEVER
    deepest = max(int(wanted.max(initial=1)), 1)
    least = np.sort(np.partition(keys, deepest - 1, axis=1)[:, :deepest], axis=1)
    mask = np.arange(most) < wanted[:, None]
    rows, places = np.nonzero(mask)
    items = before[rows] + (least[rows, places] & _INDEX).astype(np.int64)
    return Selection(mask, rows, places, items, seed, sample_ids)


def draw_unselected(counts: np.ndarray, selected: np.ndarray, rows: np.ndarray, choice: np.ndarray) -> np.ndarray:
    """Return for each of `rows` an item of it that is not selected, uniformly by `choice` in [0, 1); -1 where there is
    none.

    Items are counted through all rows, of which each has `counts`. A replacement drawn from all items would at times
    show one that is masked, and so is to be predicted.
    """
    is_free = np.ones(int(counts.sum()), dtype=bool)
    is_free[selected] = False
    free = np.append(np.flatnonzero(is_free), -1)
    num_free = np.bincount(np.repeat(np.arange(len(counts)), counts)[is_free], minlength=len(counts))
    first = np.cumsum(num_free) - num_free
    return np.where(num_free[rows] > 0, free[first[rows] + (choice * num_free[rows]).astype(np.int64)], -1)


def in_random_order(mask: np.ndarray, purpose: str, *, seed: int, sample_ids: np.ndarray) -> np.ndarray:
    """For each row of `mask` (bool [b, most], the first n hold) a random permutation of these, then the rest: int64."""
    numbers = np.arange(mask.shape[1], dtype=np.uint64)
    keys = random.bits(seed, purpose, sample_ids, mask.shape[1]) << _INDEX_BITS | numbers
    keys[~mask] = _NEVER - _INDEX
    keys[~mask] |= np.broadcast_to(numbers, mask.shape)[~mask]
    keys.sort(axis=1)
    return (keys & _INDEX).astype(np.int64)


MASKED, REPLACED, KEPT = range(3)  # of `target_kinds`


def target_kinds(masked: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The kind of each target, int64 of the shape of both: `masked`, bool, goes before `kept`, bool; else replaced."""
    return np.where(masked, MASKED, np.where(kept, KEPT, REPLACED)).astype(np.int64)
