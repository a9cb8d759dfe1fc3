"""Positions and segments at the input: learned, sinusoidal, none."""

import math
from typing import Any

import pytest
import torch

from tokenfree.core.settings import build
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.costs import costs
from tokenfree.train.model.encoder import Encoder, ModelConfig

DIMENSIONS = Dimensions(width=32, heads=4, inner_width=64, dropout=0.0, activation="gelu_tanh")


def encoder_of(**embedder: Any) -> Encoder:
    mapping = {
        "width": 32,
        "embedder": {"max_characters": 40, **embedder},
        "trunk": {"layers": 1, "heads": 4},
    }
    torch.manual_seed(0)
    return build(ModelConfig, mapping, source="test").build().eval()


def test_sinusoids() -> None:
    weight: Any = encoder_of(positions="sinusoidal").embedder.positions.weight
    for place in (0, 1, 7, 39):
        for i in range(16):
            angle = place / 10000 ** (2 * i / 32)
            assert weight[place, 2 * i].item() == pytest.approx(0.02 * 2**0.5 * math.sin(angle), abs=1e-6)
            assert weight[place, 2 * i + 1].item() == pytest.approx(0.02 * 2**0.5 * math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("name", ["codepoint_hash", "ngram_hash"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_positions_do_not_hide_what_stands_there(name: str, positions: str) -> None:
    """Two texts in fresh vectors: as different as without positions, or nearly so."""
    texts = torch.tensor([list(range(65, 95)), list(range(97, 127))])
    plain, coded = (
        encoder_of(name=name, positions=each, segments=0).embedder(texts) for each in ("none", positions)
    )
    between = [(first - second).square().mean().item() for first, second in (plain, coded)]
    assert between[1] > between[0] / 3


@pytest.mark.parametrize("name", ["codepoint_hash", "ngram_hash"])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
@pytest.mark.parametrize("segments", [0, 2])
def test_parameters(name: str, positions: str, segments: int) -> None:
    mapping = {"width": 32, "embedder": {"name": name, "positions": positions, "segments": segments}}
    config = build(ModelConfig, {**mapping, "trunk": {"heads": 4}}, source="test")
    parts = {part.name: part.parameters for part in costs(config, 16)}
    assert parts.get("position table", 0) == (16384 * 32 if positions == "learned" else 0)
    norm = "segment table + embedding norm" if segments else "embedding norm"
    assert parts[norm] == (segments + 2) * 32


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_places(positions: str) -> None:
    """Equal characters at two places differ by their positions only, and targets are embedded as at their places."""
    encoder = encoder_of(positions=positions, segments=0)
    codepoints = torch.tensor([[65, 66, 65]])
    embedded = encoder.embedder(codepoints)
    assert torch.equal(embedded[0, 0], embedded[0, 2]) == (positions == "none")
    torch.testing.assert_close(encoder.embed_characters(codepoints, torch.tensor([[0, 1, 2]])), embedded)
    assert torch.equal(encoder.embedder(codepoints, torch.ones_like(codepoints)), embedded)  # no segments


def test_without_positions_no_text_is_too_long() -> None:
    assert encoder_of(positions="none").embedder(torch.full((1, 100), 65)).shape == (1, 100, 32)
