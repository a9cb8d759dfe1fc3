"""Noise for tests of robustness (arXiv 2211.12677): changed characters in examples, the same in every epoch."""

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import Field

from tokenfree.core.settings import settings
from tokenfree.preprocess.text.characters import codepoints_of, text_of
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.examples.tagged import TaggedExample
from tokenfree.train.tasks.examples.texts import TextExample

Scheme = Literal["drop", "repeat", "uppercase", "random_case"]
NoiseScheme = Literal["drop", "repeat", "uppercase", "random_case", "random_case_in_words"]
IN_WORDS: NoiseScheme = "random_case_in_words"
# The shares of the characters that Lee et al. change.
RATES: dict[NoiseScheme, float] = {
    "drop": 0.1,
    "repeat": 0.2,
    "uppercase": 1.0,
    "random_case": 1.0,
    IN_WORDS: 1.0,
}
_MAX_COPIES = 3  # copies in addition to the character itself
# No later codepoint has a case.
_LAST_CASED = 0x1FFFF


def add_noise(text: str, scheme: Scheme, *, seed: int, example: int | str, rate: float | None = None) -> str:
    """Return `text` with the noise of a scheme, the same for the same arguments.

    Each character except special symbols is chosen with probability `rate`, by default that of `RATES`, and
    then also at any higher rate. repeat adds 1 to 3 copies of it. drop never deletes the whole text. Changes
    of case never change the number of characters.
    """
    rate = RATES[scheme] if rate is None else rate
    if scheme == "uppercase":
        return text.upper() if rate == 1 else _upper(text, _uniform(seed, scheme, example, len(text)) < rate)
    codepoints = codepoints_of(text)
    if scheme == "random_case":
        changed = _random_case(codepoints, seed, example, rate)
    elif scheme == "drop":
        drawn = _uniform(seed, scheme, example, len(codepoints))
        kept = (drawn >= rate) | _is_special(codepoints)
        if len(kept) and not kept.any():
            kept[drawn.argmax()] = True
        changed = codepoints[kept]
    else:
        drawn = _uniform(seed, scheme, example, 2 * len(codepoints))
        chosen = (drawn[::2] < rate) & ~_is_special(codepoints)
        copies = 1 + (drawn[1::2] * _MAX_COPIES).astype(np.int64)
        changed = np.repeat(codepoints, 1 + chosen * copies)
    return text_of(changed)


def _upper(text: str, chosen: np.ndarray) -> str:
    pairs = zip(text, chosen.tolist(), strict=True)
    return "".join(character.upper() if is_chosen else character for character, is_chosen in pairs)


def _random_case(codepoints: np.ndarray, seed: int, example: int | str, rate: float) -> np.ndarray:
    upper, lower = _cases()
    drawn = _uniform(seed, "random_case", example, len(codepoints))
    index = np.minimum(codepoints, _LAST_CASED)
    shift = np.where(drawn < 0.5, upper[index], lower[index])
    if rate < 1:
        shift[_uniform(seed, "random_case struck", example, len(codepoints)) >= rate] = 0
    return (codepoints + shift).astype("<u4")


@functools.cache
def _cases() -> tuple[np.ndarray, np.ndarray]:
    """Return the distances of codepoints to their upper and lower case, 0 if a change cannot be undone ("ß", "ı")."""
    characters = [chr(codepoint) for codepoint in range(_LAST_CASED + 1)]

    def shifts(others: Iterable[str]) -> np.ndarray:
        return np.array(
            [
                ord(other) - ord(one) if len(other) == 1 and other.lower() == one.lower() else 0
                for one, other in zip(characters, others, strict=True)
            ]
        )

    return shifts(map(str.upper, characters)), shifts(map(str.lower, characters))


def _is_special(codepoints: np.ndarray) -> np.ndarray:
    """Return True for codepoints of special symbols: bytes 0 to 4 and the start of the Private Use Area."""
    return (codepoints <= 4) | ((codepoints >= 0xE000) & (codepoints < 0xE010))


def _uniform(seed: int, scheme: str, example: int | str, count: int) -> np.ndarray:
    name = "\x00".join(map(str, (seed, scheme, example)))
    key = np.frombuffer(hashlib.blake2b(name.encode(), digest_size=16).digest(), dtype="<u8")
    return (np.random.Philox(key=key).random_raw(count) >> np.uint64(11)) * 2.0**-53


E = TypeVar("E", TextExample, TaggedExample)


@settings
class Noise:
    """Noise in the characters of texts (Lee et al., arXiv 2211.12677): drop, repeat, uppercase or random_case.

    random_case_in_words changes the case after a model of words has split the text.

    Attributes:
        train: scheme for training examples; null: no noise.
        evaluation: scheme for all other examples; null: no noise.
        rate: share of characters to change; null: that of the paper, 0.1 for drop, 0.2 for repeat, 1 for
            case.
        seed: seed of the noise.
    """

    train: NoiseScheme | None = None
    evaluation: NoiseScheme | None = None
    rate: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0

    def check(self, model: ModelConfig) -> Iterator[str]:
        for key, scheme in (("train", self.train), ("evaluation", self.evaluation)):
            if scheme == IN_WORDS and not reads_words(model):
                yield f"task.noise.{key}: {IN_WORDS} is for models of words, which this is none of; take random_case"

    def add(self, examples: Sequence[E], split: str) -> Sequence[E]:
        scheme = self.train if split == "train" else self.evaluation
        return (
            examples
            if scheme is None
            else [noisy(example, scheme, self.seed, self.rate) for example in examples]
        )


def reads_words(model: ModelConfig) -> bool:
    return model.downsampler.bytes_per_word is not None


def noisy(example: E, scheme: NoiseScheme, seed: int, rate: float | None = None) -> E:
    """Return the example with noise in each of its texts or words, drawn separately.

    No word is dropped entirely.
    """
    if isinstance(example, TextExample):
        parts = (example.text,) if example.second is None else (example.text, example.second)
    else:
        parts = example.words
    part_scheme: Scheme = "random_case" if scheme == "random_case_in_words" else scheme
    original = parts if scheme == IN_WORDS else None
    noised = tuple(
        add_noise(part, part_scheme, seed=seed, example=f"{example.key}#{n}", rate=rate)
        for n, part in enumerate(parts)
    )
    if isinstance(example, TextExample):
        return dataclasses.replace(
            example, text=noised[0], second=noised[1] if len(noised) > 1 else None, before=original
        )
    return dataclasses.replace(example, words=noised, before=original)
