"""What holds for every part of the frame, whatever it computes: gradients, padding, order of the batch, shifts, NaN.

Parts are found by listing their folders, so a new one is tested as soon as its file exists.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tokenfree.core.errors import UserError
from tokenfree.core.settings import Slot, build
from tokenfree.train.model.common.attention import Heads
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import Encoder, EncoderOutput, ModelConfig, Trunk, check

HEADS, WIDTH, UNITS = 2, 4, 50  # units enough for the paths that go block by block
STEP = 1e-6  # of numerical derivatives
SMALL: dict[str, Any] = {"dropout": 0.0, "heads": HEADS, "inner_width": 6}
DIMENSIONS = Dimensions(width=WIDTH, heads=HEADS, inner_width=6, dropout=0.0, activation="gelu_tanh")
TINY: dict[str, Any] = {"max_units": 64, "max_characters": 64, "max_words": 64, "buckets": 8, "hashes": 2,
                        "size": 260, "block": 8, "one_sided_window": 2, "projection": 3, "clip": 4,
                        "word_width": 4, "counts": [2, 2, 1, 1, 1], "max_distance": 16, "segments": 2}  # fmt: skip


def names(package: str) -> list[str]:
    return Slot(f"tokenfree.train.model.{package}", "").names()


EMBEDDERS, DOWNSAMPLERS, UPSAMPLERS = names("embedders"), names("downsamplers"), names("upsamplers")
LAYERS, PATTERNS, SEGMENTS = names("layers"), names("attention"), names("segments")
CODES = names("positions")
# Codes: what a shift does not change.
RELATIVE, ABSOLUTE = {"none", "diet_rel", "shaw", "t5"}, {"diet_abs", "tupe"}


def part(package: str, name: str, **options: Any) -> dict[str, Any]:
    """A part in a tiny size, with `options`."""
    known = {
        field.name
        for field in dataclasses.fields(Slot(f"tokenfree.train.model.{package}", "").config_class(name))
    }
    return {"name": name, **{key: value for key, value in TINY.items() if key in known}, **options}


def trunk_settings(
    pattern: str, code: str, segments: str = "none", layer: str = "bert", **options: Any
) -> Any:
    return {
        **SMALL,
        "layers": 2,
        "attention": part("attention", pattern),
        "positions": part("positions", code),
        "segments": part("segments", segments),
        "layer": part("layers", layer),
        **options,
    }


def defined(mapping: Mapping[str, Any]) -> bool:
    return not list(build(TrunkConfig, mapping, source="test").check(UNITS))


def trunk_of(mapping: Mapping[str, Any], dtype: torch.dtype = torch.float64) -> Trunk:
    return spread(Trunk(build(TrunkConfig, mapping, source="test"), DIMENSIONS)).to(dtype)


def spread(module: Any) -> Any:
    """With parameters large enough for every path to show."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.4)
    return module


TRUNKS = {
    f"{pattern}-{code}-{segments}": trunk_settings(pattern, code, segments)
    for pattern, code, segments in product(PATTERNS, CODES, SEGMENTS)
    if defined(trunk_settings(pattern, code, segments))
} | {
    f"{layer}-{pattern}": trunk_settings(pattern, "none", layer=layer)
    for layer, pattern in product(LAYERS, PATTERNS)
    if layer != "bert" and defined(trunk_settings(pattern, "none", layer=layer))
}
MODELS: dict[str, dict[str, Any]] = {
    **{f"embedder-{name}": {"embedder": part("embedders", name)} for name in EMBEDDERS},
    **{
        f"{down}-{up}": {"downsampler": part("downsamplers", down), "upsampler": part("upsamplers", up)}
        for down, up in product(DOWNSAMPLERS, UPSAMPLERS)
    },
}


def encoder_of(name: str, **trunk: Any) -> Encoder:
    mapping = {"width": WIDTH, "embedder": part("embedders", "codepoint_hash"), **MODELS[name]}
    config = build(ModelConfig, {**mapping, "trunk": {"layers": 1, **SMALL, **trunk}}, source="test")
    return spread(config.build()).eval()


def text(name: str, *lengths: int, size: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Random symbols that the model `name` reads, of this type where they are vectors, and their mask."""
    mask = torch.arange(size) < torch.tensor(lengths)[:, None]
    symbols = torch.randint(5, 256, mask.shape, generator=torch.Generator().manual_seed(1))
    if name == "embedder-vectors":
        generator = torch.Generator().manual_seed(1)
        return torch.randn(*mask.shape, TINY["size"], dtype=dtype, generator=generator), mask
    return symbols * mask, mask


def words_of(encoder: Encoder, mask: Tensor, size: int = 20) -> Tensor | None:
    """Ends of `size` words of three characters after CLS, for downsamplers that take the units of the text."""
    if encoder.config.downsampler.bytes_per_word is None:
        return None
    return torch.minimum(1 + 3 * torch.arange(size), mask.sum(dim=1, keepdim=True).clamp(min=1))


def score(*outputs: Tensor) -> Tensor:
    """A scalar whose gradient does not vanish behind a LayerNorm, as that of the plain sum does."""
    return sum(
        ((x.float() * torch.linspace(-1, 1, x.shape[-1]) ** 3).sum() for x in outputs), start=torch.zeros(())
    )


def check_gradients(module: nn.Module, inputs: tuple[Tensor | None, ...]) -> None:
    """Gradients of all outputs are numerical derivatives, in random directions of all parameters and real inputs.

    That of `torch.autograd.gradcheck` in its fast mode did not see a wrong gradient of one parameter among
    many.
    """
    generator = torch.Generator().manual_seed(5)

    def random_like(x: Tensor) -> Tensor:
        return torch.randn(x.shape, dtype=x.dtype, generator=generator)

    def outputs() -> list[Tensor]:
        output = module(*inputs)
        return [output] if isinstance(output, Tensor) else [output.characters, output.pooled]

    real = [x.requires_grad_() for x in inputs if x is not None and x.is_floating_point()]
    variables = [*real, *module.parameters()]
    weights = [random_like(x) for x in outputs()]

    def loss() -> Tensor:
        return torch.stack([(x * by).sum() for x, by in zip(outputs(), weights, strict=True)]).sum()

    gradients = torch.autograd.grad(loss(), variables, materialize_grads=True)
    assert any((gradient != 0).any() for gradient in gradients)
    for _ in range(3):
        directions = [random_like(x) for x in variables]
        exact = torch.stack([(g * by).sum() for g, by in zip(gradients, directions, strict=True)])
        with torch.no_grad():
            found = []
            for step in (STEP, -2 * STEP, STEP):
                for variable, direction in zip(variables, directions, strict=True):
                    variable.add_(direction, alpha=step)
                found.append(loss())
        numerical = (found[0] - found[1]) / (2 * STEP)
        torch.testing.assert_close(exact.sum(), numerical, atol=1e-6 * exact.abs().max().item(), rtol=0)


@pytest.mark.parametrize("name", TRUNKS)
def test_gradients_of_trunks(name: str) -> None:
    x = torch.randn(2, UNITS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    valid = torch.arange(UNITS) < torch.tensor([[UNITS], [20]])
    segments = (torch.arange(UNITS) > 9).long().expand(2, -1)
    trunk = trunk_of(TRUNKS[name])
    check_gradients(trunk, (x, valid, segments))


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_models(name: str) -> None:
    encoder = encoder_of(name).double()
    codepoints, mask = text(name, 17, 9, size=20)
    segments, targets = (torch.arange(20) > 5).long().expand(2, -1), torch.tensor([[0, 16, 3], [8, 8, 1]])
    check_gradients(encoder, (codepoints, mask, segments, targets, words_of(encoder, mask)))


@pytest.mark.parametrize("name", TRUNKS)
def test_padding_and_the_order_of_the_batch(name: str) -> None:
    """More padding, whatever it holds, changes no real unit; rows of a batch do not know of each other."""
    trunk = trunk_of(TRUNKS[name])
    lengths = torch.tensor([UNITS, 20, 3])
    x, more = torch.randn(3, UNITS, WIDTH).double(), torch.randn(3, 14, WIDTH).double()
    segments = torch.randint(2, (3, UNITS + 14))
    valid = torch.arange(UNITS) < lengths[:, None]
    output = trunk(x, valid, segments[:, :UNITS])
    longer = trunk(torch.cat([x, more], 1), torch.arange(UNITS + 14) < lengths[:, None], segments)[:, :UNITS]
    torch.testing.assert_close(longer[valid], output[valid], atol=1e-11, rtol=0)
    order = torch.tensor([2, 0, 1])
    shuffled = trunk(x[order], valid[order], segments[order, :UNITS])
    torch.testing.assert_close(shuffled, output[order], atol=1e-12, rtol=0)
    alone = trunk(x[1:2], valid[1:2], segments[1:2, :UNITS])
    torch.testing.assert_close(alone, output[1:2], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_padding_and_the_order_of_the_batch_of_models(name: str) -> None:
    encoder = encoder_of(name).double()
    codepoints, mask = text(name, 17, 9, 1, size=24)  # a spare group and two, see CANINE's padding rule

    def run(rows: Any = slice(None), padding: int = 0) -> EncoderOutput:
        inputs = [
            torch.nn.functional.pad(x[rows], (0, 0) * (x.dim() - 2) + (0, padding))
            for x in (codepoints, mask)
        ]
        return encoder(*inputs, unit_ends_BU=words_of(encoder, mask[rows], 20 + padding))

    short, long = run(), run(padding=12)
    torch.testing.assert_close(long.pooled, short.pooled, atol=1e-11, rtol=0)
    # A convolution in UP reads the padding beside the text, which belongs to its last unit, or to CANINE's
    # spare.
    torch.testing.assert_close(long.characters[:, :24][mask], short.characters[mask], atol=1e-11, rtol=0)
    for rows in (torch.tensor([2, 0, 1]), torch.tensor([1])):
        for one, other in zip(run(rows), short, strict=True):
            torch.testing.assert_close(one, other[rows], atol=1e-12, rtol=0)


def shifted(trunk: Trunk, start: int) -> Tensor:
    """The units of a text of 20 units that stands at `start` among padding."""
    text_BUD = torch.randn(1, 20, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    places = torch.arange(UNITS)
    x = torch.zeros(1, UNITS, WIDTH, dtype=torch.float64)
    x[:, start : start + 20] = text_BUD
    valid = ((places >= start) & (places < start + 20))[None]
    return trunk(x, valid)[:, start : start + 20]


def test_every_code_is_relative_or_absolute() -> None:
    assert set(CODES) == RELATIVE | ABSOLUTE
    assert not RELATIVE & ABSOLUTE


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("pattern", ["full", "multi_scale", "sliding_global"])
def test_only_relative_codes_do_not_see_a_shift(pattern: str, code: str) -> None:
    options = {"multi_scale": {"scales": [1, 3, 9], "alpha": 0}, "sliding_global": {"global_units": 0}}
    attention = part("attention", pattern, **options.get(pattern, {}))
    trunk = trunk_of({**trunk_settings(pattern, code), "attention": attention})
    difference = (shifted(trunk, 5) - shifted(trunk, 23)).abs().max()
    assert difference < 1e-12 if code in RELATIVE else difference > 1e-6


@pytest.mark.parametrize("code", CODES)
def test_only_scores_of_relative_codes_are_the_same_along_diagonals(code: str) -> None:
    """What a code adds to the logits of equal queries: of a pair of units, and of the same pair further on."""
    trunk = trunk_of(trunk_settings("full", code))
    valid = torch.ones(1, UNITS, dtype=torch.bool)
    biases: Any = trunk.positions(torch.zeros(1, UNITS, WIDTH), valid)
    if code == "none":
        assert biases is None
        return
    q = torch.randn(1, HEADS, 1, WIDTH // HEADS, dtype=torch.float64).expand(-1, -1, UNITS, -1)
    for bias in biases:
        bound = bias.bind(Heads(q, q, q, valid, q)).bias
        dense = bound.dense(slice(None))
        same = torch.equal(dense[..., 2:, 2:], dense[..., 1:-1, 1:-1])  # past CLS, which TUPE unties
        assert same == (code in RELATIVE)
        assert (dense[..., 1:] != dense[..., :-1]).any()


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_positions_at_the_input_and_shifts(positions: str) -> None:
    embedder = part("embedders", "codepoint_hash", positions=positions)
    config = build(ModelConfig, {"width": WIDTH, "embedder": embedder, "trunk": SMALL}, source="test")
    model = spread(config.build().embedder).eval()
    codepoints = torch.randint(32, 999, (1, 20))
    moved = model(torch.nn.functional.pad(codepoints, (7, 0)))[:, 7:]
    assert torch.equal(moved, model(codepoints)) == (positions == "none")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", TRUNKS)
def test_no_nan_where_all_is_padding(name: str, dtype: torch.dtype) -> None:
    """Rows without any valid unit, blocks without one, in evaluation and in training with dropout."""
    trunk = trunk_of({**TRUNKS[name], "dropout": 0.3}, dtype)
    x = torch.randn(3, UNITS, WIDTH).to(dtype).requires_grad_()
    valid = torch.arange(UNITS) < torch.tensor([[UNITS], [1], [0]])
    segments = torch.zeros(3, UNITS, dtype=torch.int64)
    for mode in (False, True):
        output = trunk.train(mode)(x, valid, segments)
        wanted = [x, *trunk.parameters()]
        gradients = torch.autograd.grad(score(output), wanted, materialize_grads=True)
        assert all(tensor.isfinite().all() for tensor in (output, *gradients))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_no_nan_in_models_where_all_is_padding(name: str, dtype: torch.dtype) -> None:
    encoder = encoder_of(name, dropout=0.3)
    codepoints, mask = text(name, 40, 1, 0, size=40, dtype=torch.float32)
    for mode in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            output = encoder.train(mode)(codepoints, mask, unit_ends_BU=words_of(encoder, mask))
        gradients = torch.autograd.grad(score(*output), list(encoder.parameters()), materialize_grads=True)
        assert all(tensor.isfinite().all() for tensor in (*output, *gradients))


VARIANTS: dict[str, list[dict[str, Any]]] = {
    "diet_abs": [{"scale": "width"}, {"sharing": "none", "rank": 3}, {"sharing": "head_wise"}],
    "diet_rel": [{"scale": "width"}, {"sharing": "layer_wise"}, {"sharing": "head_wise"}],
    "t5": [{"sharing": "none"}, {"sharing": "head_wise"}],
    "shaw": [{"values": True}, {"values": True, "sharing": "none"}],
    "tupe": [{"relative": False}, {"untie_cls": False}],
    "sliding_global": [
        {"separate_global_projections": True, "global_units": 3},
        {"dilation": [1, 2], "global_units": 0},
        {"padding_queries": "zero"},
    ],
    "multi_scale": [
        {"window_convention": "half", "scales": [1, 2, "N/2"]},
        {"scales": [3], "slope": "linear"},
    ],
    "layer multi_scale": [{"head_width": 3}],
}


def variants(package: str, name: str, key: str) -> list[dict[str, Any]]:
    return [part(package, name, **options) for options in ({}, *VARIANTS.get(key, []))]


def every_trunk(code: str) -> Iterator[dict[str, Any]]:
    """A code in all its variants with all patterns and segments: with those of patterns, then with those of layers."""
    for positions, pattern, segments in product(variants("positions", code, code), PATTERNS, SEGMENTS):
        plain = {**trunk_settings(pattern, code, segments), "positions": positions}
        for attention in variants("attention", pattern, pattern):
            yield {**plain, "attention": attention}
        for name in LAYERS:
            for layer in variants("layers", name, f"layer {name}"):
                yield {**plain, "layer": layer}


@pytest.mark.parametrize("code", CODES)
def test_codes_and_patterns_work_or_are_refused(code: str) -> None:
    """Refused by one line that opens with the key to blame and says what to do, or a forward and a backward pass."""
    numbers = torch.Generator().manual_seed(4)
    x = torch.randn(2, 21, WIDTH, generator=numbers)
    valid = torch.arange(21) < torch.tensor([[21], [4]])
    segments = (torch.arange(21) > 9).long().expand(2, -1)
    worked = 0
    for mapping in every_trunk(code):
        model = build(
            ModelConfig, {"width": WIDTH, "downsampler": "identity", "trunk": mapping}, source="test"
        )
        model = dataclasses.replace(
            model, embedder=Slot("tokenfree.train.model.embedders", "").config_class("byte_table")()
        )
        problems = check(model, 21)
        for problem in problems:
            assert problem.startswith("model."), mapping
            assert "\n" not in problem
            assert "; " in problem, problem
        if problems:
            with pytest.raises(UserError, match=r"^model\.trunk\."):
                model.build()
            continue
        trunk = spread(Trunk(model.trunk, DIMENSIONS))
        output = trunk(x, valid, segments)
        gradients = torch.autograd.grad(score(output), list(trunk.parameters()), materialize_grads=True)
        assert all(tensor.isfinite().all() for tensor in (output, *gradients)), mapping
        worked += 1
    assert worked > 40
