"""Examples with the noise of `preprocess/text/noise.py`: labels stay, and each word keeps its tag.

What is drawn depends on the seed, the scheme and the example's key alone: an example has the same noise in every epoch
and on every machine. Noise after a model's own word segmentation needs the spans of words as they were: see
`random_case_in_words`.
"""

from __future__ import annotations

import dataclasses

from tokenfree.preprocess.text.noise import Scheme, add_noise
from tokenfree.train.tasks.examples.example import TaggedExample, TextExample


def noisy_text(example: TextExample, scheme: Scheme, seed: int) -> TextExample:
    """The example with noise in its text and, drawn apart, in the second of a pair.

    Raises:
        ValueError: there is no such scheme.
    """
    text, second = (
        None if part is None else add_noise(part, scheme, seed=seed, example=f"{example.key}#{number}")
        for number, part in enumerate((example.text, example.second))
    )
    return dataclasses.replace(example, text=text or "", second=second)


def noisy_tagged(example: TaggedExample, scheme: Scheme, seed: int) -> TaggedExample:
    """The example with noise in each of its words, none of which is lost.

    Raises:
        ValueError: there is no such scheme.
    """
    words = (
        add_noise(word, scheme, seed=seed, example=f"{example.key}#{number}")
        for number, word in enumerate(example.words)
    )
    return dataclasses.replace(example, words=tuple(words))
