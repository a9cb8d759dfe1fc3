"""What a data directory holds, or several that are read as one."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.dataset.manifest import DatasetSplit, Manifest, load_manifest
from tokenfree.preprocess.dataset.vocabulary import load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.mixture.mixture import Data, Mixture, paths_of


class Mixing(NamedTuple):
    """How the shards of a split are shared among directories."""

    weights: tuple[int, ...]  # of each directory, without a common divisor
    of_shard: tuple[int, ...]  # the number of the directory that each shard is in

    @property
    def shares(self) -> np.ndarray:
        """float64, of each directory."""
        return np.array(self.weights, dtype=np.float64) / sum(self.weights)


@dataclasses.dataclass(frozen=True)
class Contents:
    """What there is to read.

    Attributes:
        manifest: of the directory; of several, what theirs have in common, with the splits of all one after another,
            and a fingerprint of all and of their weights.
        mixing: by split; None of a single directory.
    """

    manifest: Manifest
    mixing: Mapping[str, Mixing] | None


def load_contents(data: Data) -> Contents:
    """Read the manifests of `data`.

    Raises:
        UserError: a directory is none, or they cannot be read as one; both are named.
    """
    manifests = [load_manifest(path) for path in paths_of(data)]
    if not isinstance(data, Mixture):
        return Contents(manifests[0], None)
    _check(data.paths, manifests)
    weights = _whole_weights(data, manifests)
    names = [name for name in ("train", "validation") if any(name in each.splits for each in manifests)]
    parts = {name: [each.splits.get(name, DatasetSplit(())).shards for each in manifests] for name in names}
    first = manifests[0]
    return Contents(
        dataclasses.replace(
            first,
            config={**first.config, "columns": _common_columns(manifests)},
            config_fingerprint="",
            inputs=(),
            counters={},
            statistics={},
            files={},
            splits={name: DatasetSplit(tuple(shard for of in each for shard in of)) for name, each in parts.items()},
            fingerprint=_fingerprint(manifests, weights),
        ),
        {
            name: Mixing(weights, tuple(number for number, of in enumerate(each) for _ in of))
            for name, each in parts.items()
        },
    )


def load_data_manifest(data: Data) -> Manifest:
    """The manifest of `data`, see `Contents`.

    Raises:
        UserError: see `load_contents`.
    """
    return load_contents(data).manifest


def load_data_vocabulary(data: Data) -> Vocabulary | None:
    """The subword vocabulary of `data`, None where they have none: several directories have the same one.

    Raises:
        UserError: see `tokenfree.preprocess.dataset.vocabulary.load_vocabulary`.
    """
    return load_vocabulary(paths_of(data)[0])


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
                raise UserError(f"{paths[earlier]} and {path} hold the same shards; give one, with the weight of both")


def _whole_weights(mixture: Mixture, manifests: Sequence[Manifest]) -> tuple[int, ...]:
    """The weights as the smallest whole numbers in their proportion."""
    if mixture.weights is None:
        exact = [Fraction(manifest.splits["train"].characters) for manifest in manifests]
    else:
        exact = [Fraction(repr(weight)) for weight in mixture.weights]
    whole = [int(each * math.lcm(*(each.denominator for each in exact))) for each in exact]
    return tuple(each // math.gcd(*whole) for each in whole)


def _common_columns(manifests: Sequence[Manifest]) -> list[str]:
    """In the order of the first."""
    return [
        name for name in manifests[0].config["columns"] if all(name in each.config["columns"] for each in manifests)
    ]


def _fingerprint(manifests: Sequence[Manifest], weights: Sequence[int]) -> str:
    """32 hex digits of all that decides which window a sample is, in the order in which the directories are named."""
    digest = hashlib.blake2b(digest_size=16)
    for weight, manifest in zip(weights, manifests, strict=True):
        digest.update(f"{weight} of {manifest.fingerprint}\n".encode())
    return digest.hexdigest()
