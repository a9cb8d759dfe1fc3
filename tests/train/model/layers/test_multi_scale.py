"""The multi-scale Transformer's own layer: its formula, parameters and initial weights."""

from typing import Any

import pytest
import torch

from tokenfree.core.settings import build
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import ModelConfig, Trunk

DIMENSIONS = Dimensions(width=12, heads=4, inner_width=48, dropout=0.1, activation="gelu_tanh")


def trunk(**options: Any) -> Any:
    mapping = {"layers": 2, "layer": {"name": "multi_scale", **options}, "attention": {"name": "multi_scale"}}
    torch.manual_seed(0)
    return Trunk(build(TrunkConfig, mapping, source="test"), DIMENSIONS)


@pytest.mark.parametrize("head_width", [3, 5])
def test_parameters_have_no_feed_forward_term(head_width: int) -> None:
    inner = 4 * head_width
    layer = trunk(head_width=head_width).layers[0]
    weights = 3 * 12 * inner + inner * 12
    assert sum(parameter.numel() for parameter in layer.parameters()) == weights + 3 * inner + 12 + 2 * 12
    assert layer.multiply_accumulates(10) >= 10 * weights


def test_formula() -> None:
    layer = trunk().eval().layers[0]
    x, valid = torch.randn(2, 9, 12), torch.ones(2, 9, dtype=torch.bool)
    kept = {}
    layer.output.register_forward_hook(lambda module, inputs, output: kept.update(attended=output))
    wanted = layer(x, valid)
    torch.testing.assert_close(layer.norm(x + kept["attended"].clamp(min=0)), wanted)


def test_initial_weights_and_dropout() -> None:
    mapping = {
        "width": 64,
        "embedder": {"buckets": 64},
        "trunk": {"layers": 1, "heads": 4, "layer": "multi_scale", "attention": "multi_scale"},
    }
    torch.manual_seed(0)
    layer: Any = build(ModelConfig, mapping, source="test").build().trunk.layers[0]
    for dense in (layer.query, layer.key, layer.value, layer.output):
        assert dense.weight.std().item() == pytest.approx((2 / 128) ** 0.5, rel=0.05)
        assert (dense.bias == 0).all()
    assert layer.core.dropout == 0
    assert layer.dropout.rate == 0.1
