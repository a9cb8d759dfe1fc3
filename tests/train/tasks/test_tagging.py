"""Tagging: at which of a word's characters the loss is taken, and words that are too long."""

import logging
from typing import Any

import numpy as np
import pytest

from tests.train.conftest import WORDS
from tokenfree.preprocess.common.settings import build
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.examples.example import TaggedExample
from tokenfree.train.tasks.inputs.symbols import CharacterInputs
from tokenfree.train.tasks.inputs.text_inputs import TextInputs
from tokenfree.train.tasks.inputs.words import WordInputs
from tokenfree.train.tasks.tagging import Config

CHARACTERS: dict[str, Any] = {
    "embedder": {"name": "codepoint_hash", "buckets": 64, "max_characters": 64},
    "downsampler": {"name": "identity"},
    "upsampler": {"name": "identity"},
}
EXAMPLE = TaggedExample("file:1", ("Ana", "Ruiz", "a", "x.y"), ("B-P", "I-P", "O", "B-Q"))


def inputs_of(model: dict[str, Any]) -> TextInputs:
    inputs = CharacterInputs if model is CHARACTERS else WordInputs
    return inputs(build(ModelConfig, model, source="test"), 64 if model is CHARACTERS else 144)


@pytest.mark.parametrize(
    ("model", "fields", "places", "tags"),
    [
        (CHARACTERS, {}, [1, 5, 10, 12], ["B-P", "I-P", "O", "B-Q"]),
        (CHARACTERS, {"targets": "all"}, [1, 2, 3, 5, 6, 7, 8, 10, 12, 13, 14],
         ["B-P", *["I-P"] * 6, "O", "B-Q", "I-Q", "I-Q"]),
        (WORDS, {}, [1, 2, 3, 4], ["B-P", "I-P", "O", "B-Q"]),
        (WORDS, {"targets": "all"}, [1, 2, 3, 4, 5, 6], ["B-P", "I-P", "O", "B-Q", "I-Q", "I-Q"]),
    ],
)  # fmt: skip
def test_where_the_loss_is_taken(
    model: dict[str, Any], fields: dict[str, str], places: list[int], tags: list[str]
) -> None:
    task = build(Config, fields, source="test").fitted([EXAMPLE])
    collator = task.collator(inputs_of(model), 0)
    (item,) = collator.items([EXAMPLE], training=True)
    batch = collator([item], np.zeros(1, dtype=np.int64))
    assert batch["places"][batch["target_mask"]].tolist() == places
    assert [task.labels[number] for number in batch["classes"][batch["target_mask"]]] == tags
    firsts = [places[number] for number in item.content.firsts]
    assert firsts == ([1, 5, 10, 12] if model is CHARACTERS else [1, 2, 3, 4])


@pytest.mark.parametrize("model", [CHARACTERS, WORDS], ids=["characters", "words"])
def test_a_word_that_is_too_long_is_read_by_its_beginning(
    model: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    long = TaggedExample("file:2", ("a", "b" * 5000, "c"), ("O", "B-P", "O"))
    task = build(Config, {}, source="test").fitted([EXAMPLE])
    collator = task.collator(inputs_of(model), 0)
    with caplog.at_level(logging.WARNING):
        items = collator.items([EXAMPLE, long], training=True)
    (said,) = caplog.messages
    assert said.startswith("words longer than the model reads at once: 1. Only their first characters are read.")
    (window,) = [item.content for item in items if item.example == 1 and item.content.begin == 1]
    assert set(window.text.symbols.tolist()) == {ord("b")}
    assert task.labels[window.classes[0]] == "B-P"
    collator(items, np.arange(len(items)))
