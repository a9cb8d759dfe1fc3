"""Pairs: the features of two vectors."""

import numpy as np
import pytest
import torch

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


@pytest.mark.parametrize("representation", ["pooled", "class_max"])
def test_features_of_two_vectors(representation: str) -> None:
    """r1, r2, |r1 - r2|, r1 - r2 (arXiv 1912.00544), of which the last is r1 * r2 where it is asked for."""
    model = build(ModelConfig, {"width": 12, "trunk": {"layers": 1, "heads": 2}, **SMALL}, source="test")
    seen: list[torch.Tensor] = []
    for combine in ("difference", "product"):
        torch.manual_seed(0)
        fields = {
            "encode": "apart",
            "combine": combine,
            "labels": ["no", "yes"],
            "representation": representation,
        }
        task = build(Config, fields, source="test")
        head, encoder = task.build(model), model.build().eval()
        head.classifier.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        collator = task.collator(text_inputs(model, 64, None), 0)
        examples = [
            TextExample("file:1", "rain falls", "it is wet", "yes"),
            TextExample("file:2", "ox", "an ox", "no"),
        ]
        batch = collator(collator.items(examples, training=False), np.arange(2))
        head.outputs(encoder, {name: torch.from_numpy(values) for name, values in batch.items()})
    difference, product = seen
    r1, r2, size, last = difference.chunk(4, dim=-1)
    assert (r1 - r2).abs().max() > 0
    assert torch.equal(size, (r1 - r2).abs())
    assert torch.equal(last, r1 - r2)
    assert torch.equal(product, torch.cat([r1, r2, size, r1 * r2], dim=-1))
    assert build(Config, {}, source="test").combine == "difference"
