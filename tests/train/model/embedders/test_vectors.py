"""The embedder of vectors: a dense layer and positions, by hand, with a class node in the first place."""

import pytest
import torch

from tokenfree.core.settings import build
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.embedders.characters import InputPositions
from tokenfree.train.model.embedders.vectors import Config
from tokenfree.train.model.encoder import ModelConfig, check

DIMENSIONS = Dimensions(width=6, heads=2, inner_width=16, dropout=0.0, activation="gelu_tanh")


@pytest.mark.parametrize("positions", ["none", "learned", "sinusoidal"])
def test_vectors_by_hand(positions: InputPositions) -> None:
    embedder = Config(size=3, positions=positions, max_characters=5).build(DIMENSIONS)
    x = torch.randn(2, 4, 3)
    found = embedder(x)
    codes = torch.zeros(5, 6) if embedder.positions is None else embedder.positions.weight
    wanted = x @ embedder.dense.weight.T + embedder.dense.bias + codes[:4]
    torch.testing.assert_close(found[:, 1:], wanted[:, 1:])
    torch.testing.assert_close(found[:, 0], (embedder.class_node.weight + codes[:1]).expand(2, -1))
    x[:, 0] = 9.0  # nothing is read in the place of the class node
    assert torch.equal(embedder(x), found)


def test_single_vectors_with_positions_of_their_own() -> None:
    embedder = Config(size=3, positions="learned", max_characters=5).build(DIMENSIONS)
    x = torch.randn(1, 4, 3)
    alone = embedder(x.transpose(0, 1), None, torch.arange(4)[:, None])
    torch.testing.assert_close(alone.transpose(0, 1), embedder(x))


def test_what_costs_are_of() -> None:
    dense, table = Config(size=3, positions="learned", max_characters=5).build(DIMENSIONS).costs(4)
    assert (dense.parameters, dense.multiply_accumulates) == (3 * 6 + 6 + 6, 4 * 3 * 6)
    assert (table.parameters, table.multiply_accumulates) == (5 * 6, 0)


def test_more_vectors_than_positions_are_refused() -> None:
    def problems(positions: str, length: int) -> list[str]:
        embedder = {"name": "vectors", "positions": positions, "max_characters": 16}
        mapping = {"embedder": embedder, "downsampler": "identity", "upsampler": "identity"}
        return check(build(ModelConfig, mapping, source="test"), length)

    assert problems("learned", 16) == problems("none", 17) == []
    (problem,) = problems("sinusoidal", 17)
    assert problem.startswith("model.embedder.max_characters: 16 is less than the length of an example, 17")


@pytest.mark.parametrize("upsampler", ["identity", "repeat_concat"])
def test_fewer_vectors_than_a_unit_takes_are_padded(upsampler: str) -> None:
    mapping = {"width": 16, "embedder": {"name": "vectors", "size": 3}, "upsampler": upsampler}
    encoder = (
        build(ModelConfig, {**mapping, "trunk": {"layers": 1, "heads": 4}}, source="test").build().eval()
    )
    x = torch.randn(2, 2, 3)
    short = encoder(x, torch.ones(2, 2, dtype=torch.bool)).characters
    assert encoder.downsampler.min_characters == 4
    padded, mask = torch.nn.functional.pad(x, (0, 0, 0, 2)), (torch.arange(4) < 2).expand(2, -1)
    torch.testing.assert_close(short, encoder(padded, mask).characters[:, :2], atol=1e-5, rtol=0)
