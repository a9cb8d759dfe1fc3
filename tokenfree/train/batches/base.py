"""Collators, which turn rows of shards into arrays of fixed shapes, and the random selection of targets."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tokenfree.train.batches import counter_random as random

Rows = Mapping[str, Sequence[np.ndarray]]  # column -> one array per row, as in the shards


Arrays = dict[str, np.ndarray]


class Symbols(NamedTuple):
    """The symbols that can be targets, and the clue that the input gives about a hidden one without any context."""

    name: str  # singular noun
    columns: tuple[str, ...]  # columns that `read` needs
    usable: np.ndarray  # bool [size]: the symbol may be a target
    read: Callable[[Rows], tuple[np.ndarray, np.ndarray]]  # symbols of rows and their clues, int64 [any] each
    clue: str | None  # description of a clue; None if the input gives none
    # Clues of a batch's targets, int64 [b, P]; their symbols are `target_ids`.
    clues: Callable[[Arrays], np.ndarray]
    # One codepoint of each target, int64 [b, P]: a letter if it has any.
    codepoints: Callable[[Arrays], np.ndarray]


class Collator(ABC):
    """A function from rows to a batch.

    The batch depends only on the rows, their sample ids and the collator's seed.
    """

    columns: tuple[str, ...]  # shard columns that `rows` must have
    length: int  # number of positions of an input

    @abstractmethod
    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        """Return the arrays of a batch; their first axis is the row. `sample_ids` is int64 [b].

        Masks are bool, and other arrays are int64. Unused places are 0.

        - `codepoints`, `mask` [b, length]: the input, and which positions are not padding.
        - `num_characters` [b]: number of characters of text in the input.
        - `target_ids`, `target_mask` [b, P]: the symbols to predict, and which places hold one.
        - `target_positions` [b, P]: the positions of the targets in the input.
        - `target_kinds` [b, P]: whether the input hides the targets (`MASKED`, `REPLACED` or `KEPT`).
        """


# Fits an item's number in its window, which has at most 16,383 characters.
_INDEX_BITS = np.uint64(16)
_INDEX = np.uint64(0xFFFF)
_NEVER = np.uint64(2**64 - 1)
_MASKED, _REPLACED = 0.8, 0.1


class Selection(NamedTuple):
    """The items selected in each of b rows, in the order in which they were drawn."""

    mask: np.ndarray  # bool [b, most]: the place holds an item; these are the first places of each row
    rows: np.ndarray  # int64 [n]: row of each item
    places: np.ndarray  # int64 [n]: place of each item in its row of `mask`
    items: np.ndarray  # int64 [n]: the items, numbered through all rows
    seed: int
    sample_ids: np.ndarray  # int64 [b]

    def only(self, kept: np.ndarray) -> "Selection":
        return self._replace(rows=self.rows[kept], places=self.places[kept], items=self.items[kept])

    def uniform(self, purpose: str) -> np.ndarray:
        """Return a number in [0, 1) for each item, float64 [n]."""
        count = int(self.places.max(initial=0)) + 1
        return random.uniform(self.seed, purpose, self.sample_ids, count)[self.rows, self.places]

    def masked_and_replaced(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which items are masked (80%) and which are replaced (10%), bool [n] each (Devlin et al. 2019)."""
        action = self.uniform("action")
        return action < _MASKED, (action >= _MASKED) & (action < _MASKED + _REPLACED)

    def laid_out(self, values: np.ndarray) -> np.ndarray:
        scattered = np.zeros(self.mask.shape, dtype=np.int64)
        scattered[self.rows, self.places] = values
        return scattered

    def targets(self, positions: np.ndarray, ids: np.ndarray, kinds: np.ndarray) -> Arrays:
        """Return the `target_...` arrays of a batch from values of the items, int64 [n] each."""
        return {
            "target_positions": self.laid_out(positions),
            "target_ids": self.laid_out(ids),
            "target_mask": self.mask,
            "target_kinds": self.laid_out(kinds),
        }


def select(
    counts: np.ndarray,
    usable: np.ndarray,
    *,
    fraction: float,
    max_selected: int,
    seed: int,
    sample_ids: np.ndarray,
) -> Selection:
    """Select `fraction` of each row's usable items without replacement, at least one, at most `max_selected`.

    `counts`, int64 [b], is the number of items of each row. `usable`, bool [counts.sum()], covers the items
    of all rows.
    """
    of = np.repeat(np.arange(len(counts)), counts)
    row_starts = np.cumsum(counts) - counts
    available = np.bincount(of[usable], minlength=len(counts))
    num_selected = np.maximum(np.floor(fraction * available + 0.5), 1)
    num_selected = np.minimum(np.minimum(num_selected, available), max_selected).astype(np.int64)
    # The key of an item is 48 random bits above the item's number, and the smallest keys are selected.
    # NumPy's partition of such integers is vectorised, and the low bits of a key identify its item.
    numbers = np.arange(max(int(counts.max(initial=0)), 1))
    keys = random.bits(seed, "selection", sample_ids, len(numbers)) << _INDEX_BITS | numbers.astype(np.uint64)
    chosen = np.zeros(keys.shape, dtype=bool)
    chosen[numbers < counts[:, None]] = usable
    keys[~chosen] = _NEVER
    deepest = max(int(num_selected.max(initial=1)), 1)
    smallest_keys = np.sort(np.partition(keys, deepest - 1, axis=1)[:, :deepest], axis=1)
    mask = np.arange(max_selected) < num_selected[:, None]
    rows, places = np.nonzero(mask)
    items = row_starts[rows] + (smallest_keys[rows, places] & _INDEX).astype(np.int64)
    return Selection(mask, rows, places, items, seed, sample_ids)


def draw_unselected(
    counts: np.ndarray, selected: np.ndarray, rows: np.ndarray, choice: np.ndarray
) -> np.ndarray:
    """Return an item that is not selected from each of `rows`, uniformly by `choice` in [0, 1); -1 if there is none.

    If replacements were drawn from all items, some would reveal an item that is masked and must be predicted.
    """
    is_free = np.ones(int(counts.sum()), dtype=bool)
    is_free[selected] = False
    free = np.append(np.flatnonzero(is_free), -1)
    num_free = np.bincount(np.repeat(np.arange(len(counts)), counts)[is_free], minlength=len(counts))
    first = np.cumsum(num_free) - num_free
    return np.where(num_free[rows] > 0, free[first[rows] + (choice * num_free[rows]).astype(np.int64)], -1)


def in_random_order(mask: np.ndarray, purpose: str, *, seed: int, sample_ids: np.ndarray) -> np.ndarray:
    """Return a permutation of the places of each row of `mask`, int64 [b, most].

    The first n places of a row of `mask` (bool [b, most]) are true. These come first, in random order.
    """
    numbers = np.arange(mask.shape[1], dtype=np.uint64)
    keys = random.bits(seed, purpose, sample_ids, mask.shape[1]) << _INDEX_BITS | numbers
    keys[~mask] = _NEVER - _INDEX
    keys[~mask] |= np.broadcast_to(numbers, mask.shape)[~mask]
    keys.sort(axis=1)
    return (keys & _INDEX).astype(np.int64)


MASKED, REPLACED, KEPT = range(3)  # values of `target_kinds`


def target_kinds(masked: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Return the kind of each target, int64: MASKED where `masked` (bool), else KEPT where `kept`, else REPLACED."""
    return np.where(masked, MASKED, np.where(kept, KEPT, REPLACED)).astype(np.int64)
