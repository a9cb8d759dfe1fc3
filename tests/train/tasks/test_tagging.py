"""Tagging: at which of a word's characters the loss is taken, and words that are too long."""

import logging
from typing import Any

import numpy as np
import pytest

from tests.train.conftest import WORDS
from tests.train.tasks.inputs.test_long_texts import KINDS
from tokenfree.core.settings import build
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.examples.tagged import TaggedExample
from tokenfree.train.tasks.inputs import CharacterInputs, TextInputs, WordInputs
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_that_is_too_long_is_read_by_its_first_characters(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest of its sentence, and of the set, is read as ever."""
    words, inputs = ("in", "q=" + "é1" * 200, "Lima", "ok"), KINDS[kind]()
    examples = [EXAMPLE, TaggedExample("file:2", words, ("O", "B-P", "B-Q", "O")), EXAMPLE]
    task = build(Config, {}, source="test").fitted(examples)
    with caplog.at_level(logging.WARNING, "tokenfree"):
        items = task.collator(inputs, 0).items(examples, training=True)
    assert [record.getMessage() for record in caplog.records] == [
        "words longer than the model reads at once: 1. Only their beginnings are read."
    ]
    assert all(not inputs.missing([item.content.text]) for item in items)
    long = next(item.content for item in items if item.example == 1 and item.content.begin == 1)
    most = inputs.fitting(inputs.encode(words[1]))
    assert abs(long.text.num_vectors - most) <= 4  # of a character there may be several bytes
    outputs = [{"logits": np.eye(len(task.labels))[item.content.classes]} for item in items]
    found = [line["tags"] for line in task.predictions(examples, items, outputs)]
    assert found == [list(example.tags or ()) for example in examples]


def test_a_word_of_a_million_characters() -> None:
    inputs, example = inputs_of(CHARACTERS), TaggedExample("file:1", ("x" * 1_000_000, "b"), ("B-P", "O"))
    items = (
        build(Config, {}, source="test").fitted([example]).collator(inputs, 0).items([example], training=True)
    )
    assert [item.content.text.num_vectors for item in items] == [56, 1]
