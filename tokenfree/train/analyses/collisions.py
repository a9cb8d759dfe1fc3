"""Hash collisions: which characters of a corpus share buckets of a hash embedder, and how many are expected to.

N different characters, K hashes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from tokenfree.core.errors import UserError
from tokenfree.preprocess.text.characters import codepoints_of
from tokenfree.preprocess.text.scripts import scripts_of
from tokenfree.train.analyses.subject import AnalysedModel, is_data, read_lines, source_of
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.model.embedders.codepoint_hash import Config
from tokenfree.train.model.embedders.hashing import hash_buckets, multipliers

_AT_ONCE = 1000  # windows that are read at once
_EXAMPLES = 10  # reported pairs of characters that share all buckets


class SharedBuckets(NamedTuple):
    """Which of N characters share a bucket with another character."""

    each_NK: np.ndarray  # bool: in each hash
    all_N: np.ndarray  # bool: in all hashes, with the same other character

    @property
    def any_N(self) -> np.ndarray:
        """Whether each character shares a bucket in at least one hash, bool [N]."""
        return np.any(self.each_NK, axis=1)


def shared_buckets(buckets_NK: np.ndarray) -> SharedBuckets:
    """Return which characters share buckets. `buckets_NK` are the buckets of N characters, int64 [N, K]."""
    each = [_is_repeated(np.unique(column, return_inverse=True)[1]) for column in buckets_NK.T]
    same = np.unique(buckets_NK, axis=0, return_inverse=True)[1].reshape(-1)
    return SharedBuckets(np.stack(each, axis=1), _is_repeated(same))


def expected_shares(num_characters: int, num_buckets: int, num_hashes: int) -> dict[str, float]:
    """Return the probabilities, for uniform hashes, that a character shares a bucket with another one.

    `hash` is for a given hash, `any` for at least one, and `all` for all hashes with the same other character.
    """
    others = num_characters - 1
    single = -np.expm1(others * np.log1p(-1 / num_buckets)) if num_buckets > 1 else float(others > 0)
    together = 1 / float(num_buckets) ** num_hashes
    return {
        "hash": float(single),
        "any": float(1 - (1 - single) ** num_hashes),
        "all": float(-np.expm1(others * np.log1p(-together))) if together < 1 else float(others > 0),
    }


def count_characters(source: Data, max_windows: int | None = None) -> dict[str, dict[int, int]]:
    """Return the count of each codepoint by language, in all splits of a data directory or the lines of a file.

    The language of a file is "". At most `max_windows` windows of each split are read, spaced evenly.
    """
    if not is_data(source):
        found, counts = np.unique(
            codepoints_of("".join(line for _, line in read_lines(str(source)))), return_counts=True
        )
        return {"": dict(zip(found.tolist(), counts.tolist(), strict=True))}
    total: dict[str, np.ndarray] = {}
    for split in ShardReader(source, "train").manifest.splits:
        reader = ShardReader(source, split)
        _, shards, rows = reader.spread(max_windows or sum(shard.rows for shard in reader.shards))
        for start in range(0, len(rows), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            windows = reader.rows(("codepoints",), shards[some], rows[some])["codepoints"]
            languages = np.array([reader.shards[shard].language for shard in shards[some].tolist()])
            for language in np.unique(languages).tolist():
                own = [window for window, other in zip(windows, languages, strict=True) if other == language]
                counts = total.setdefault(language, np.zeros(0x110000, dtype=np.int64))
                counts += np.bincount(np.concatenate(own), minlength=len(counts))
    return {
        language: {int(found): int(counts[found]) for found in np.flatnonzero(counts)}
        for language, counts in total.items()
    }


def collisions(model: AnalysedModel, data: str | None = None, max_windows: int | None = None) -> dict[str, Any]:
    """Return how many characters of a corpus share buckets of a model's hashes with other characters of the corpus.

    `data` is a data directory or a text file, by default the data that the model was trained on. `rows` has one row for
    the whole corpus, each language and each script. A row has the shares of characters that share a bucket in a `hash`
    (the mean), in `any` or in `all` hashes. Each share is also given `_by_frequency` and as `_expected` for uniform
    hashing. `outnumbered` is the share of occurrences whose character shares all buckets with a more frequent one.
    `examples` are the most frequent such pairs.

    Raises:
        UserError: The model has another embedder, or there is no text.
    """
    config = model.encoder.config.embedder
    if not isinstance(config, Config):
        raise UserError(
            f"{model.name} has model.embedder.name: {config.name}, which hashes no single codepoints; collisions are "
            "those of codepoint_hash"
        )
    source = source_of(model, data)
    by_language = count_characters(source, max_windows)
    found = np.array(sorted({codepoint for counts in by_language.values() for codepoint in counts}), dtype=np.int64)
    if not len(found):
        raise UserError(f"{source} has no characters")
    of_language = {name: _counts_of(found, counts) for name, counts in by_language.items()}
    total_N = np.sum(list(of_language.values()), axis=0)
    factors = multipliers(config.family, config.hashes)
    buckets_NK = hash_buckets(torch.from_numpy(found)[:, None], factors, config.buckets, config.family).numpy()
    shared = shared_buckets(buckets_NK)
    scripts_N = scripts_of(found)
    of_script = {str(name): np.where(scripts_N == name, total_N, 0) for name in np.unique(scripts_N)}
    groups = [("all", "", total_N)]
    groups += [("language", name, counts_N) for name, counts_N in of_language.items() if name]
    groups += [("script", name, counts_N) for name, counts_N in of_script.items()]
    expected = expected_shares(len(found), config.buckets, config.hashes)
    outnumbered_N = _outnumbered(buckets_NK, total_N)
    rows = [
        {"group": kind, "name": name, **_shares(shared, counts_N, expected)}
        | {"outnumbered": float(counts_N[outnumbered_N].sum() / counts_N.sum())}
        for kind, name, counts_N in groups
    ]
    rows.sort(key=lambda row: (row["group"], -row["occurrences"]))
    return {
        "analysis": "collisions",
        **model.record(),
        "data": str(source),
        "family": config.family,
        "hashes": config.hashes,
        "buckets": config.buckets,
        "rows": rows,
        "examples": _examples(found, buckets_NK, shared.all_N, total_N),
    }


def _shares(shared: SharedBuckets, counts_N: np.ndarray, expected: dict[str, float]) -> dict[str, Any]:
    """Return the shares of characters with collisions in one group, which is the characters with counts."""
    present_N, total = counts_N > 0, counts_N.sum()
    weights_N = counts_N / total
    columns: dict[str, Any] = {"characters": int(present_N.sum()), "occurrences": int(total)}
    each_K, by_frequency_K = shared.each_NK[present_N].mean(axis=0), weights_N @ shared.each_NK
    of = {
        "hash": (each_K.mean(), by_frequency_K.mean()),
        "any": (shared.any_N[present_N].mean(), weights_N @ shared.any_N),
        "all": (shared.all_N[present_N].mean(), weights_N @ shared.all_N),
    }
    for name, (share, by_frequency) in of.items():
        columns |= {
            name: float(share),
            f"{name}_by_frequency": float(by_frequency),
            f"{name}_expected": expected[name],
        }
    return columns | {f"hash_{number}": float(share) for number, share in enumerate(each_K, 1)}


def _examples(
    found_N: np.ndarray, buckets_NK: np.ndarray, all_N: np.ndarray, counts_N: np.ndarray
) -> list[dict[str, Any]]:
    """Return the most frequent pairs that share all buckets: the two most frequent characters of each set that does."""
    sets: dict[tuple[int, ...], list[int]] = {}
    for index in np.flatnonzero(all_N).tolist():
        sets.setdefault(tuple(buckets_NK[index].tolist()), []).append(index)
    pairs = [sorted(members, key=lambda index: (-counts_N[index], index))[:2] for members in sets.values()]
    pairs.sort(key=lambda pair: (-counts_N[pair[1]], pair))
    return [
        {"a": chr(found_N[one]), "b": chr(found_N[other]), "occurrences": int(counts_N[other])}
        for one, other in pairs[:_EXAMPLES]
    ]


def _outnumbered(buckets_NK: np.ndarray, counts_N: np.ndarray) -> np.ndarray:
    """Return which characters share all buckets with a more frequent one, or with an earlier one of ties, bool [N]."""
    same_N = np.unique(buckets_NK, axis=0, return_inverse=True)[1].reshape(-1)
    order = np.argsort(-counts_N, kind="stable")
    first = np.zeros(len(counts_N), dtype=bool)
    first[order[np.unique(same_N[order], return_index=True)[1]]] = True
    return ~first


def _counts_of(found_N: np.ndarray, counts: Mapping[int, int]) -> np.ndarray:
    return np.array([counts.get(codepoint, 0) for codepoint in found_N.tolist()], dtype=np.int64)


def _is_repeated(numbers_N: np.ndarray) -> np.ndarray:
    return np.bincount(numbers_N)[numbers_N] > 1
