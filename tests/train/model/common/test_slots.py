"""The contract of every slot of the frame, for each variant that lies in its folder."""

import dataclasses
import inspect
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.train.model.conftest import AddPart
from tokenfree.core.errors import UserError
from tokenfree.core.settings import build, settings
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.loop.step import ModelWithHead
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import (
    ATTENTION,
    LAYER,
    NEIGHBOURS,
    POSITIONS,
    SEGMENTS,
    TrunkConfig,
    Upsampler,
    UpsamplerConfig,
)
from tokenfree.train.model.encoder import DOWNSAMPLER, EMBEDDER, UPSAMPLER, Encoder, ModelConfig
from tokenfree.train.objectives.base import Head

SLOTS = {
    "embedder": EMBEDDER,
    "downsampler": DOWNSAMPLER,
    "trunk.layer": LAYER,
    "trunk.attention": ATTENTION,
    "trunk.positions": POSITIONS,
    "trunk.segments": SEGMENTS,
    "upsampler": UPSAMPLER,
    "neighbours": NEIGHBOURS,
}
VARIANTS = [(slot, name) for slot, package in SLOTS.items() for name in package.names()]
PAIRS = [(down, up) for down in SLOTS["downsampler"].names() for up in SLOTS["upsampler"].names()]


def model(*choices: tuple[str, str]) -> ModelConfig:
    mapping: dict[str, Any] = {"width": 16, "trunk": {"layers": 2, "heads": 4}}
    for slot, name in choices:
        node = mapping
        *parents, last = slot.split(".")
        for parent in parents:
            node = node[parent]
        node[last] = {"name": name}
    return build(ModelConfig, mapping, source="test")


def encoder_of(config: ModelConfig) -> Encoder:
    torch.manual_seed(0)
    return config.build().eval()


def text(size: int) -> tuple[Tensor, Tensor]:
    mask = torch.arange(size) < torch.tensor([[40], [23]])
    generator = torch.Generator().manual_seed(0)
    codepoints = torch.randint(32, 0x3000, (2, 40), generator=generator)
    codepoints[:, 0] = 0xE000
    return torch.nn.functional.pad(codepoints, (0, size - 40)) * mask, mask


def symbols(config: ModelConfig, codepoints: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The codepoints, or ids that any table of other symbols has, or vectors that depend on them."""
    if config.embedder.symbols == "vectors":
        return codepoints[..., None] * torch.arange(1, config.embedder.size + 1) % 97 / 97, mask
    return codepoints if config.embedder.symbols == "characters" else codepoints % 256, mask


def configs() -> list[type]:
    return [ModelConfig, TrunkConfig, *(SLOTS[slot].config_class(name) for slot, name in VARIANTS)]


def documented(config: type) -> set[str]:
    """The fields that the docstrings of a config and of its bases say the meaning of."""
    found = set()
    for base in config.__mro__:
        described = inspect.cleandoc(vars(base).get("__doc__") or "").partition("Attributes:\n")[2]
        found |= set(re.findall(r"^    (\w+): \S", described, re.MULTILINE))
    return found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("class Config: ...", "its settings do not inherit PositionsConfig"),
        ("Config = 3", "its settings do not inherit PositionsConfig"),
        ("class Config(PositionsConfig): ...", "Config lacks build"),
        ("class Config(PositionsConfig):\n    def build(self, *given): ...", "Config is not decorated with @settings"),
        ("@settings\nclass Config(PositionsConfig):\n    name: str = 'x'\n    def build(self, *given): ...",
         "Config needs the field name: str = 'broken'"),
        ("from tokenfree.train.model.common.slots import Positions\n@settings\nclass Config(PositionsConfig):\n"
         "    name: str = 'broken'\n    def build(self, dimensions, trunk) -> 'Made': ...\nclass Made(Positions): ...",
         "Made lacks multiply_accumulates"),
    ],
)  # fmt: skip
def test_what_is_no_part_is_refused_when_it_is_chosen(add_part: AddPart, text: str, problem: str) -> None:
    head = "from tokenfree.core.settings import settings\n"
    head += "from tokenfree.train.model.common.slots import PositionsConfig\n"
    add_part("tokenfree.train.model.positions", "broken", head + text)
    with pytest.raises(UserError) as refused:
        build(ModelConfig, {"trunk": {"positions": "broken"}}, source="test")
    assert str(refused.value) == (
        f"test: trunk.positions: broken is not a part for the slot positions: {problem} (see docs/add_a_part.md)"
    )


def test_a_module_that_lacks_a_method_is_refused_when_it_is_built() -> None:
    class Up(Upsampler): ...

    @settings
    class Config(UpsamplerConfig):
        name: str = "up"

        def build(self, dimensions: Dimensions) -> Upsampler:
            return Up()  # pyright: ignore[reportAbstractUsage]

    with pytest.raises(TypeError, match="costs"):
        ModelConfig(upsampler=Config()).build()


@pytest.mark.parametrize("config", configs(), ids=lambda config: config.__module__.rpartition("model.")[2])
def test_every_config_says_what_it_is_where_it_comes_from_and_what_its_fields_mean(config: type) -> None:
    assert re.search(r"arXiv \d{4}\.\d{4,5}", vars(config)["__doc__"])
    assert {field.name for field in dataclasses.fields(config)} - {"name"} == documented(config)


def test_every_slot_has_variants() -> None:
    assert all(package.default in package.names() for package in SLOTS.values())
    assert {("trunk.attention", "multi_scale"), ("embedder", "ngram_hash"), ("upsampler", "identity")} <= set(
        VARIANTS
    )


@pytest.mark.parametrize(("slot", "name"), VARIANTS)
def test_contract(slot: str, name: str) -> None:
    config = model((slot, name))
    assert build(ModelConfig, to_mapping(config), source="test") == config
    encoder = encoder_of(config)
    codepoints, mask = symbols(config, *text(48))
    targets = torch.tensor([[0, 39, 7], [22, 22, 1]])

    output = encoder(codepoints, mask)
    assert output.characters.shape == (2, 48, 16)
    assert output.pooled.shape == (2, 16)
    some = encoder(codepoints, mask, torch.zeros(mask.shape, dtype=torch.int64), targets).characters
    wanted = output.characters.gather(1, targets[..., None].expand(-1, -1, 16))
    torch.testing.assert_close(some, wanted, atol=1e-5, rtol=0)

    weights = torch.linspace(-1, 1, 16) ** 3  # behind a LayerNorm the gradient of the plain sum vanishes
    ((output.characters * weights).sum() + (output.pooled * weights).sum()).backward()
    for parameter_name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name

    longer = encoder(*symbols(config, *text(64)))
    torch.testing.assert_close(longer.pooled, output.pooled, atol=1e-5, rtol=0)
    torch.testing.assert_close(longer.characters[:, :20], output.characters[:, :20], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("down", "up"), PAIRS)
def test_any_upsampler_takes_any_grouping(down: str, up: str) -> None:
    encoder = encoder_of(model(("downsampler", down), ("upsampler", up)))
    for size in (40, 45, 53):
        output = encoder(*text(size))
        assert output.characters.shape == (2, size, 16)
        assert output.characters.isfinite().all()


@pytest.mark.parametrize(("slot", "name"), VARIANTS)
def test_costs_count_every_parameter(slot: str, name: str) -> None:
    encoder = encoder_of(model((slot, name)))
    costs = encoder.costs(48)
    assert sum(cost.parameters for cost in costs) == sum(
        parameter.numel() for parameter in encoder.parameters()
    )
    assert sum(cost.multiply_accumulates for cost in costs) > 0


PLACES = {
    "embedder": "symbols, segments, positions",
    "downsampler": "characters, mask",
    "upsampler": "units, grouping, characters, mask, targets",
    "trunk.positions": "units, valid",
    "trunk.segments": "segments",
    "trunk.layers.0": "units, valid, bias, *, global_BU",
    "trunk.layers.0.core": "heads",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("forward", [lambda self: None, lambda self, *, x: None, nn.Module.forward])
def test_a_forward_with_other_arguments_is_named(
    place: str, forward: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ModelConfig(width=16, trunk=TrunkConfig(layers=1, heads=2))
    kind = type(config.build().get_submodule(place))
    monkeypatch.setattr(kind, "forward", forward)
    with pytest.raises(UserError) as refused:
        config.build()
    assert str(refused.value) == f"{kind.__module__}.{kind.__qualname__}: forward must take ({PLACES[place]})"


def test_a_head_with_other_arguments_is_named() -> None:
    class Mine(Head):
        def forward(self, batch: Any) -> None: ...

    with pytest.raises(UserError, match=r"Mine: forward must take \(encoder, batch\)"):
        ModelWithHead(ModelConfig(width=16, trunk=TrunkConfig(layers=1, heads=2)).build(), Mine())
