"""Causal attention: by hand, and that nothing of what comes after reaches a unit, whatever position code there is."""

import pytest
import torch

from tokenfree.core.settings import build
from tokenfree.train.model.attention.causal import CausalCore
from tokenfree.train.model.common.attention import Heads
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import LAYER, POSITIONS, TrunkConfig
from tokenfree.train.model.encoder import Trunk


def test_attention_by_loops() -> None:
    q, k, v = (torch.randn(2, 3, 5, 4, dtype=torch.float64) for _ in range(3))
    valid = torch.tensor([[True] * 5, [True, True, False, True, False]])
    core = CausalCore(0.0)
    found = core(Heads(q, k, v, valid, torch.zeros(2, 5, 12)))
    for row in range(2):
        for head in range(3):
            for place in range(5):
                seen = [key for key in range(place + 1) if valid[row, key]]
                weights = (k[row, head, seen] @ q[row, head, place] / 2).softmax(dim=0)
                torch.testing.assert_close(found[row, head, place], weights @ v[row, head, seen])
    assert core.num_pairs(5, 5, 3) == 3 * 15


@pytest.mark.parametrize("layer", LAYER.names())
@pytest.mark.parametrize("code", POSITIONS.names())
def test_nothing_comes_back_from_later_units(code: str, layer: str) -> None:
    mapping = {
        "layers": 2,
        "heads": 2,
        "dropout": 0.0,
        "attention": "causal",
        "layer": layer,
        "positions": code,
    }
    trunk = Trunk(build(TrunkConfig, mapping, source="test"), Dimensions(8, 2, 16, 0.0, "gelu")).double()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.normal_(0, 0.4)
    x, valid = torch.randn(1, 12, 8, dtype=torch.float64), torch.ones(1, 12, dtype=torch.bool)
    changed = x.clone()
    changed[:, 7] = torch.randn(8)  # a constant would be nothing to LayerNorm
    before, after = trunk(x, valid), trunk(changed, valid)
    torch.testing.assert_close(after[:, :7], before[:, :7], atol=1e-12, rtol=0)
    assert ((after - before).abs().amax(dim=-1) > 1e-6)[0, 7:].all()
