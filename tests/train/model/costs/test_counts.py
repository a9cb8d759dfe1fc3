"""Multiply-accumulates and pairs, counted one by one, against what parts say of themselves; and how weights begin."""

from typing import Any

import pytest
import torch
from torch import nn

from tokenfree.core.settings import build, merge
from tokenfree.train.model.attention import causal, full, multi_scale, sliding_global
from tokenfree.train.model.common.basic import Dimensions, sinusoids
from tokenfree.train.model.downsamplers.strided import BlockAttention
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives import canine_c
from tokenfree.train.objectives.base import MaskedHead

UNITS, HEADS = 37, 4
DIMENSIONS = Dimensions(12, HEADS, 20, 0.0, "gelu")


def sees(name: str, query: int, key: int) -> bool:
    """Whether a pair is visible in an example of 37 units, by the definition of each pattern."""
    distance = abs(query - key)
    near = distance <= 6 and distance % 2 == 0
    return {
        "full": True,
        "causal": key <= query,
        "blocks": query // 8 == key // 8,
        "scale": distance <= 2,
        "half": distance <= 5,
        "windows": near,
        "windows and CLS": near or 0 in (query, key),
    }[name]


CORES: dict[str, Any] = {
    "full": full.Config(),
    "causal": causal.Config(),
    "scale": multi_scale.Config(scales=(5,)),
    "half": multi_scale.Config(scales=(5,), window_convention="half"),
    "windows": sliding_global.Config(one_sided_window=3, dilation=2, global_units=0),
    "windows and CLS": sliding_global.Config(one_sided_window=3, dilation=2, global_units=1),
}


@pytest.mark.parametrize("name", ["full", "causal", "blocks", "scale", "half", "windows"])
def test_pairs(name: str) -> None:
    core: Any = BlockAttention(8, 0.0) if name == "blocks" else CORES[name].build(DIMENSIONS, 0, 1)
    pairs = sum(sees(name, query, key) for query in range(UNITS) for key in range(UNITS))
    assert core.num_pairs(UNITS, UNITS, HEADS) == HEADS * pairs


def test_pairs_beside_a_global_unit() -> None:
    """CLS sees all and is seen by all; the windows of the others are those of a text that is shorter by one."""
    core = CORES["windows and CLS"].build(DIMENSIONS, 0, 1)
    pairs = (
        sum(sees("windows", query, key) for query in range(1, UNITS) for key in range(1, UNITS))
        + 2 * UNITS
        - 1
    )
    assert core.num_pairs(UNITS, UNITS, HEADS) == HEADS * pairs


def stack(**trunk: Any) -> Any:
    mapping = {
        "width": 12,
        "embedder": {"hashes": 2, "buckets": 8, "max_characters": 64},
        "downsampler": "identity",
        "trunk": {"layers": 3, "heads": HEADS, "inner_width": 20, **trunk},
    }
    return build(ModelConfig, mapping, source="test").build().trunk


def products(modules: list[nn.Linear], rows: int) -> int:
    return sum(rows * layer.in_features * layer.out_features for layer in modules)


def test_a_bert_layer() -> None:
    """Four projections, two products of each visible pair and head width, and the FFN."""
    (layer, *_) = stack().layers
    of_queries, of_keys = (
        [layer.query, layer.attention_output, layer.inner, layer.outer],
        [layer.key, layer.value],
    )
    pairs = 2 * HEADS * 3
    assert (
        layer.multiply_accumulates(37) == products(of_queries, 37) + products(of_keys, 37) + pairs * 37 * 37
    )
    assert (
        layer.multiply_accumulates(37, 5) == products(of_queries, 5) + products(of_keys, 37) + pairs * 5 * 37
    )


def test_a_multi_scale_layer() -> None:
    (layer, *_) = stack(layer={"name": "multi_scale", "head_width": 5}).layers
    projections = products([layer.query, layer.key, layer.value, layer.output], 37)
    assert layer.multiply_accumulates(37) == projections + 2 * HEADS * 5 * 37 * 37


def test_linformer() -> None:
    trunk = stack(attention={"name": "linformer", "projection": 7, "max_units": 50})
    layer = trunk.layers[0]
    dense = products([layer.query, layer.attention_output, layer.inner, layer.outer], 37)
    mixed = products([layer.key, layer.value], 7) + 7 * 37 * 12
    assert layer.multiply_accumulates(37) == dense + mixed + 2 * HEADS * 3 * 37 * 7


def test_separate_projections_of_global_units() -> None:
    """Queries of the global units, keys and values of all."""
    attention = {"name": "sliding_global", "one_sided_window": 3}
    apart, together = (
        stack(attention={**attention, "separate_global_projections": separate})
        .layers[0]
        .multiply_accumulates(37)
        for separate in (True, False)
    )
    assert apart - together == (2 * 37 + 1) * 12 * 12


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ({"name": "none"}, 0),
        ({"name": "t5"}, 0),
        ({"name": "diet_rel", "max_units": 64}, 0),
        ({"name": "diet_abs", "rank": 5, "max_units": 64, "sharing": "none"}, 3 * HEADS * 37 * 37 * 5),
        ({"name": "diet_abs", "rank": 5, "max_units": 64, "sharing": "head_wise"}, 3 * 37 * 37 * 5),
        ({"name": "diet_abs", "rank": 5, "max_units": 64, "sharing": "layer_wise"}, HEADS * 37 * 37 * 5),
        ({"name": "shaw", "values": False}, 3 * HEADS * 37 * 37 * 3),
        ({"name": "shaw", "values": True}, 2 * 3 * HEADS * 37 * 37 * 3),
        ({"name": "tupe", "max_units": 64}, 2 * 37 * 12 * 12 + HEADS * 37 * 37 * 3),
    ],
)
def test_position_codes(code: dict[str, Any], expected: int) -> None:
    trunk = stack(positions=code)
    codes = {cost.name: cost.multiply_accumulates for cost in trunk.costs(37)}
    assert codes.get("positions + segments", 0) == expected
    assert all(isinstance(count, int) for count in codes.values())
    assert codes["deep stack"] == 3 * trunk.layers[0].multiply_accumulates(37)


def test_narrow_characters_and_word_models() -> None:
    """Shapes and products of the parts that recipes do not fix, by hand."""
    model = {"width": 12, "character_width": 6, "embedder": {"hashes": 2, "buckets": 8, "max_characters": 64},
             "downsampler": {"rate": 3, "block": 8, "layers": 2}, "trunk": {"layers": 1, "heads": 2, "inner_width": 20},
             "upsampler": {"kernel": 5}}  # fmt: skip
    parts = {cost.name: cost for cost in build(ModelConfig, model, source="test").build().costs(37, 4)}
    pairs = sum(sees("blocks", query, key) for query in range(37) for key in range(37))
    layer = 37 * (4 * 6 * 6 + 2 * 6 * 10) + 2 * pairs * 2 * 3
    assert parts["local layer"][1::2] == ((37, 6), 2 * layer)
    assert parts["down convolution + norm"][1::2] == ((12, 12), 12 * 3 * 6 * 12 + 6 * 12)
    assert parts["up convolution + norm"][1::2] == ((37, 12), 37 * 5 * 18 * 12)
    assert parts["final layer"].shape == (4, 12)

    words = {"width": 12, "character_width": 6, "embedder": "word_bytes", "trunk": {"layers": 1, "heads": 2},
             "downsampler": {"name": "character_cnn", "widths": [1, 3], "counts": [4, 5], "word_width": 7,
                             "max_words": 20, "bytes_per_word": 4}, "upsampler": "subword_queries"}  # fmt: skip
    parts = {cost.name: cost for cost in build(ModelConfig, words, source="test").build().costs(40, 6)}
    assert parts["byte table"] == ("byte table", (40, 6), 256 * 6, 0)
    assert parts["character convolutions"][1:] == ((10, 9), 6 * 4 + 4 + 18 * 5 + 5, 40 * (6 * 4 + 18 * 5))
    assert parts["highways"][1:] == ((10, 9), 4 * (81 + 9), 10 * 4 * 81)
    assert parts["pooled projection"][1:] == ((10, 7), 9 * 7 + 7, 10 * 9 * 7)
    assert parts["word positions"][1:] == ((10, 7), 20 * 7, 0)
    assert parts["word types"][1:] == ((10, 7), 2 * 7, 0)
    assert parts["word norm"][1:] == ((10, 7), 2 * 7, 0)
    assert parts["word projection"][1:] == ((10, 12), 7 * 12 + 12, 10 * 7 * 12)
    assert parts["subword slots"][1:] == ((6, 12), 16 * 12, 0)

    pooling = {"name": "word_pooling", "byte_positions": "learned", "max_words": 20, "bytes_per_word": 4}
    parts = {cost.name: cost for cost in build(
        ModelConfig, {**merge(words, {"downsampler": "identity"}), "downsampler": pooling}, source="test"
    ).build().costs(40)}  # fmt: skip
    assert parts["byte keys + values"][1:] == ((256 + 128, 6), 2 * 36, (256 + 128) * 2 * 36)
    assert parts["byte positions"][1:] == ((40, 6), 128 * 6, 0)
    assert parts["word queries + mixing"][1:] == ((10, 6), 20 * 6, 2 * 40 * 6)
    assert parts["word FFN"][1:] == ((10, 6), 6 * 24 + 24 + 24 * 6 + 6, 10 * 8 * 36)
    assert parts["subword slots"][1:] == ((40, 12), 16 * 12, 0)


@pytest.mark.parametrize(("tied", "expected"), [(False, 12 * 12 + 12 * 30), (True, 12 * 12 + 12 * 30)])
def test_masked_heads(tied: bool, expected: int) -> None:
    assert MaskedHead(12, 30, tied=tied, next_sentence=True).multiply_accumulates() == expected


WORDS: dict[str, Any] = {"width": 64, "character_width": 48, "embedder": "word_bytes",
                         "trunk": {"layers": 1, "heads": 4}, "upsampler": "subword_queries"}  # fmt: skip
DOWN: list[dict[str, Any]] = [
    {"name": "word_pooling", "byte_positions": "learned"},
    {"name": "character_cnn"},
]


@pytest.mark.parametrize("down", DOWN, ids=["pooling", "cnn"])
def test_words_begin_with_fan_in_and_nearly_shut_gates(down: dict[str, Any]) -> None:
    """0.02 except for what stands alone: in^-1/2; for bytes 1; biases of gates -2; places are sinusoids."""
    torch.manual_seed(0)
    encoder = build(ModelConfig, {**WORDS, "downsampler": down}, source="test").build()
    alone = ("key.", "value.", "filters.", "downsampler.projection.")
    for name, parameter in encoder.named_parameters():
        if "norm" in name:
            continue
        if parameter.dim() == 1:
            assert (parameter == (-2 if ".gate." in name else 0)).all(), name
            continue
        if "places" in name:
            place_std = 0.8 if down["name"] == "word_pooling" else 0.3
            assert torch.equal(parameter, sinusoids(*parameter.shape) * place_std * 2**0.5)
            continue
        std = 0.02
        if name.startswith("downsampler") and any(part in name for part in alone):
            std = parameter.shape[1] ** -0.5
        elif name == "embedder.table.weight":
            std = 1.0
        assert parameter.abs().max() <= 2 * std, name
        if parameter.numel() > 1000:
            assert parameter.std().item() == pytest.approx(0.88 * std, rel=0.07), name


def test_scaled_kernels_do_as_much_as_those_of_a_large_model() -> None:
    """What 0.02 is at a width of 1,024; tables except positions stay as they are."""
    model = {
        "width": 64,
        "embedder": {"name": "byte_table", "max_characters": 128},
        "initialisation": "scaled",
    }
    torch.manual_seed(0)
    encoder = build(ModelConfig, {**model, "trunk": {"layers": 1, "heads": 4}}, source="test").build()
    for name, parameter in encoder.named_parameters():
        if parameter.dim() != 2 or parameter.numel() < 1000:
            continue
        if name == "embedder.positions.weight":
            assert torch.equal(parameter, sinusoids(128, 64) * 0.02 * 2**0.5)
            continue
        std = 0.02 if "embedder" in name else 0.64 * parameter.shape[1] ** -0.5
        assert parameter.std().item() == pytest.approx(0.88 * std, rel=0.07), name


def test_sinusoids_turn_by_the_same_angle_from_place_to_place() -> None:
    """So that a linear map finds the neighbour: products of two rows depend on their distance alone."""
    table = sinusoids(40, 16)
    products = table @ table.T
    for distance in range(40):
        torch.testing.assert_close(products.diagonal(distance), products[0, distance].expand(40 - distance))


@pytest.mark.parametrize(
    "head",
    [
        MaskedHead(64, 50),
        MaskedHead(64, 50, tied=True, next_sentence=True),
        canine_c.Config(heads=4, buckets=50, next_sentence=True).build(64, 0),
    ],
    ids=["masked", "tied", "canine_c"],
)
def test_heads_begin_as_the_encoder_does(head: nn.Module) -> None:
    for name, parameter in head.named_parameters():
        if "norm" in name:
            assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
        elif parameter.dim() == 1:
            assert (parameter == 0).all(), name
        else:
            assert parameter.abs().max() <= 0.04, name
            assert parameter.numel() < 1000 or parameter.std().item() == pytest.approx(
                0.02 * 0.88, rel=0.07
            ), name
