"""Hash collisions: which characters of a corpus share buckets of a hash embedder, and how many are expected to.

N different characters, K hashes
"""

from typing import Any

import numpy as np
import torch

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath
from tokenfree.preprocess.text.characters import codepoints_of, scripts_of
from tokenfree.train.analyses.subject import AnalysedModel, is_data, read_lines, source_of
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.shards import ShardReader
from tokenfree.train.model.embedders.codepoint_hash import Config, hash_buckets, multipliers
from tokenfree.train.torch_state import default_settings


def shared_buckets(buckets_NK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which of N characters share a bucket with another one, given their buckets, int64 [N, K].

    The first array is for each hash, bool [N, K], the second for all hashes with the same other character,
    bool [N].
    """
    per_hash = [_is_repeated(np.unique(column, return_inverse=True)[1]) for column in buckets_NK.T]
    same = np.unique(buckets_NK, axis=0, return_inverse=True)[1].reshape(-1)
    return np.stack(per_hash, axis=1), _is_repeated(same)


def expected_shares(num_characters: int, num_buckets: int, num_hashes: int) -> dict[str, float]:
    """Return the probabilities, for uniform hashes, that a character shares a bucket with another one.

    `hash` is for a given hash, and `all` for all hashes with the same other character.
    """
    others = num_characters - 1
    single = -np.expm1(others * np.log1p(-1 / num_buckets)) if num_buckets > 1 else float(others > 0)
    together = 1 / float(num_buckets) ** num_hashes
    return {
        "hash": float(single),
        "all": float(-np.expm1(others * np.log1p(-together))) if together < 1 else float(others > 0),
    }


def count_characters(source: Data, max_windows: int | None = None) -> dict[str, dict[int, int]]:
    """Return the count of each codepoint by language, in all splits of a data directory or the lines of a file.

    The language of a file is "". At most `max_windows` windows of each split are read, spaced evenly.
    """
    if not is_data(source):
        text = "".join(line for _, line in read_lines(str(source)))
        codepoints, counts = np.unique(codepoints_of(text), return_counts=True)
        return {"": dict(zip(codepoints.tolist(), counts.tolist(), strict=True))}
    total: dict[str, np.ndarray] = {}
    for split in ShardReader(source, "train").manifest.splits:
        reader = ShardReader(source, split)
        num_windows = max_windows or sum(shard.rows for shard in reader.shards)
        for shards, rows in reader.spread_rows(("codepoints",), num_windows):
            languages = np.array([reader.shards[shard].language for shard in shards.tolist()])
            for language in np.unique(languages).tolist():
                windows = [
                    row for row, other in zip(rows["codepoints"], languages, strict=True) if other == language
                ]
                counts = total.setdefault(language, np.zeros(0x110000, dtype=np.int64))
                counts += np.bincount(np.concatenate(windows), minlength=len(counts))
    return {
        language: {int(codepoint): int(counts[codepoint]) for codepoint in np.flatnonzero(counts)}
        for language, counts in total.items()
    }


@default_settings()
def collisions(
    model: AnalysedModel, data: AnyPath | None = None, max_windows: int | None = None
) -> dict[str, Any]:
    """Return how many characters of a corpus share buckets of a model's hashes with other characters of the corpus.

    `data` is a data directory or a text file, by default the training data. `rows` has one row for the whole
    corpus, each language and each script, with the shares in a `hash` (the mean) and in `all` hashes, and
    those `_expected` for uniform hashing. Raises UserError if the model has another embedder, or there is no
    text.
    """
    config = model.encoder.config.embedder
    if not isinstance(config, Config):
        raise UserError(
            f"{model.name} has model.embedder.name: {config.name}, which hashes no single codepoints; collisions are "
            "those of codepoint_hash"
        )
    source = source_of(model, data)
    by_language = count_characters(source, max_windows)
    codepoints = np.array(
        sorted({codepoint for counts in by_language.values() for codepoint in counts}), dtype=np.int64
    )
    if not len(codepoints):
        raise UserError(f"{source} has no characters")
    of_language = {
        name: np.array([counts.get(codepoint, 0) for codepoint in codepoints.tolist()], dtype=np.int64)
        for name, counts in by_language.items()
    }
    total_N = np.sum(list(of_language.values()), axis=0)
    factors = multipliers(config.family, config.hashes)
    buckets_NK = hash_buckets(
        torch.from_numpy(codepoints)[:, None], factors, config.buckets, config.family
    ).numpy()
    per_hash_NK, all_N = shared_buckets(buckets_NK)
    scripts_N = scripts_of(codepoints)
    of_script = {str(name): np.where(scripts_N == name, total_N, 0) for name in np.unique(scripts_N)}
    groups = [
        ("all", "", total_N),
        *(("language", name, counts_N) for name, counts_N in of_language.items() if name),
        *(("script", name, counts_N) for name, counts_N in of_script.items()),
    ]
    expected = expected_shares(len(codepoints), config.buckets, config.hashes)
    rows = [
        {
            "group": kind,
            "name": name,
            "characters": int((counts_N > 0).sum()),
            "occurrences": int(counts_N.sum()),
            "hash": float(per_hash_NK[counts_N > 0].mean()),
            "hash_expected": expected["hash"],
            "all": float(all_N[counts_N > 0].mean()),
            "all_expected": expected["all"],
        }
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
    }


def _is_repeated(numbers_N: np.ndarray) -> np.ndarray:
    return np.bincount(numbers_N)[numbers_N] > 1
