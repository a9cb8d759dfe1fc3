"""The ablations of UP: no concatenation, residuals, another source of keys, all positions."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tokenfree.train.model.common.basic import Dimensions, Grouping
from tokenfree.train.model.downsamplers.strided import unit_of_characters
from tokenfree.train.model.upsamplers import repeat_add, repeat_concat

DIMENSIONS = Dimensions(width=8, heads=2, inner_width=12, dropout=0.0, activation="gelu_tanh")
UNIT_C = unit_of_characters(13, 4, torch.device("cpu"))
MASK = torch.arange(13) < torch.tensor([[13], [3]])


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(2, 13, 8, dtype=torch.float64)


def built(config: Any) -> Any:
    torch.manual_seed(0)
    return config.build(DIMENSIONS).double()


@pytest.mark.parametrize("rate", [4, None])
@pytest.mark.parametrize("characters_too", [False, True])
@pytest.mark.parametrize("units_too", [False, True])
def test_residuals_in_place_of_the_concatenation(
    rate: int | None, characters_too: bool, units_too: bool
) -> None:
    up = built(repeat_add.Config(residual_characters=characters_too, residual_units=units_too))
    units, characters = inputs()
    repeated = units[:, UNIT_C]
    convolved = F.conv1d(F.pad(repeated.transpose(1, 2), (1, 2)), up.convolution.weight, up.convolution.bias)
    h = F.gelu(convolved.transpose(1, 2), approximate="tanh")
    h = up.norm(h + (characters if characters_too else 0) + (repeated if units_too else 0))
    wanted = up.final(h, MASK)
    torch.testing.assert_close(
        up(units, Grouping(UNIT_C[None], rate), characters, MASK), wanted, atol=1e-12, rtol=0
    )


def test_without_concatenation_characters_do_not_matter() -> None:
    up = built(repeat_add.Config())
    units, characters = inputs()
    grouping = Grouping(UNIT_C[None], 4)
    assert torch.equal(up(units, grouping, characters, MASK), up(units, grouping, characters + 1, MASK))


@pytest.mark.parametrize("module", [repeat_add, repeat_concat])
def test_attending_to_units(module: Any) -> None:
    """Units with a real character, and CLS, are the keys: of 3 real characters that is unit 1."""
    up = built(module.Config(keys="units"))
    units, characters = inputs()
    grouping = Grouping(UNIT_C[None], 4)
    seen: list[Any] = []
    up.final.core.register_forward_pre_hook(lambda core, arguments: seen.append(arguments[0]))
    targets = torch.tensor([[12, 0], [2, 2]])
    everything, some = up(units, grouping, characters, MASK), up(units, grouping, characters, MASK, targets)
    assert seen[0].valid_BK.tolist() == [[True] * 3, [True, True, False]]
    torch.testing.assert_close(seen[0].keys_BHKE.transpose(1, 2).flatten(2), up.final.key(units))
    torch.testing.assert_close(some, everything[torch.arange(2)[:, None], targets], atol=1e-12, rtol=0)


@pytest.mark.parametrize("module", [repeat_add, repeat_concat])
def test_all_positions_are_the_same_and_cost_more(module: Any) -> None:
    targeted, all_of_them = built(module.Config()), built(module.Config(targeted=False))
    units, characters = inputs()
    grouping, targets = Grouping(UNIT_C[None], 4), torch.tensor([[12, 0], [2, 2]])
    one, other = (up(units, grouping, characters, MASK, targets) for up in (targeted, all_of_them))
    torch.testing.assert_close(one, other, atol=1e-12, rtol=0)
    few, many = (up.costs(13, 2, 3)[-1] for up in (targeted, all_of_them))
    assert (few.shape, many.shape) == ((2, 8), (13, 8))
    assert few.multiply_accumulates < many.multiply_accumulates


def test_costs_of_attending_to_units() -> None:
    final = built(repeat_concat.Config(keys="units")).costs(2048, 80, 512)[-1]
    assert final.multiply_accumulates == 80 * (2 * 64 + 2 * 8 * 12) + 512 * 2 * 64 + 2 * 80 * 512 * 8
