"""Pairs: the features of two vectors; pairs that are too long, and that what is advised is enough."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.tasks.examples.texts import TextExample
from tokenfree.train.tasks.inputs import text_inputs
from tokenfree.train.tasks.pairs import Config

SMALL = {
    "embedder": {"name": "codepoint_hash", "hashes": 2, "buckets": 64, "max_characters": 64},
    "downsampler": {"name": "identity"},
    "upsampler": {"name": "identity"},
}
PAIRS = [TextExample(f"file:{n}", "a" * n, "b" * n) for n in (10, 40, 151, 97)]


def said_of(model: dict[str, Any], length: int, encode: str, pairs: list[TextExample]) -> str:
    """What is said of pairs for a model and a length; nothing where they fit."""
    config = build(ModelConfig, {"width": 12, "trunk": {"layers": 1, "heads": 2}, **model}, source="test")
    task = build(Config, {"encode": encode}, source="test")
    try:
        task.collator(text_inputs(config, length, None), 0).items(pairs, training=True)
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("encode", ["together", "apart"])
@pytest.mark.parametrize("rate", [1, 3, 4, 5, 7])
@pytest.mark.parametrize("length", [120, 121, 127, 128])
def test_what_is_advised_is_enough(length: int, rate: int, encode: str) -> None:
    down = {"name": "strided_conv", "rate": rate, "block": 16} if rate > 1 else {"name": "identity"}
    up = {"name": "repeat_concat" if rate > 1 else "identity"}
    model = {"embedder": {"name": "codepoint_hash", "hashes": 2}, "downsampler": down, "upsampler": up}
    told = said_of(model, length, encode, PAIRS)
    assert told.startswith("file:151: this example is ")
    assert ("2 are too long, this one the most" in told) == (encode == "together")  # apart, 97 fits
    (advised,) = re.findall(r"Increase train.length to (\d+), or leave", told)
    assert not said_of(model, int(advised), encode, PAIRS)


@pytest.mark.parametrize("representation", ["pooled", "class_max"])
def test_features_of_two_vectors(representation: str) -> None:
    """r1, r2, |r1 - r2|, r1 - r2 (arXiv 1912.00544), of which the last is r1 * r2 where it is asked for."""
    model = build(ModelConfig, {"width": 12, "trunk": {"layers": 1, "heads": 2}, **SMALL}, source="test")
    seen: list[torch.Tensor] = []
    for combine in ("difference", "product"):
        torch.manual_seed(0)
        fields = {"encode": "apart", "combine": combine, "labels": ["no", "yes"], "representation": representation}
        task = build(Config, fields, source="test")
        head, encoder = task.build(model), model.build().eval()
        head.classifier.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        collator = task.collator(text_inputs(model, 64, None), 0)
        examples = [TextExample("file:1", "rain falls", "it is wet", "yes"), TextExample("file:2", "ox", "an ox", "no")]
        batch = collator(collator.items(examples, training=False), np.arange(2))
        head.outputs(encoder, {name: torch.from_numpy(values) for name, values in batch.items()})
    difference, product = seen
    r1, r2, size, last = difference.chunk(4, dim=-1)
    assert (r1 - r2).abs().max() > 0
    assert torch.equal(size, (r1 - r2).abs())
    assert torch.equal(last, r1 - r2)
    assert torch.equal(product, torch.cat([r1, r2, size, r1 * r2], dim=-1))
    assert build(Config, {}, source="test").combine == "difference"


def test_words_are_told_without_a_number() -> None:
    model = {
        "embedder": {"name": "byte_table"},
        "downsampler": {"name": "word_pooling"},
        "upsampler": {"name": "subword_queries"},
    }
    told = said_of(model, 192, "together", PAIRS[2:3])
    assert re.search(r"words and bytes longer .*\. Increase train.length, or leave it out\.$", told)
