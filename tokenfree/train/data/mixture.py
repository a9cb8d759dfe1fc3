"""Several data directories that are read as one, with weights: `A:0.7 B:0.3`."""

import dataclasses
import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.core.files import AnyPath, expand_home
from tokenfree.preprocess.dataset.manifest import DatasetSplit, Manifest, load_manifest
from tokenfree.preprocess.records import readable_columns
from tokenfree.train.batches import counter_random as random

# Samples after which the order of several directories repeats.
PERIOD = 1 << 16
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf)", re.IGNORECASE | re.ASCII)


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Data directories that are read as one.

    Samples are in proportion to weights, or to training characters.
    """

    paths: tuple[str, ...]  # paths or URLs, at least two
    weights: tuple[float, ...] | None = None  # above 0

    def words(self) -> list[str]:
        if self.weights is None:
            return list(self.paths)
        return [f"{path}:{weight!r}" for path, weight in zip(self.paths, self.weights, strict=True)]

    def __str__(self) -> str:
        return " ".join(self.words())


Data = str | Mixture  # path or URL of a data directory, or several


def parse(words: Sequence[AnyPath], what: str = "--data") -> Data:
    """Return the data that words such as `DIR` or `DIR:WEIGHT` describe. Messages call the words `what`.

    A number after the last colon is a weight, unless it is the port of a URL, or a folder has that exact
    name. Raises UserError if a weight is too small, or only some words have one.
    """
    texts = list(map(expand_home, words))
    separated = [_separated(text) for text in texts]
    paths = tuple(path for path, _ in separated)
    weighted = [
        (word, path, weight)
        for word, (path, weight) in zip(texts, separated, strict=True)
        if weight is not None
    ]
    for word, path, weight in weighted:
        if not (weight > 0 and math.isfinite(weight)):
            raise UserError(
                f"{what} {word}: the weight must be a number above 0, such as {path}:0.5; or leave {path} out"
            )
    if len(paths) == 1:
        return paths[0]
    if not weighted:
        return Mixture(paths)
    without = next((path for path, weight in separated if weight is None), None)
    if without is not None:
        raise UserError(f"{what} {without}: has no weight; give all a weight, such as {without}:0.5, or none")
    weights = tuple(weight for _, _, weight in weighted)
    # Divided by first, because a sum of weights can overflow.
    largest = max(weights)
    whole = sum(weight / largest for weight in weights)
    for word, path, weight in weighted:
        if weight / largest / whole * PERIOD < 1:
            raise UserError(
                f"{what} {word}: the weight gives less than one sample in {PERIOD:,}. Increase it or leave {path} out."
            )
    return Mixture(paths, weights)


def data_arguments(data: Data) -> list[str]:
    return data.words() if isinstance(data, Mixture) else [data]


def _separated(word: str) -> tuple[str, float | None]:
    path, _, number = word.rpartition(":")
    is_port = "://" in path and "/" not in path.partition("://")[2]
    if not path or is_port or not _NUMBER.fullmatch(number) or os.path.isdir(word):
        return word, None
    return path, float(number)


class Mixing(NamedTuple):
    weights: tuple[int, ...]  # one per directory, without a common divisor
    of_shard: tuple[int, ...]  # number of the directory of each shard

    @property
    def shares(self) -> np.ndarray:
        return np.array(self.weights, dtype=np.float64) / sum(self.weights)


def mixed_contents(mixture: Mixture) -> tuple[Manifest, Mapping[str, Mixing]]:
    """Return one manifest for all directories, whose fingerprint includes the weights, and the mixing by split."""
    manifests = [load_manifest(path) for path in mixture.paths]
    _check(mixture.paths, manifests)
    weights = _whole_weights(mixture, manifests)
    parts = {
        name: [source.splits.get(name, DatasetSplit(())).shards for source in manifests]
        for name in ("train", "validation")
        if any(name in source.splits for source in manifests)
    }
    first = manifests[0]
    columns = set.intersection(*(set(readable_columns(source.config["columns"])) for source in manifests))
    manifest = dataclasses.replace(
        first,
        config={**first.config, "columns": readable_columns(columns)},
        config_fingerprint="",
        inputs=(),
        counters={},
        statistics={},
        files={},
        splits={
            name: DatasetSplit(tuple(shard for of in by_directory for shard in of))
            for name, by_directory in parts.items()
        },
        fingerprint=_fingerprint(manifests, weights),
    )
    return manifest, {
        name: Mixing(weights, tuple(number for number, of in enumerate(by_directory) for _ in of))
        for name, by_directory in parts.items()
    }


def _check(paths: Sequence[str], manifests: Sequence[Manifest]) -> None:
    for number, (path, manifest) in enumerate(zip(paths, manifests, strict=True)):
        if "train" not in manifest.splits or not manifest.splits["train"].rows:
            raise UserError(f"{path} has no windows to train on; leave it out, or preprocess more text")
        if manifest.vocabulary_sha256 != manifests[0].vocabulary_sha256:
            raise UserError(
                f"{paths[0]} and {path} have different subword vocabularies; preprocess one of them with the other's "
                "vocabulary/subwords.model as vocabulary.model"
            )
        for earlier in range(number):
            if manifests[earlier].fingerprint == manifest.fingerprint:
                raise UserError(
                    f"{paths[earlier]} and {path} hold the same shards; give one, with the weight of both"
                )


def _whole_weights(mixture: Mixture, manifests: Sequence[Manifest]) -> tuple[int, ...]:
    if mixture.weights is None:
        exact = [Fraction(manifest.splits["train"].characters) for manifest in manifests]
    else:
        exact = [Fraction(repr(weight)) for weight in mixture.weights]
    whole = [int(fraction * math.lcm(*(fraction.denominator for fraction in exact))) for fraction in exact]
    return tuple(count // math.gcd(*whole) for count in whole)


def _fingerprint(manifests: Sequence[Manifest], weights: Sequence[int]) -> str:
    pairs = zip(weights, manifests, strict=True)
    text = "".join(f"{weight} of {manifest.fingerprint}\n" for weight, manifest in pairs)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


_MAX_ROUNDS = 64  # rounds of swaps, of 1 to 5 ms each


def fair_turns(weights: Sequence[int]) -> np.ndarray:
    """Return the directory of each turn, int64 [sum of weights]. Directory d has weights[d] turns.

    Of the first n turns it has n * share, to within one. Each turn goes to the directory with the nearest
    deadline among those that are not ahead (R. Tijdeman, "The chairman assignment problem", 1980).
    """
    total, slack = sum(weights), 2 * len(weights) - 2
    counts, turns = [0] * len(weights), []
    for turn in range(1, total + 1):
        entitled = (
            number
            for number, weight in enumerate(weights)
            if slack * (weight * turn - total * counts[number]) >= total
        )
        chosen = min(entitled, key=lambda number: (slack - 1 + slack * counts[number]) / weights[number])
        counts[chosen] += 1
        turns.append(chosen)
    return np.array(turns, dtype=np.int64)


def shuffled_turns(turns: np.ndarray, weights: Sequence[int], seed: int) -> np.ndarray:
    """Move turns (int64 [T]) towards random places, as far as every directory stays within one turn of its share.

    The j-th turn of a directory draws a place in the j-th of as many equal stretches as it has turns.
    Neighbours are swapped if both draws ask for it. Otherwise a share and the batch size could resonate.
    """
    turns, total = turns.copy(), sum(weights)
    distance = total / np.array(weights)
    drawn = random.uniform(seed, "turns of directories", np.arange(len(turns)), 1)[:, 0]
    wishes = np.empty(len(turns))
    for number, spacing in enumerate(distance):
        indices = np.flatnonzero(turns == number)
        wishes[indices] = (np.arange(len(indices)) + drawn[indices]) * spacing
    for round_ in range(min(_MAX_ROUNDS, int(distance.max()) + 2)):
        # First of each pair; the pairs do not overlap.
        first = np.arange(round_ % 2, len(turns) - 1, 2)
        left, right = turns[first], turns[first + 1]
        change = (wishes[first] > wishes[first + 1]) & (left != right)
        for number, weight in enumerate(weights):
            # In units of 1 / total turns.
            ahead = total * np.cumsum(turns == number)[first] - weight * (first + 1)
            change &= (left != number) | (ahead > 0)
            change &= (right != number) | (ahead < 0)
        for values in (turns, wishes):
            at = first[change]
            values[at], values[at + 1] = values[at + 1], values[at]
    return turns
