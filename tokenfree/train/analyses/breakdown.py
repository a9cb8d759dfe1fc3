"""Scores by language and by script: where a model is good, and where it is not.

N targets that the input hides
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tokenfree.preprocess.text.scripts import scripts_of
from tokenfree.train.batches.collator import Arrays, Symbols
from tokenfree.train.data.shard_reader import ShardReader
from tokenfree.train.mixture.mixture import Data


def breakdown(names_N: np.ndarray, values: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """The means of `values` (float64 or bool [N], by name) over the targets of each name, most targets first.

    Args:
        names_N: str; what a target is counted under.

    Returns:
        For each name `name`, `targets` (their number) and the means; of equal numbers the first name goes first.
    """
    found, of_N, counts = np.unique(names_N, return_inverse=True, return_counts=True)
    sums = {what: np.bincount(of_N, weights=value_N, minlength=len(found)) for what, value_N in values.items()}
    return [
        {
            "name": str(found[index]),
            "targets": int(counts[index]),
            **{what: float(of_each[index] / counts[index]) for what, of_each in sums.items()},
        }
        for index in np.argsort(-counts, kind="stable")
    ]


def languages_of(data: Data, split: str, sample_ids_N: np.ndarray) -> np.ndarray:
    """The language of each window (int64 [N], its number in the split): that of its shard, str [N]."""
    shards = ShardReader(data, split).shards
    before = np.cumsum([0, *(shard.rows for shard in shards)])
    languages = np.array([shard.language for shard in shards])
    return languages[np.searchsorted(before, sample_ids_N, side="right") - 1]


def scripts_of_targets(symbols: Symbols, batches: Iterable[Arrays]) -> np.ndarray:
    """The script of each target of `batches`, row by row: str, "" for digits, punctuation and symbols."""
    parts = [symbols.codepoints(arrays)[arrays["target_mask"]] for arrays in batches]
    return scripts_of(np.concatenate([np.zeros(0, dtype=np.int64), *parts]))
