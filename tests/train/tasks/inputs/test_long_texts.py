"""Texts that are longer than a model reads: their windows, and the memory that they take."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.conftest import REPOSITORY
from tests.train.conftest import WORDS
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.base import Arrays
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks import classification, pairs
from tokenfree.train.tasks.examples.texts import TextExample
from tokenfree.train.tasks.inputs import (
    ByteInputs,
    CharacterInputs,
    SubwordInputs,
    TextInputs,
    WordInputs,
    cut,
)

PLAIN: dict[str, Any] = {
    "embedder": {"name": "codepoint_hash", "buckets": 64, "max_characters": 64},
    "downsampler": {"name": "identity"},
    "upsampler": {"name": "identity"},
}
SUBWORDS = REPOSITORY / "tests" / "golden" / "kept" / "data" / "vocabulary" / "subwords.model"
TEXT = "The camelCase of ünïcode 世界 🙂, \x02 a\tlong" + "x" * 300 + " word.\n"
KINDS: dict[str, Callable[[], TextInputs]] = {
    "characters": lambda: CharacterInputs(build(ModelConfig, PLAIN, source="test"), 64),
    "bytes": lambda: ByteInputs(build(ModelConfig, PLAIN, source="test"), 64),
    "subwords": lambda: SubwordInputs(
        build(ModelConfig, PLAIN, source="test"), 64, Vocabulary.load(SUBWORDS.read_bytes())
    ),
    "words": lambda: WordInputs(build(ModelConfig, WORDS, source="test"), 144),
}


@pytest.fixture(params=KINDS)
def inputs(request: pytest.FixtureRequest) -> TextInputs:
    return KINDS[request.param]()


@pytest.mark.parametrize("text", ["", " ", "a", TEXT, TEXT * 30, "x" * 9000, " " * 9000])
@pytest.mark.parametrize("stride", [0.5, 1.0])
def test_windows_are_parts_of_the_whole(inputs: TextInputs, text: str, stride: float) -> None:
    whole = inputs.encode(text)
    begin = seen = 0
    for window in cut(inputs, whole, stride):
        ends = whole.unit_ends
        assert not inputs.missing([window])
        first = begin if ends is None else int(ends[begin - 1]) if begin else 0
        assert window.symbols.tolist() == whole.symbols[first : first + len(window.symbols)].tolist()
        if ends is not None and window.unit_ends is not None:
            assert (window.unit_ends + first).tolist() == ends[begin : begin + window.num_vectors].tolist()
        characters = (whole.vectors >= begin) & (whole.vectors < begin + window.num_vectors)
        assert (window.vectors >= 0).sum() == characters.sum()
        seen = begin + window.num_vectors
        begin += max(1, int(window.num_vectors * stride))
    assert seen == whole.num_vectors


def peak_of(work: Callable[[], Any]) -> int:
    """Bytes that are held at most while it works."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_the_windows_of_a_long_text_take_little_memory(inputs: TextInputs) -> None:
    task = build(classification.Config, {"labels": ["a", "b"]}, source="test")
    collator, example = task.collator(inputs, 0), TextExample("file:1", "some words " * 2_000, None, "a")
    found: list[Any] = []
    assert peak_of(lambda: found.extend(collator.items([example], training=True))) < 6_000_000
    batch: Arrays = collator(found[-2:], np.zeros(2, dtype=np.int64))
    assert batch["num_characters"].min() > 0


@pytest.mark.parametrize("encode", ["together", "apart"])
def test_a_long_pair_is_refused(inputs: TextInputs, encode: str) -> None:
    task = build(pairs.Config, {"labels": ["a", "b"], "encode": encode}, source="test")
    example = TextExample("file:1", "a few", "some words " * 200, "a")
    with pytest.raises(UserError, match=r"file:1: this pair is .* longer than the model reads"):
        task.collator(inputs, 0).items([example], training=True)
