"""Examples with the noise of `preprocess/text/noise.py`: labels stay, and each word keeps its tag.

What is drawn depends on the seed, the scheme and the example's key alone: an example has the same noise in every epoch,
in every batch and on every machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from tokenfree.core.settings import settings
from tokenfree.preprocess.text.noise import RATES, Scheme, add_noise
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.examples.tagged import TaggedExample
from tokenfree.train.tasks.examples.texts import TextExample

NoiseScheme = Literal["drop", "repeat", "uppercase", "random_case", "random_case_in_words"]
IN_WORDS: NoiseScheme = "random_case_in_words"

E = TypeVar("E", TextExample, TaggedExample)


@settings
class Noise:
    """Noise in the characters of texts (Lee et al., arXiv 2211.12677): drop, repeat, uppercase, random_case; or
    random_case_in_words, which comes after a model of words has parted them.

    Attributes:
        train: the scheme for the examples that are trained on; null: none.
        evaluation: the scheme for all others; null: none.
        rate: share of the characters that are struck, above 0 and at most 1; null: that of the paper, 0.1 for drop, 0.2
            for repeat, 1 for case.
        seed: of the draws.
    """

    train: NoiseScheme | None = None
    evaluation: NoiseScheme | None = None
    rate: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0

    def check(self, model: ModelConfig) -> Iterator[str]:
        """What is wrong with the schemes for a model, a line each."""
        for key, scheme in (("train", self.train), ("evaluation", self.evaluation)):
            if scheme == IN_WORDS and not reads_words(model):
                yield f"task.noise.{key}: {IN_WORDS} is for models of words, which this is none of; take random_case"

    def add(self, examples: Sequence[E], split: str) -> Sequence[E]:
        """The examples of a split with the noise that it has."""
        scheme = self.train if split == "train" else self.evaluation
        if scheme is None:
            return examples
        return [
            noisy_text(example, scheme, self.seed, self.rate)
            if isinstance(example, TextExample)
            else noisy_tagged(example, scheme, self.seed, self.rate)
            for example in examples
        ]


def reads_words(model: ModelConfig) -> bool:
    """Whether a model parts texts into words by itself."""
    return model.downsampler.bytes_per_word is not None


def paper_rate(scheme: NoiseScheme) -> float:
    """The share of the characters that Lee et al. strike."""
    return RATES[_of_characters(scheme)]


def noisy_text(example: TextExample, scheme: NoiseScheme, seed: int, rate: float | None = None) -> TextExample:
    """The example with noise in its text and, drawn apart, in the second of a pair.

    Raises:
        ValueError: there is no such scheme, or no such rate.
    """
    texts = [example.text] if example.second is None else [example.text, example.second]
    text, *second = _noisy(texts, example.key, scheme, seed, rate)
    before = tuple(texts) if scheme == IN_WORDS else None
    return dataclasses.replace(example, text=text, second=second[0] if second else None, before=before)


def noisy_tagged(example: TaggedExample, scheme: NoiseScheme, seed: int, rate: float | None = None) -> TaggedExample:
    """The example with noise in each of its words, none of which is lost.

    Raises:
        ValueError: there is no such scheme, or no such rate.
    """
    words = tuple(_noisy(example.words, example.key, scheme, seed, rate))
    return dataclasses.replace(example, words=words, before=example.words if scheme == IN_WORDS else None)


def _noisy(parts: Sequence[str], key: str, scheme: NoiseScheme, seed: int, rate: float | None) -> list[str]:
    own = _of_characters(scheme)
    return [add_noise(part, own, seed=seed, example=f"{key}#{n}", rate=rate) for n, part in enumerate(parts)]


def _of_characters(scheme: NoiseScheme) -> Scheme:
    return "random_case" if scheme == "random_case_in_words" else scheme
