"""Without gradients, position codes are added to what hides keys once and in place; what comes out is the same."""

from typing import Any

import pytest
import torch

from tokenfree.core.settings import build
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import Trunk

CODES: list[dict[str, Any]] = [
    {"name": name, **fields}
    for name in ("diet_abs", "diet_rel", "t5", "shaw")
    for fields in ({"sharing": "none"}, {"sharing": "head_wise"}, {"sharing": "layer_wise"})
] + [{"name": "tupe"}, {"name": "shaw", "values": True}]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("segments", ["none", "per_head"])
@pytest.mark.parametrize("code", CODES, ids=str)
def test_same_as_with_gradients(code: dict[str, Any], segments: str, batch: int) -> None:
    torch.manual_seed(0)
    fields = {"layers": 3, "heads": 4, "positions": code, "segments": segments}
    trunk = Trunk(build(TrunkConfig, fields, source="test"), Dimensions(16, 4, 32, 0.0, "gelu")).eval()
    for parameter in trunk.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    units = torch.randn(batch, 11, 16)
    valid = torch.arange(11) < torch.tensor([[9], [11], [4]])[:batch]
    parts = (torch.arange(11) > 5).long().expand(batch, -1)
    wanted = trunk(units, valid, parts)
    with torch.no_grad():
        torch.testing.assert_close(trunk(units, valid, parts), wanted, atol=1e-5, rtol=1e-5)
        units[:, -1] += 1  # of another batch with the same trunk, nothing is left over
        other = trunk(units, ~valid, parts)
    torch.testing.assert_close(other, trunk(units, ~valid, parts), atol=1e-5, rtol=1e-5)
