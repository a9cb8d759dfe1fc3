"""Several data directories with a weight each, as they are named: `A:0.7 B:0.3`."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Sequence

from tokenfree.preprocess.common.errors import UserError

PERIOD = 1 << 16  # samples after which the order of several directories repeats
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf)", re.IGNORECASE | re.ASCII)


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Data directories that are read as one.

    Attributes:
        paths: paths or addresses, at least two.
        weights: what the samples from each are in proportion to, above 0; None: the characters of its training split.
    """

    paths: tuple[str, ...]
    weights: tuple[float, ...] | None = None

    def words(self) -> list[str]:
        """As on the command line; `parse` gives the same again."""
        if self.weights is None:
            return list(self.paths)
        return [f"{path}:{weight!r}" for path, weight in zip(self.paths, self.weights, strict=True)]

    def __str__(self) -> str:
        return " ".join(self.words())


Data = str | Mixture  # the path or address of a data directory, or several


def parse(words: Sequence[str], what: str = "--data") -> Data:
    """What `DIR` and `DIR:WEIGHT` say, all with a weight or none; of a single one the weight says nothing.

    A number after the last colon is a weight, unless it is the port of an address, or a folder has that very name.

    Args:
        words: at least one.
        what: what messages call the words.

    Raises:
        UserError: a weight is not above 0 or gives less than one sample in `PERIOD`, or some have none.
    """
    parted = [_parted(word) for word in words]
    paths = tuple(path for path, _ in parted)
    given = [(word, path, weight) for word, (path, weight) in zip(words, parted, strict=True) if weight is not None]
    for word, path, weight in given:
        if not (weight > 0 and math.isfinite(weight)):
            raise UserError(
                f"{what} {word}: the weight must be a number above 0, such as {path}:0.5; or leave {path} out"
            )
    if len(paths) == 1:
        return paths[0]
    if not given:
        return Mixture(paths)
    without = next((path for path, weight in parted if weight is None), None)
    if without is not None:
        raise UserError(
            f"{what} {without}: has no weight, and {given[0][1]} has one; give all a weight, such as {without}:0.5, or "
            "none, which is by their characters"
        )
    weights = tuple(weight for _, _, weight in given)
    largest = max(weights)  # divided by first: a sum of weights can overflow
    whole = sum(weight / largest for weight in weights)
    for word, path, weight in given:
        if weight / largest / whole * PERIOD < 1:
            raise UserError(
                f"{what} {word}: the weight gives less than one sample in {PERIOD:,}. Increase it or leave {path} out."
            )
    return Mixture(paths, weights)


def given_or_parsed(data: Data | Sequence[str]) -> Data:
    """Data as a program gives them: what they are, or the words for them."""
    return data if isinstance(data, str | Mixture) else parse(data, "data")


def absolute(data: Data) -> Data:
    """The same with paths that do not depend on the working directory."""
    if isinstance(data, Mixture):
        return dataclasses.replace(data, paths=tuple(map(_absolute, data.paths)))
    return _absolute(data)


def paths_of(data: Data) -> tuple[str, ...]:
    """The directories."""
    return data.paths if isinstance(data, Mixture) else (data,)


def stored(data: Data) -> str | list[str]:
    """As a file of settings holds it; `given_or_parsed` gives the same again."""
    return data.words() if isinstance(data, Mixture) else data


def words_of(data: Data) -> list[str]:
    """The words for it on the command line."""
    return data.words() if isinstance(data, Mixture) else [data]


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)


def _parted(word: str) -> tuple[str, float | None]:
    path, _, number = word.rpartition(":")
    is_port = "://" in path and "/" not in path.partition("://")[2]
    if not path or is_port or not _NUMBER.fullmatch(number) or os.path.isdir(word):
        return word, None
    return path, float(number)
