"""Validation batches, and the scores of baselines on their targets: without context, and by counts of neighbours.

N targets, V symbols
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tokenfree.train.batches.base import HIDDEN, KEPT, MASKED, Arrays, Collator, Rows, Symbols, neighbours_of
from tokenfree.train.data.loader import collate, slice_of
from tokenfree.train.data.shards import ShardReader

_PRIOR_WEIGHTS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Baselines(NamedTuple):
    """Losses of baselines in nats per target, in the order of the validation batches. Three are free of context.

    The first uses the frequency of each symbol. The second also uses the clue (see `Symbols`). The third
    copies the visible input of a target with the probability that the copy is right.
    """

    symbol: str  # kind of the targets, such as "subword"
    clue: str | None  # description; None if the input has no clue
    entropy: float  # of the frequencies in the training split, nats
    unigram_N: np.ndarray  # float64
    clue_N: np.ndarray  # float64; equals `unigram_N` without a clue
    copied_N: np.ndarray  # float64; equals `clue_N` if the input hides the target
    hidden_N: np.ndarray  # bool: the input hides the target
    sample_ids_N: np.ndarray  # int64: window of each target
    # float64: of `NeighbourCounts`; None if the objective does not name the neighbours of its targets
    neighbours_N: np.ndarray | None = None

    @property
    def best_masked_only_N(self) -> np.ndarray:
        """Losses of the baseline that is best on hidden targets. A model that beats it uses context."""
        return min((self.clue_N, self.unigram_N), key=lambda loss_N: float(loss_N[self.hidden_N].sum()))

    def numbers(self) -> dict[str, float]:
        """Return the means over all targets, and those over hidden ones as `masked_only_...`.

        None without targets.
        """
        by_name = {"unigram": self.unigram_N, "clue": self.clue_N, "copied": self.copied_N}
        means = {name: float(loss_N.mean()) for name, loss_N in by_name.items() if len(loss_N)}
        if self.hidden_N.any():
            hidden = {f"masked_only_{name}": by_name[name][self.hidden_N] for name in ("unigram", "clue")}
            if self.neighbours_N is not None:
                hidden["masked_only_neighbours"] = self.neighbours_N[self.hidden_N]
            means |= {name: float(loss_N.mean()) for name, loss_N in hidden.items()}
        return means


def baselines(
    train: ShardReader, symbols: Symbols, held_out: Iterable[Arrays], *, max_rows: int = 50_000
) -> Baselines:
    """Return the baselines of an objective on the targets of `held_out` batches with `sample_ids` (int64 [b]).

    Counts with a clue are smoothed with the frequencies of symbols, by the best of a few weights on these
    same targets.
    """
    ids_N, clues_N, kinds_N, sample_ids_N = _targets(symbols, held_out)
    counts, pairs = _count(train, symbols, max_rows)
    frequencies = counts[counts > 0] / counts.sum()
    prior = (counts + symbols.usable) / (counts.sum() + symbols.usable.sum())
    unigram_N = -np.log(prior[ids_N])
    clue_N = unigram_N
    if symbols.clue is not None and len(ids_N):
        with_clue = np.bincount(
            pairs.keys // pairs.num_symbols, weights=pairs.counts, minlength=int(clues_N.max(initial=0)) + 1
        )
        seen_N, of_clue_N = pairs.look_up(ids_N, clues_N), with_clue[clues_N]
        losses = (
            -np.log((seen_N + weight * prior[ids_N]) / (of_clue_N + weight)) for weight in _PRIOR_WEIGHTS
        )
        clue_N = min(losses, key=np.mean)
    return Baselines(
        symbol=symbols.name,
        clue=symbols.clue,
        entropy=float(-(frequencies * np.log(frequencies)).sum()),
        unigram_N=unigram_N,
        clue_N=clue_N,
        copied_N=_copied(clue_N, kinds_N),
        hidden_N=kinds_N == MASKED,
        sample_ids_N=sample_ids_N,
    )


def symbol_counts(train: ShardReader, symbols: Symbols, *, max_rows: int = 20_000) -> np.ndarray:
    """Return the count of each symbol in the training split, int64 [V], from at most `max_rows` windows."""
    return _count(train, symbols, max_rows)[0]


class _Pairs(NamedTuple):
    """Counts of the pairs of symbol and clue that occur in the split, in ascending order."""

    keys: np.ndarray  # int64: clue * V + symbol
    counts: np.ndarray  # int64
    num_symbols: int

    def look_up(self, ids: np.ndarray, clues: np.ndarray) -> np.ndarray:
        pair_keys = clues * self.num_symbols + ids
        at = np.minimum(np.searchsorted(self.keys, pair_keys), max(len(self.keys) - 1, 0))
        return (
            np.where(self.keys[at] == pair_keys, self.counts[at], 0) if len(self.keys) else np.zeros_like(ids)
        )


def _targets(
    symbols: Symbols, held_out: Iterable[Arrays]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    parts: list[list[np.ndarray]] = [[np.zeros(0, dtype=np.int64)] for _ in range(4)]
    for arrays in held_out:
        real = arrays["target_mask"]
        windows = np.broadcast_to(arrays["sample_ids"][:, None], real.shape)
        values = arrays["target_ids"], symbols.clues(arrays), arrays["target_kinds"], windows
        for part, value in zip(parts, values, strict=True):
            part.append(value[real])
    ids, clues, kinds, sample_ids = (np.concatenate(part) for part in parts)
    return ids, clues, kinds, sample_ids


def _count(reader: ShardReader, symbols: Symbols, max_rows: int) -> tuple[np.ndarray, _Pairs]:
    size = len(symbols.usable)
    counts = np.zeros(size, dtype=np.int64)
    keys, numbers = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    for _, rows in reader.spread_rows(symbols.columns, max_rows):
        ids, clues = symbols.read(rows)
        usable = symbols.usable[ids]
        counts += np.bincount(ids[usable], minlength=size)
        new, times = np.unique(clues[usable] * size + ids[usable], return_counts=True)
        keys, where = np.unique(np.concatenate([keys, new]), return_inverse=True)
        numbers = np.bincount(where, weights=np.concatenate([numbers, times]), minlength=len(keys)).astype(
            np.int64
        )
    return counts, _Pairs(keys, numbers, size)


def _copied(clue_N: np.ndarray, kinds_N: np.ndarray) -> np.ndarray:
    visible, kept = kinds_N != MASKED, kinds_N == KEPT
    share = kept.sum() / max(visible.sum(), 1)
    rest_N = (1 - share) * np.exp(-clue_N)
    with np.errstate(divide="ignore"):
        return np.where(visible, -np.log(np.where(kept, share + rest_N, rest_N)), clue_N)


_COLUMNS = ("subword_ids", "subword_starts", "subword_ends")
_MAX_SIZE = 64  # characters; longer subwords count as this long
# How much the number of different subwords after a context counts against their number (Witten and Bell 1991).
_WEIGHT = 2


class NeighbourCounts:
    """Witten-Bell estimates of a subword from its length and its neighbours, in `max_rows` windows of `train`.

    p(x | l, r, n) ~ p(x | l, n) p(x | r, n) / p(x | n), normalised over all subwords and interpolated with the counts
    of both neighbours together.
    """

    def __init__(self, train: ShardReader, num_subwords: int, *, max_rows: int = 50_000) -> None:
        self._size = num_subwords
        parts = [_read(rows) for _, rows in train.spread_rows(_COLUMNS, max_rows)]
        ids, left, right, sizes = (np.concatenate(part) for part in zip(*parts, strict=True))
        self._frequencies = (np.bincount(ids, minlength=num_subwords) + 0.5) / (len(ids) + 0.5 * num_subwords)
        contexts = (
            sizes,
            *(self._keys(*both, sizes) for both in ((left, HIDDEN), (HIDDEN, right), (left, right))),
        )
        self._counts = [np.unique(context * num_subwords + ids, return_counts=True) for context in contexts]
        self._by_size: dict[int, np.ndarray] = {}

    def losses(
        self, ids_N: np.ndarray, left_N: np.ndarray, right_N: np.ndarray, sizes_N: np.ndarray
    ) -> np.ndarray:
        """Return the loss of each target, float64 nats; a neighbour may be EDGE or HIDDEN."""
        rows = zip(*(values.tolist() for values in (ids_N, left_N, right_N, sizes_N)), strict=True)
        return np.array([-np.log(self._distribution(*row[1:])[row[0]]) for row in rows])

    def _distribution(self, left: int, right: int, size: int) -> np.ndarray:
        size = min(size, _MAX_SIZE)
        if size not in self._by_size:
            self._by_size[size] = self._interpolated(0, size, self._frequencies, weight=1)
        by_size = by_left = by_right = self._by_size[size]
        if left != HIDDEN:
            by_left = self._interpolated(1, self._keys(left, HIDDEN, size), by_size)
        if right != HIDDEN:
            by_right = self._interpolated(2, self._keys(HIDDEN, right, size), by_size)
        both = by_left * by_right / by_size
        both /= both.sum()
        if HIDDEN in (left, right):
            return both
        return self._interpolated(3, self._keys(left, right, size), both)

    def _interpolated(
        self, table: int, context: int, lower_V: np.ndarray, weight: float = _WEIGHT
    ) -> np.ndarray:
        keys, counts = self._counts[table]
        first, last = np.searchsorted(keys, [context * self._size, (context + 1) * self._size])
        if first == last:
            return lower_V
        seen = counts[first:last]
        total = seen.sum() + weight * len(seen)
        mixed_V = lower_V * (weight * len(seen) / total)
        mixed_V[keys[first:last] - context * self._size] += seen / total
        return mixed_V

    def _keys(self, left: np.ndarray | int, right: np.ndarray | int, sizes: np.ndarray | int) -> Any:
        return ((left - HIDDEN) * (self._size - HIDDEN) + right - HIDDEN) * (_MAX_SIZE + 1) + sizes


def _read(rows: Rows) -> tuple[np.ndarray, ...]:
    ids, starts, ends = (np.concatenate(rows[column]).astype(np.int64) for column in _COLUMNS)
    counts = np.array([len(row) for row in rows["subword_ids"]], dtype=np.int64)
    left, right = neighbours_of(ids, counts)
    return ids, left, right, np.minimum(ends - starts, _MAX_SIZE)


def target_losses(counts: NeighbourCounts, held_out: Iterable[Arrays]) -> np.ndarray:
    """Return the losses of all targets of batches that name the neighbours of targets, in their order."""
    names = ("target_ids", "target_left", "target_right", "target_sizes")
    losses = (counts.losses(*(arrays[name][arrays["target_mask"]] for name in names)) for arrays in held_out)
    return np.concatenate([np.zeros(0), *losses])


def frequent_characters(train: ShardReader, *, max_rows: int = 50_000) -> np.ndarray:
    """Return all codepoints of the training split, or of `max_rows` windows, the most frequent first, int64."""
    counts = np.zeros(0x110000, dtype=np.int64)
    for _, rows in train.spread_rows(("codepoints",), max_rows):
        counts += np.bincount(np.concatenate(rows["codepoints"]), minlength=len(counts))
    codepoints = np.flatnonzero(counts)
    return codepoints[np.argsort(-counts[codepoints], kind="stable")]


# Of the masks, which do not depend on the training seed.
VALIDATION_SEED = 0


def validation_batches(
    reader: ShardReader,
    *,
    collator: Collator,
    num_windows: int,
    batch: int = 32,
    rank: int = 0,
    world_size: int = 1,
    together: bool = False,
) -> Iterator[Arrays]:
    """Yield this rank's slices of the validation batches.

    The windows are spaced evenly over the rows of the validation split of `reader`. With a `collator` of the
    seed `VALIDATION_SEED`, the masks of a row depend only on its number in the split, which `sample_ids` has.
    Empty slices of a rank are skipped. With `together`, the first row of all takes their place, with empty
    `sample_ids`, so that all ranks have a batch.
    """
    numbers, shards, places = reader.spread(num_windows)
    reader.fetch_ahead(shards)
    edges = [0, *(np.flatnonzero(np.diff(reader.directories_of(shards))) + 1).tolist(), len(numbers)]
    spans = [
        (start, min(start + batch, last))
        for first, last in pairwise(edges)
        for start in range(first, last, batch)
    ]
    for start, stop in spans:
        begin, end = slice_of(rank, world_size, stop - start)
        chosen = slice(start + begin, start + end)
        if begin < end:
            arrays = collate(reader, collator, shards[chosen], places[chosen], numbers[chosen])
            yield {**arrays, "sample_ids": numbers[chosen]}
        elif together:
            yield {
                **collate(reader, collator, shards[:1], places[:1], numbers[:1]),
                "sample_ids": numbers[:0],
            }
