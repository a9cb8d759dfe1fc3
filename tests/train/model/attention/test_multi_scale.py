"""Multi-scale attention: the head allocation of the paper, widths, and windows against loops."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.train.model.attention.function_bias import FunctionBias
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.model.attention.full import FullAttention
from tokenfree.train.model.attention.multi_scale import (
    Config,
    MultiScaleAttention,
    Slope,
    allocate_heads,
    resolve_width,
)
from tokenfree.train.model.common.attention import Heads
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.encoder import ModelConfig, check
from tokenfree.train.model.layers.bert import BertLayer

DIMENSIONS = Dimensions(width=16, heads=4, inner_width=12, dropout=0.0, activation="gelu_tanh")


@pytest.mark.parametrize(
    ("alpha", "num_heads", "layers"),
    [
        (0.5, 10, [[5, 2, 2, 1, 0], [4, 2, 2, 1, 1], [2, 2, 2, 2, 2]]),
        (1.0, 10, [[7, 2, 1, 0, 0], [5, 2, 2, 1, 0], [2, 2, 2, 2, 2]]),
        (0.0, 10, [[2, 2, 2, 2, 2]] * 3),
        (-0.5, 10, [[1, 1, 2, 2, 4], [2, 1, 2, 2, 3], [2, 2, 2, 2, 2]]),
        (-1.0, 10, [[1, 0, 1, 2, 6], [1, 1, 2, 2, 4], [2, 2, 2, 2, 2]]),
        (0.5, 12, [[6, 3, 2, 1, 0], [4, 3, 2, 2, 1], [3, 2, 3, 2, 2]]),
    ],
)
def test_allocation_table(alpha: float, num_heads: int, layers: list[list[int]]) -> None:
    assert allocate_heads(alpha, 3, num_heads, 5, "harmonic") == layers
    assert allocate_heads(alpha, 3, num_heads, 5, "linear") == layers  # the two slopes agree for three layers


def test_slopes_differ_from_four_layers_on() -> None:
    """A head has the first scale whose share of the heads, added to those before, exceeds its number."""
    decays: dict[Slope, tuple[float, ...]] = {
        "harmonic": (1, 1 / 2, 1 / 3, 1 / 4, 0),
        "linear": (1, 3 / 4, 1 / 2, 1 / 4, 0),
    }
    for slope, of_layers in decays.items():
        for counts, decay in zip(allocate_heads(1.0, 5, 12, 4, slope), of_layers, strict=True):
            shares = torch.softmax(
                torch.tensor([decay * (4 - k) for k in (1, 2, 3, 4)], dtype=torch.float64), 0
            )
            upto = (12 * shares).cumsum(0) - 1e-9
            heads = [next(k for k in range(4) if head < upto[k]) for head in range(12)]
            assert counts == [heads.count(k) for k in range(4)]
    assert allocate_heads(1.0, 5, 12, 4, "harmonic") != allocate_heads(1.0, 5, 12, 4, "linear")


@given(
    alpha=st.floats(-1000, 1000),
    num_layers=st.integers(1, 30),
    num_heads=st.integers(1, 32),
    num_scales=st.integers(1, 9),
    slope=st.sampled_from(["harmonic", "linear"]),
)
def test_every_head_gets_a_scale(
    alpha: float, num_layers: int, num_heads: int, num_scales: int, slope: Any
) -> None:
    allocation = allocate_heads(alpha, num_layers, num_heads, num_scales, slope)
    assert len(allocation) == num_layers
    for counts in allocation:
        assert len(counts) == num_scales
        assert sum(counts) == num_heads
        assert min(counts) >= 0


@pytest.mark.parametrize(
    ("length", "widths"),
    [
        (100, [1, 3, 7, 13, 25, 51]),
        (22, [1, 3, 1, 3, 5, 11]),
        (15, [1, 3, 1, 1, 3, 7]),
        (1, [1, 1, 1, 1, 1, 1]),
    ],
)
def test_widths(length: int, widths: list[int]) -> None:
    assert [resolve_width(scale, length) for scale in (1, 3, "N/16", "N/8", "N/4", "N/2")] == widths


@given(
    length=st.integers(1, 5000),
    scale=st.integers(1, 4000).map(lambda w: 2 * w - 1) | st.integers(1, 64).map("N/{}".format),
)
def test_every_width_is_odd_and_at_least_one(length: int, scale: int | str) -> None:
    width = resolve_width(scale, length)
    assert width % 2 == 1
    assert 1 <= width <= 2 * length - 1


class Loops(FullAttention):
    """Attention one query and one head at a time; `scales` gives each head its own."""

    def __init__(self, scales: list[int | str], lengths: list[int], half: bool) -> None:
        super().__init__(0.0)
        self.scales, self.lengths, self.beside = scales, lengths, half

    def forward(self, heads: Heads) -> Tensor:
        q, k, v = heads[:3]
        context = torch.zeros_like(q)
        for b, h, i in torch.cartesian_prod(*(torch.arange(size) for size in q.shape[:3])).tolist():
            scale = self.scales[h]
            width = scale if isinstance(scale, int) else resolve_width(scale, self.lengths[b])
            reach = width if self.beside else (width - 1) // 2
            near = range(max(0, i - reach), min(i + reach + 1, q.shape[2]))
            keys = [j for j in near if j < self.lengths[b] or j == i]
            logits = torch.stack([q[b, h, i] @ k[b, h, j] / q.shape[-1] ** 0.5 for j in keys])
            if heads.bias is not None:
                places = torch.tensor(keys)
                logits = logits + heads.bias(slice(h, h + 1), torch.full_like(places, i), places)[0]
            context[b, h, i] = logits.softmax(dim=0) @ v[b, h, keys]
        return context


def relative_bias(heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
    """A bias that tells heads, sides and distances apart."""
    slopes = torch.tensor([0.3, -0.2, 0.1, 0.7], dtype=torch.float64)[heads]
    return slopes.view(-1, *[1] * max(queries.dim(), keys.dim())) * (queries - keys) + 0.01 * queries


@given(
    scales=st.lists(st.sampled_from([1, 3, 5, 9, 99, "N/16", "N/8", "N/4", "N/2"]), min_size=1, max_size=4),
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=2),
    padding=st.integers(0, 40),
    biased=st.booleans(),
    half=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=15, deadline=None)
def test_windows_equal_loops(
    scales: list[int | str], lengths: list[int], padding: int, biased: bool, half: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    counts = [4 // len(scales)] * len(scales)
    counts[0] += 4 - sum(counts)
    each = [scale for scale, count in zip(scales, counts, strict=True) for _ in range(count)]
    size = max(lengths) + padding
    valid = torch.arange(size) < torch.tensor(lengths)[:, None]
    x = torch.randn(len(lengths), size, 16, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(x)
    fast = BertLayer(
        DIMENSIONS, MultiScaleAttention(tuple(scales), counts, "half" if half else "width", 0.0)
    ).double()
    slow = BertLayer(DIMENSIONS, Loops(each, lengths, half)).double()
    slow.load_state_dict(fast.state_dict())
    bias = FunctionBias(relative_bias, size) if biased else None
    results = []
    for layer in (fast, slow):
        output = layer(x, valid, bias)
        results.append([output, *torch.autograd.grad((output * weights).sum(), [x, *layer.parameters()])])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)


def core(scale: int | str, layer_heads: int = 4) -> MultiScaleAttention:
    return MultiScaleAttention((scale,), [layer_heads], "width", 0.0)


def layer_of(attention: FullAttention | MultiScaleAttention) -> BertLayer:
    torch.manual_seed(0)
    return BertLayer(DIMENSIONS, attention).double()


def all_valid(x: Tensor) -> Tensor:
    return torch.ones(x.shape[:2], dtype=torch.bool)


def test_scale_1_is_position_wise() -> None:
    layer, x = layer_of(core(1)), torch.randn(1, 9, 16, dtype=torch.float64)
    order = torch.randperm(9)
    torch.testing.assert_close(layer(x[:, order], all_valid(x)), layer(x, all_valid(x))[:, order])
    changed = x.clone()
    changed[:, 4] += 1
    same = (layer(changed, all_valid(x)) == layer(x, all_valid(x))).all(dim=-1)[0]
    assert same.tolist() == [i != 4 for i in range(9)]


@pytest.mark.parametrize("size", [5, 200])
def test_the_widest_window_is_full_attention(size: int) -> None:
    x = torch.randn(2, size, 16, dtype=torch.float64)
    full, wide = layer_of(FullAttention(0.0)), layer_of(core(2 * size - 1))
    torch.testing.assert_close(wide(x, all_valid(x)), full(x, all_valid(x)), atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("num_layers", "scale", "reach"), [(2, 3, 2), (6, 3, 6), (1, "N/2", 25), (2, "N/2", 50)]
)
def test_receptive_field(num_layers: int, scale: int | str, reach: int) -> None:
    layers = [layer_of(core(scale)) for _ in range(num_layers)]
    x = torch.randn(1, 100, 16, dtype=torch.float64)
    middle = 40
    changed = x.clone()
    changed[:, middle] += 1
    after, before = changed, x
    for layer in layers:
        after, before = layer(after, all_valid(x)), layer(before, all_valid(x))
    different = (after != before).any(dim=-1)[0].nonzero().flatten().tolist()
    assert different == list(range(max(0, middle - reach), min(100, middle + reach + 1)))


@pytest.mark.parametrize("scale", [1, 3, 41, "N/8", "N/2"])
def test_padding_changes_nothing(scale: int | str) -> None:
    layer, x = layer_of(core(scale)), torch.randn(1, 50, 16, dtype=torch.float64)
    padded = torch.cat([x, torch.randn(1, 200, 16, dtype=torch.float64)], dim=1)
    valid = torch.arange(250)[None] < 50
    torch.testing.assert_close(layer(padded, valid)[:, :50], layer(x, all_valid(x)), atol=1e-12, rtol=0)


def test_translation() -> None:
    """With constant scales the content may stand anywhere, if nothing valid lies beside it."""
    layer, x = layer_of(core(5)), torch.randn(1, 20, 16, dtype=torch.float64)
    places = torch.arange(90)[None]
    outputs = []
    for start in (10, 37):
        padded = torch.zeros(1, 90, 16, dtype=torch.float64)
        padded[:, start : start + 20] = x
        outputs.append(layer(padded, (places >= start) & (places < start + 20))[:, start : start + 20])
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-12, rtol=0)


def test_order_is_told_by_windows_only() -> None:
    x = torch.randn(1, 12, 16, dtype=torch.float64)
    order = torch.cat([torch.tensor([0]), 1 + torch.randperm(11, generator=torch.Generator().manual_seed(3))])
    full, mixed = layer_of(core(99)), layer_of(MultiScaleAttention((3, 99), [1, 3], "width", 0.0))
    torch.testing.assert_close(full(x[:, order], all_valid(x))[:, 0], full(x, all_valid(x))[:, 0])
    assert (mixed(x[:, order], all_valid(x)) - mixed(x, all_valid(x)))[:, 0].abs().max() > 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [20, 300])
def test_no_nan_for_rows_of_padding(dtype: torch.dtype, size: int) -> None:
    attention = MultiScaleAttention((1, 3, "N/16", "N/4"), [1, 1, 1, 1], "width", 0.0)
    q, k, v = (10 * torch.randn(2, 4, size, 4, dtype=dtype).requires_grad_() for _ in range(3))
    valid = torch.arange(size) < torch.tensor([[size], [1]])
    context = attention(Heads(q, k, v, valid, v, None))
    assert context.isfinite().all()
    gradients = torch.autograd.grad(context.float().sum(), (q, k, v))
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize(
    ("scale", "pairs"), [(1, 512), (3, 512 * 3 - 2), (65, 512 * 65 - 32 * 33), (1023, 512**2)]
)
def test_visible_pairs(scale: int, pairs: int) -> None:
    assert core(scale).num_pairs(512, 512, 4) == 4 * pairs


def test_settings_go_to_a_mapping_and_back() -> None:
    mapping = {"trunk": {"attention": {"name": "multi_scale", "alpha": -0.5, "scales": [3, "N/2"]}}}
    config = build(ModelConfig, mapping, source="test")
    assert config.trunk.attention == Config(alpha=-0.5, scales=(3, "N/2"))
    assert build(ModelConfig, to_mapping(config), source="test") == config


@pytest.mark.parametrize("scale", ["M/4", "N/0", "N", 0, -3])
def test_scales_that_are_none(scale: Any) -> None:
    with pytest.raises(UserError, match=r"trunk\.attention\.scales"):
        build(
            ModelConfig, {"trunk": {"attention": {"name": "multi_scale", "scales": [scale]}}}, source="test"
        )


def test_even_scales_and_no_scales_are_problems() -> None:
    def problems(**attention: Any) -> list[str]:
        return check(
            build(ModelConfig, {"trunk": {"attention": {"name": "multi_scale", **attention}}}, source="test")
        )

    assert problems(scales=[1, 4]) == [
        "model.trunk.attention.scales: 4 is even; windows are symmetric, use 5"
    ]
    assert problems(scales=[1, 4], window_convention="half") == []
    assert problems(scales=[]) == [
        "model.trunk.attention.scales: give at least one scale, such as [1, 3, N/16]"
    ]


def test_every_layer_has_its_own_mix() -> None:
    config = Config(alpha=0.5)
    dimensions = Dimensions(width=40, heads=10, inner_width=8, dropout=0.0, activation="gelu")
    groups = [config.build(dimensions, layer, 3).groups for layer in range(3)]
    assert groups[0] == [(1, 5), (3, 2), ("N/16", 2), ("N/8", 1)]
    assert groups[2] == [(1, 2), (3, 2), ("N/16", 2), ("N/8", 2), ("N/4", 2)]
