"""Examples with the noise of `preprocess/text/noise.py`, the same in every epoch and on every machine."""

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
    """Noise in the characters of texts (Lee et al., arXiv 2211.12677): drop, repeat, uppercase or random_case.

    random_case_in_words changes the case after a model of words has split the text.

    Attributes:
        train: scheme for training examples; null: no noise.
        evaluation: scheme for all other examples; null: no noise.
        rate: share of characters to change; null: that of the paper, 0.1 for drop, 0.2 for repeat, 1 for case.
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
        """Return the examples of a split with the noise for that split."""
        scheme = self.train if split == "train" else self.evaluation
        return examples if scheme is None else [noisy(example, scheme, self.seed, self.rate) for example in examples]


def reads_words(model: ModelConfig) -> bool:
    return model.downsampler.bytes_per_word is not None


def paper_rate(scheme: NoiseScheme) -> float:
    """Return the share of the characters that Lee et al. change."""
    return RATES[_of_characters(scheme)]


def noisy(example: E, scheme: NoiseScheme, seed: int, rate: float | None = None) -> E:
    """Return the example with noise in each of its texts or words, drawn separately. No word is dropped entirely."""
    if isinstance(example, TextExample):
        parts = (example.text,) if example.second is None else (example.text, example.second)
    else:
        parts = example.words
    own, before = _of_characters(scheme), parts if scheme == IN_WORDS else None
    found = tuple(
        add_noise(part, own, seed=seed, example=f"{example.key}#{n}", rate=rate) for n, part in enumerate(parts)
    )
    if isinstance(example, TextExample):
        return dataclasses.replace(example, text=found[0], second=found[1] if len(found) > 1 else None, before=before)
    return dataclasses.replace(example, words=found, before=before)


def _of_characters(scheme: NoiseScheme) -> Scheme:
    return "random_case" if scheme == "random_case_in_words" else scheme
