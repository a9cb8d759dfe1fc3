"""A part that does not keep the contract of its slot is refused in one line that names all that is wrong."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field
from torch import Tensor, nn

from tests.train.model.conftest import AddPart
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, contract_problems, settings
from tokenfree.train.model.common.attention import Core
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import CONTRACTS, AttentionDefaults, DownsamplerDefaults, UpsamplerDefaults
from tokenfree.train.model.encoder import ModelConfig

BROKEN = """
from tokenfree.core.settings import settings
from torch import nn


@settings
class Config:
    name: str = "other"
    changes_width = "yes"
    bytes_per_word: int | None = None
    rate = 2
    layers = 0

    def build(self) -> "Broken":
        return Broken()

    def check(self, length, trunk):
        return []

    num_units = 3


class Broken(nn.Module):
    takes_rows = False

    def forward(self, x_BCD):
        return x_BCD
"""
ALL_OF_IT = (
    "broken.py is no part for the slot downsamplers: "
    "Config.name is 'other', not 'broken' as its file; "
    "Config.changes_width is 'yes': should be a valid boolean; "
    "Config.build takes (), not (dimensions); "
    "Config.check takes (length, trunk), not (length); "
    "Config.num_units is no method; "
    "Broken lacks min_characters, which DownsamplerModule has; "
    "Broken.forward takes (x_BCD), not (x_BCD, mask_BC, unit_ends_BU); "
    "Broken lacks widened(x_BCD), which DownsamplerModule has; "
    "Broken lacks num_units(num_characters); "
    "Broken lacks costs(length) (see docs/add_a_part.md)"
)


@pytest.mark.parametrize("choice", ["broken", {"name": "broken"}, {"name": "broken", "rate": 3}])
def test_all_that_is_wrong_is_told_in_one_line_before_anything_is_built(add_part: AddPart, choice: Any) -> None:
    add_part("tokenfree.train.model.downsamplers", "broken", BROKEN)
    with pytest.raises(UserError) as refused:
        build(ModelConfig, {"downsampler": choice}, source="mine.yaml")
    assert str(refused.value).removeprefix("mine.yaml: downsampler: ") == ALL_OF_IT


def test_a_part_of_the_trunk_is_judged_alike(add_part: AddPart) -> None:
    add_part("tokenfree.train.model.positions", "empty", "class Config: ...\n")
    with pytest.raises(UserError) as refused:
        build(ModelConfig, {"trunk": {"positions": "empty"}}, source="test")
    assert str(refused.value) == (
        "test: trunk.positions: empty.py is no part for the slot positions: Config is not decorated with "
        "@settings; Config lacks the field name: str = 'empty'; Config lacks sharing, which PositionsDefaults has; "
        "Config lacks takes_mixtures, which PositionsDefaults has; Config lacks build(dimensions, trunk); "
        "Config lacks check(trunk, num_units), which PositionsDefaults has (see docs/add_a_part.md)"
    )


def problems_of(slot: str, config: type) -> list[str]:
    """What is wrong with a part whose file has the name that it has itself."""
    return list(contract_problems(CONTRACTS[slot], config, vars(config)["name"]))


class Up(nn.Module):
    def forward(
        self, units: Tensor, grouping: Any, characters: Tensor, mask: Tensor, targets: Tensor | None = None
    ) -> Tensor:
        return units

    def costs(self, length: int, num_targets: int | None, num_units: int) -> list[Any]:
        return []


def up(returned: Any = Up, **members: Any) -> type:
    """The config of an upsampler, with the class that `build` says it returns, and with other members."""

    def built(self: Any, dimensions: Dimensions) -> Any: ...

    built.__annotations__["return"] = returned
    named = {"__annotations__": {"name": str}, "name": "up", "build": built}
    return settings(type("Config", (UpsamplerDefaults,), {**named, **members}))


@pytest.mark.parametrize(
    ("config", "problems"),
    [
        (up(), []),
        (up(check=lambda self, *parts: []), []),  # any way to take what is given
        (up(max_pieces=property(lambda self: 3)), []),
        (up(max_pieces=4), []),
        (up(max_pieces=4.5), ["Config.max_pieces is 4.5: should be a valid integer"]),
        (up(residual_characters=1), ["Config.residual_characters is 1: should be a valid boolean"]),
        (up(check=None), ["Config.check is no method"]),
        (up(check=lambda self: []), ["Config.check takes (), not (downsampler)"]),
        *(
            (up(returned), ["Config.build does not say which Module it returns; annotate it with the class"])
            for returned in (int, "Nowhere", None)
        ),
        (up(nn.Module), ["Module lacks forward(units_BUD, grouping, characters_BCD, mask_BC, targets_BP)",
                         "Module lacks costs(length, num_targets, num_units)"]),
    ],
)  # fmt: skip
def test_what_counts_as_a_problem(config: type, problems: list[str]) -> None:
    assert problems_of("upsamplers", config) == problems


def test_members_that_only_instances_have_count_where_they_are_declared() -> None:
    class Declared(Up):
        num_units: Callable[[int], int]
        widened = Up.costs

        def forward(self, x: Tensor, mask: Tensor, *more: Tensor) -> Any: ...

    @settings
    class Config(DownsamplerDefaults):
        name: Literal["declared"] = "declared"
        rate: Annotated[int, Field(ge=1)] = 3

        def build(self, dimensions: Dimensions) -> Declared:  # pyright: ignore[reportInvalidTypeForm]
            raise NotImplementedError

        def check(self, length: int | None) -> list[str]:
            return []

    Config.build.__annotations__["return"] = Declared
    assert problems_of("downsamplers", Config) == [
        "Declared lacks min_characters, which DownsamplerModule has",
        "Declared lacks takes_rows, which DownsamplerModule has",
        "Declared.widened takes (length, num_targets, num_units), not (x_BCD)",
        "Declared.costs takes (length, num_targets, num_units), not (length)",
    ]


def test_what_a_base_class_only_seems_to_have() -> None:
    """Torch's own `forward` is no answer, and arguments that are given by name need their names."""

    class Silent(Core):
        pass

    @settings
    class Config(AttentionDefaults):
        name: Literal["silent"] = "silent"

        def build(self, dimensions: Dimensions, layer: int, layers: int) -> Silent:
            raise NotImplementedError

    Config.build.__annotations__["return"] = Silent
    assert problems_of("attention", Config) == [
        "Config.build takes (dimensions, layer, layers), not (dimensions, layer, num_layers)",
        "Silent lacks forward(heads)",
        "Silent lacks num_pairs(num_queries, num_keys, num_heads)",
    ]
