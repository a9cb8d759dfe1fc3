"""Characters narrower than the units (CANINE, Table 6): embeddings and local layer small, all else as it was."""

from typing import Any

import pytest
import torch
from torch import nn

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.model.costs import costs
from tokenfree.train.model.encoder import ModelConfig, check

TINY: dict[str, Any] = {
    "width": 16,
    "character_width": 8,
    "embedder": {"buckets": 64, "hashes": 4, "max_characters": 128},
    "trunk": {"layers": 1, "heads": 2},
}


def test_widths_along_the_way() -> None:
    torch.manual_seed(0)
    encoder = build(ModelConfig, TINY, source="test").build().eval()
    codepoints, mask = torch.randint(32, 999, (2, 40)), torch.arange(40) < torch.tensor([[40], [9]])
    down, units = encoder.encode(codepoints, mask)
    assert (down.characters_BCD.shape, units.shape) == ((2, 40, 8), (2, 10, 16))
    output = encoder(codepoints, mask, None, torch.tensor([[0, 39], [8, 8]]))
    assert (output.characters.shape, output.pooled.shape) == ((2, 2, 16), (2, 16))
    assert encoder.embed_characters(codepoints[:, :3], torch.arange(3).expand(2, 3)).shape == (2, 3, 16)
    (output.characters + output.pooled[:, None]).square().sum().backward()
    weight = encoder.downsampler.widen.weight
    assert isinstance(weight, nn.Parameter)
    assert weight.shape == (16, 8)
    assert encoder.downsampler.widen.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("width", [384, 192])
def test_parameters_at_base(width: int) -> None:
    parameters = {
        cost.name: cost.parameters
        for cost in costs(build(ModelConfig, {"character_width": width}, source="test"), 2048)
    }
    assert parameters["hash tables"] == parameters["position table"] == 16384 * width
    assert parameters["local layer"] == 12 * width**2 + 13 * width
    assert parameters["down convolution + norm"] == (4 * width * 768 + 768) + (width * 768 + 768) + 2 * 768
    assert parameters["up convolution + norm"] == 4 * (width + 768) * 768 + 768 + 2 * 768
    assert parameters["deep stack"] == 85_054_464
    assert parameters["final layer"] == 7_087_872


def test_problems() -> None:
    def problems(**options: Any) -> str:
        return "; ".join(check(build(ModelConfig, {**TINY, **options}, source="test")))

    assert problems() == ""
    assert "model.trunk.heads: 2 does not divide model.character_width, 9" in problems(
        character_width=9, embedder={"hashes": 3}
    )
    assert "model.embedder.hashes: 4 does not divide" in problems(character_width=6)
    assert "model.upsampler.residual_characters" in problems(
        upsampler={"name": "repeat_add", "residual_characters": True}
    )
    with pytest.raises(UserError, match=r"model\.character_width: 8 is not model\.width, 16"):
        build(
            ModelConfig, {**TINY, "downsampler": "identity", "upsampler": "identity"}, source="test"
        ).build()
