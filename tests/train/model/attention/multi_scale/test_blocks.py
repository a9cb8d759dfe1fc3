"""What multi-scale attention leaves out, and how it cuts a batch into blocks, changes nothing."""

import pytest
import torch
from torch import Tensor

from tokenfree.core.settings import build
from tokenfree.train.model.common.attention import Heads
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import Trunk

WIDTH, HEADS = 20, 5


def trunk_of(*scales: int | str, convention: str = "width") -> Trunk:
    torch.manual_seed(0)
    attention = {"name": "multi_scale", "scales": list(scales), "alpha": 0, "window_convention": convention}
    fields = {"layers": 2, "heads": HEADS, "dropout": 0, "layer": "multi_scale", "attention": attention}
    return Trunk(build(TrunkConfig, fields, source="test"), Dimensions(WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu"))


def output_and_gradients(trunk: Trunk) -> list[Tensor]:
    units = torch.randn(3, 90, WIDTH, generator=torch.Generator().manual_seed(1))
    weights = torch.linspace(-1, 1, WIDTH) ** 3
    output = trunk(units, torch.arange(90) < torch.tensor([[90], [50], [1]]))
    return [output, *torch.autograd.grad((output * weights).sum(), list(trunk.parameters()))]


def test_heads_alone_need_no_queries_and_keys() -> None:
    trunk = trunk_of(1, 3, "N/8", "N/4", 1)
    assert [layer.core.num_alone for layer in trunk.layers] == [1, 1]  # pyright: ignore
    left_out = output_and_gradients(trunk)
    for layer in trunk.layers:
        layer.core.num_alone = 0  # pyright: ignore
    for ours, whole in zip(left_out, output_and_gradients(trunk), strict=True):
        torch.testing.assert_close(ours, whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("code", ["none", "diet_rel", "shaw"])
def test_position_codes_need_all_heads(code: str) -> None:
    """Some read the queries of all heads; without a code, those of the heads that are alone are not made."""
    torch.manual_seed(0)
    attention = {"name": "multi_scale", "scales": [1, 3], "alpha": 0}
    fields = {"layers": 1, "heads": 4, "layer": "multi_scale", "attention": attention, "positions": code}
    trunk = Trunk(build(TrunkConfig, fields, source="test"), Dimensions(WIDTH, 4, 80, 0.0, "gelu")).eval()
    for parameter in trunk.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    (layer,) = trunk.layers
    given: list[Heads] = []
    layer.core.register_forward_pre_hook(lambda core, arguments: given.append(arguments[0]))  # pyright: ignore
    units, valid = torch.randn(1, 9, WIDTH), torch.ones(1, 9, dtype=torch.bool)
    before = trunk(units, valid)
    layer.core.num_alone = 0  # pyright: ignore
    torch.testing.assert_close(before, trunk(units, valid))
    assert [heads.queries_BHQE.shape[1] for heads in given] == [2 if code == "none" else 4, 4]


@pytest.mark.parametrize(
    ("scales", "convention"), [((3, 1), "width"), ((1, 3), "half"), (("N/90", 3), "width")]
)
def test_only_the_first_heads_of_scale_1_are_alone(scales: tuple[int | str, ...], convention: str) -> None:
    assert all(layer.core.num_alone == 0 for layer in trunk_of(*scales, convention=convention).layers)  # pyright: ignore


def test_where_all_heads_are_alone_every_weight_has_a_gradient() -> None:
    gradients = output_and_gradients(trunk_of(1))[1:]
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_block_at_the_edge_sees_nothing_of_the_next_example() -> None:
    trunk = trunk_of(3, "N/8", 31)
    units = torch.randn(3, 200, WIDTH)
    valid = torch.arange(200) < torch.tensor([[200], [199], [200]])
    before = trunk(units, valid)
    units[1] = torch.randn(200, WIDTH)
    after = trunk(units, valid)
    assert torch.equal(after[0], before[0])
    assert torch.equal(after[2], before[2])
    assert not torch.equal(after[1], before[1])
