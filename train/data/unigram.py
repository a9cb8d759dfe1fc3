"""What a model without context would score: the frequencies of the targets, as a baseline for the losses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tokenfree.train.batches.collator import Symbols
from tokenfree.train.data.shard_reader import ShardReader

_AT_ONCE = 1000


class Unigram(NamedTuple):
    """Nats per target of a model that knows only how frequent each symbol is."""

    symbol: str  # what they are, such as "subword"
    entropy: float  # of the frequencies in the training split
    cross_entropy: float  # of the held-out targets, under those frequencies with one added to each

    def numbers(self) -> dict[str, float]:
        """The two by name."""
        return {"entropy": self.entropy, "cross_entropy": self.cross_entropy}


def unigram(data: str, symbols: Symbols, held_out: Iterable[np.ndarray], *, max_rows: int = 50_000) -> Unigram:
    """The baselines of a data directory for an objective.

    Args:
        symbols: what the objective says its targets are.
        held_out: the real target ids of the validation batches, such as `b["target_ids"][b["target_mask"]]` of each.
        max_rows: a larger training split is counted at this many windows, spaced evenly over it.

    Raises:
        UserError: the directory has no training split or not the columns.
    """
    counts = _count(ShardReader(data, "train"), symbols, max_rows)
    frequencies = counts[counts > 0] / counts.sum()
    smoothed = -np.log((counts + 1) / (counts.sum() + symbols.usable.sum()))
    targets = np.concatenate([np.zeros(0, dtype=np.int64), *(np.asarray(ids).reshape(-1) for ids in held_out)])
    return Unigram(
        symbol=symbols.name,
        entropy=float(-(frequencies * np.log(frequencies)).sum()),
        cross_entropy=float(smoothed[targets].mean()) if len(targets) else float("nan"),
    )


def _count(reader: ShardReader, symbols: Symbols, max_rows: int) -> np.ndarray:
    """How often each usable symbol stands in the split: int64 [size]."""
    _, shards, rows = reader.spread(max_rows)
    counts = np.zeros(len(symbols.usable), dtype=np.int64)
    for start in range(0, len(rows), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        ids = symbols.ids(reader.rows(symbols.columns, shards[some], rows[some]))
        counts += np.bincount(ids, minlength=len(counts))
    return counts * symbols.usable
