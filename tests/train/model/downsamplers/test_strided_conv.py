"""DOWN of CANINE: block-local attention against loops, unit counts, mask rules."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tokenfree.train.model.attention.full import FullAttention
from tokenfree.train.model.common.attention import Heads
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.downsamplers import strided_conv
from tokenfree.train.model.downsamplers.strided import BlockAttention, unit_of_characters
from tokenfree.train.model.layers.bert import BertLayer

DIMENSIONS = Dimensions(width=8, heads=2, inner_width=12, dropout=0.0, activation="gelu_tanh")


class Loops(FullAttention):
    """Attention one query and one head at a time; `sees(b, h, i)` lists the keys."""

    def __init__(self, sees: Callable[[int, int, int], list[int]]) -> None:
        super().__init__(0.0)
        self.sees = sees

    def forward(self, heads: Heads) -> Tensor:
        q, k, v = heads[:3]
        context = torch.zeros_like(q)
        for b, h, i in torch.cartesian_prod(*(torch.arange(size) for size in q.shape[:3])).tolist():
            keys = self.sees(b, h, i)
            logits = torch.stack([q[b, h, i] @ k[b, h, j] / q.shape[-1] ** 0.5 for j in keys])
            weights = logits.softmax(dim=0)
            context[b, h, i] = sum(weight * v[b, h, j] for weight, j in zip(weights, keys, strict=True))
        return context


def outputs_and_gradients(layer: BertLayer, x: Tensor, valid: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    output = layer(x, valid)
    parameters = [x, *layer.parameters()]
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).reshape(output.shape)
    return [output.detach(), *torch.autograd.grad((output * weights).sum(), parameters)]


@given(
    lengths=st.lists(st.integers(1, 11), min_size=1, max_size=3),
    block=st.integers(1, 6),
    padding=st.integers(0, 4),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=25, deadline=None)
def test_block_attention_equals_loops(lengths: list[int], block: int, padding: int, seed: int) -> None:
    torch.manual_seed(seed)
    size = max(lengths) + padding
    valid = torch.arange(size) < torch.tensor(lengths)[:, None]

    def sees(b: int, h: int, i: int) -> list[int]:
        start = i // block * block
        if start >= lengths[b]:
            pytest.fail("the even weights of blocks of padding are tested on their own")
        return list(range(start, min(start + block, lengths[b])))

    fast = BertLayer(DIMENSIONS, BlockAttention(block, 0.0)).double()
    x = torch.randn(len(lengths), size, 8, dtype=torch.float64)
    shown = min(-(-min(lengths) // block) * block, size)  # blocks with a real character in every row
    slow = BertLayer(DIMENSIONS, Loops(sees)).double()
    slow.load_state_dict(fast.state_dict())
    fast_ones = outputs_and_gradients(fast, x[:, :shown], valid[:, :shown])
    slow_ones = outputs_and_gradients(slow, x[:, :shown], valid[:, :shown])
    for one, other in zip(fast_ones, slow_ones, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)
    torch.testing.assert_close(fast(x, valid)[:, :shown], fast_ones[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_block_of_padding_gets_even_weights_and_never_nan(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q, k, v = (100 * torch.randn(1, 2, 11, 4, dtype=dtype).requires_grad_() for _ in range(3))
    valid = torch.arange(11)[None] < 3
    context = BlockAttention(4, 0.0)(Heads(q, k, v, valid, v, None))
    for start, end in ((4, 8), (8, 11)):
        mean = v[:, :, start:end].float().mean(dim=2, keepdim=True).expand(-1, -1, end - start, -1)
        torch.testing.assert_close(context[:, :, start:end].float(), mean, atol=1.0, rtol=0.02)
    gradients = torch.autograd.grad(context.float().sum(), (q, k, v))
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize(
    ("length", "rate", "num_units"),
    [(2048, 4, 512), (27, 4, 6), (7, 4, 1), (4, 4, 1), (2048, 5, 409), (2048, 6, 341)],
)
def test_number_of_units(length: int, rate: int, num_units: int) -> None:
    down = strided_conv.Config(rate=rate).build(DIMENSIONS)
    output = down(torch.randn(1, length, 8), torch.ones(1, length, dtype=torch.bool))
    assert output.units_BUD.shape == (1, num_units, 8)
    assert output.valid_BU.shape == (1, num_units)
    assert down.num_units(length) == num_units


def test_units_are_cls_and_all_groups_but_the_last() -> None:
    torch.manual_seed(0)
    down = strided_conv.Config(rate=3, layers=0).build(DIMENSIONS)
    x = torch.randn(2, 11, 8)
    output = down(x, torch.ones(2, 11, dtype=torch.bool))
    convolved = torch.nn.functional.gelu(down.convolution(x.transpose(1, 2)), approximate="tanh").transpose(
        1, 2
    )
    wanted = down.norm(torch.cat([x[:, :1], convolved[:, :-1]], dim=1))
    torch.testing.assert_close(output.units_BUD, wanted)
    assert torch.equal(output.characters_BCD, x)


@given(rate=st.integers(1, 6), more=st.integers(0, 20), narrow=st.booleans(), seed=st.integers(0, 2**31))
@settings(max_examples=25)
def test_the_convolution_equals_one_group_at_a_time(rate: int, more: int, narrow: bool, seed: int) -> None:
    torch.manual_seed(seed)
    dimensions = dataclasses.replace(DIMENSIONS, character_width=4 if narrow else 8)
    down = strided_conv.Config(rate=rate, layers=0).build(dimensions).double()
    x = torch.randn(2, rate + more, dimensions.character_width, dtype=torch.float64, requires_grad=True)
    units = [down.widen(x[:, 0])]
    for j in range((rate + more) // rate - 1):
        taps = [x[:, rate * j + k] @ down.convolution.weight[:, :, k].T for k in range(rate)]
        assert down.convolution.bias is not None
        units.append(torch.nn.functional.gelu(sum(taps, start=down.convolution.bias), approximate="tanh"))
    slow = down.norm(torch.stack(units, dim=1))
    fast = down(x, torch.ones(2, rate + more, dtype=torch.bool)).units_BUD
    by, inputs = torch.randn_like(slow), [x, *down.parameters()]
    torch.testing.assert_close(fast, slow, atol=1e-11, rtol=0)
    for one, other in zip(
        torch.autograd.grad((fast * by).sum(), inputs, materialize_grads=True, allow_unused=True),
        torch.autograd.grad((slow * by).sum(), inputs, materialize_grads=True, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("num_characters", "units"),
    [
        (24, [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 8),
        (27, [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 11),
        *((number, [0] * number) for number in range(4, 8)),
    ],
)
def test_repeat_map(num_characters: int, units: list[int]) -> None:
    assert unit_of_characters(num_characters, 4, torch.device("cpu")).tolist() == units


@pytest.mark.parametrize("length", range(1, 17))
def test_mask_pooling_is_off_by_one_unless_aligned(length: int) -> None:
    mask = torch.arange(16)[None] < length
    x = torch.randn(1, 16, 8)
    official = strided_conv.Config().build(DIMENSIONS)(x, mask).valid_BU[0].tolist()
    assert official == [j < -(-length // 4) for j in range(4)]
    aligned = strided_conv.Config(align_mask=True).build(DIMENSIONS)(x, mask).valid_BU[0].tolist()
    assert aligned == [True] + [length > 4 * (j - 1) for j in range(1, 4)]


@pytest.mark.parametrize(("rate", "num_units", "rest"), [(5, 409, 3), (6, 341, 2)])
def test_rates_that_do_not_divide_the_length(rate: int, num_units: int, rest: int) -> None:
    """2,048 characters: the last ones are in no group, and are read together with the last unit."""
    config = strided_conv.Config(rate=rate, layers=0)
    assert config.check(2048) == []
    assert config.num_units(2048) == num_units
    assert 2048 - rate * num_units == rest
    x = torch.randn(1, 2048, 8)
    down = config.build(DIMENSIONS)(x, torch.ones(1, 2048, dtype=torch.bool))
    assert down.units_BUD.shape[:2] == down.valid_BU.shape == (1, num_units)
    units = down.grouping.unit_BC[0].tolist()
    assert units[: rate * (num_units - 1)] == [1 + at // rate for at in range(rate * (num_units - 1))]
    assert units[rate * (num_units - 1) :] == [num_units - 1] * (rate + rest)
