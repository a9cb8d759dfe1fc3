"""UP of CANINE: the convolution in two halves against the convolution as written."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenfree.train.model.common.basic import Dimensions, Grouping
from tokenfree.train.model.downsamplers.strided import unit_of_characters
from tokenfree.train.model.upsamplers import repeat_concat

DIMENSIONS = Dimensions(width=8, heads=2, inner_width=12, dropout=0.0, activation="gelu_tanh")


@given(
    rate=st.integers(1, 7),
    kernel=st.integers(1, 7),
    more=st.integers(0, 20),
    by_rate=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_convolution_in_halves_equals_that_of_the_concatenation(
    rate: int, kernel: int, more: int, by_rate: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    up = repeat_concat.Config(kernel=kernel).build(DIMENSIONS).double()
    num_characters = rate + more
    unit_C = unit_of_characters(num_characters, rate, torch.device("cpu"))
    units = torch.randn(2, num_characters // rate, 8, dtype=torch.float64, requires_grad=True)
    characters = torch.randn(2, num_characters, 8, dtype=torch.float64, requires_grad=True)

    both = torch.cat([characters, units[:, unit_C]], dim=-1).transpose(1, 2)
    wanted = F.conv1d(
        F.pad(both, ((kernel - 1) // 2, kernel // 2)), up.convolution.weight, up.convolution.bias
    )
    wanted = wanted.transpose(1, 2)
    got = up.convolve(units, Grouping(unit_C[None], rate if by_rate else None), characters)

    torch.testing.assert_close(got, wanted, atol=1e-12, rtol=0)
    inputs = [units, characters, *up.convolution.parameters()]
    weights = torch.randn_like(wanted)
    for one, other in zip(
        torch.autograd.grad((got * weights).sum(), inputs),
        torch.autograd.grad((wanted * weights).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-11, rtol=0)


@pytest.mark.parametrize("targets", [[[0, 5, 5, 12], [3, 0, 1, 11]]])
def test_targets_are_the_rows_of_all(targets: list[list[int]]) -> None:
    torch.manual_seed(0)
    up = repeat_concat.Config().build(DIMENSIONS)
    units, characters = torch.randn(2, 3, 8), torch.randn(2, 13, 8)
    grouping = Grouping(unit_of_characters(13, 4, torch.device("cpu"))[None], 4)
    mask = torch.arange(13) < torch.tensor([[13], [9]])
    rows = torch.tensor(targets)
    everything = up(units, grouping, characters, mask)
    some = up(units, grouping, characters, mask, rows)
    torch.testing.assert_close(some, everything[torch.arange(2)[:, None], rows], atol=1e-6, rtol=0)


def test_convolution_in_bfloat16_equals_that_in_float32_up_to_rounding() -> None:
    torch.manual_seed(0)
    x, kernel, bias = (torch.randn(shape, requires_grad=True) for shape in ((2, 20, 8), (6, 8, 3), (6,)))
    wanted = repeat_concat.convolve(x, kernel, bias)
    with torch.autocast("cpu", torch.bfloat16):
        found = repeat_concat.convolve(x, kernel, bias)
    assert found.is_contiguous()
    by = torch.randn_like(wanted)
    for one, other in zip(
        [found.float(), *torch.autograd.grad((found * by).sum(), [x, kernel, bias])],
        [wanted, *torch.autograd.grad((wanted * by).sum(), [x, kernel, bias])],
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=0.1, rtol=0.02)
