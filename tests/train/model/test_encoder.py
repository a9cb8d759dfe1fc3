"""The frame with CANINE's parts: what may and may not influence what, padding, targets, messages."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.model.encoder import Encoder, ModelConfig, check, mean_of_text

TINY = {
    "width": 16,
    "embedder": {"buckets": 512, "hashes": 4, "max_characters": 2048},
    "trunk": {"layers": 2, "heads": 2},
}


def config(**options: Any) -> ModelConfig:
    return build(ModelConfig, {**TINY, **options}, source="test")


def encoder_of(**options: Any) -> Encoder:
    """In evaluation mode, with weights large enough for every path to show."""
    torch.manual_seed(0)
    encoder = config(**options).build().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    return encoder


def text(*lengths: int, size: int | None = None, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random codepoints after CLS, and the mask, padded to `size`."""
    size = max(lengths) if size is None else size
    mask = torch.arange(size) < torch.tensor(lengths)[:, None]
    generator = torch.Generator().manual_seed(seed)
    codepoints = torch.randint(32, 0x3000, (len(lengths), max(lengths)), generator=generator)
    codepoints[:, 0] = 0xE000
    return torch.nn.functional.pad(codepoints, (0, size - max(lengths))) * mask, mask


def changes(encoder: Encoder, codepoints: Tensor, mask: Tensor, character: int) -> dict[str, Tensor]:
    """For each output, which places differ at all once `character` of the first example is another."""
    other = codepoints.clone()
    other[0, character] = 0x4E2D
    with torch.no_grad():
        before, after = encoder(codepoints, mask), encoder(other, mask)
    return {name: (getattr(before, name) != getattr(after, name)).any(dim=-1) for name in before._fields}


def test_the_mean_of_a_text_leaves_out_cls_and_sep() -> None:
    vectors_BPD = torch.randn(3, 5, 2)
    real_BP = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)
    expected = torch.stack([vectors_BPD[0, 1:3].mean(0), vectors_BPD[1, 0], vectors_BPD[2, 0]])
    torch.testing.assert_close(mean_of_text(vectors_BPD, real_BP), expected)


def test_the_unit_of_a_global_character_attends_to_all() -> None:
    attention = {"name": "sliding_global", "one_sided_window": 1, "global_units": 2}
    encoder = encoder_of(trunk={"layers": 1, "heads": 2, "attention": attention})
    codepoints, mask = text(64)
    rate = 64 // encoder.downsampler.num_units(64)
    marked = torch.arange(64)[None] == 5 * rate + 1  # in unit 6: unit 0 is CLS, which is global anyway
    with torch.no_grad():
        _, near = encoder.encode(codepoints, mask)
        _, wide = encoder.encode(codepoints, mask, global_BC=marked)
    changed = (near != wide).any(dim=-1)[0]
    assert changed[6]
    assert changed.sum() > encoder.downsampler.num_units(64) // 2, "every unit sees the global one"


def score(x: Tensor) -> Tensor:
    """A scalar whose gradient does not vanish behind a LayerNorm, as that of the plain sum does."""
    return (x.float() * torch.linspace(-1, 1, x.shape[-1]) ** 3).sum()


def test_shapes() -> None:
    output = encoder_of()(*text(2048, 700))
    assert output.characters.shape == (2, 2048, 16)
    assert output.units.shape == (2, 512, 16)
    assert output.pooled.shape == (2, 16)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 127, 128, 129, 130, 301])
def test_any_length(length: int) -> None:
    output = encoder_of()(*text(length))
    assert output.characters.shape == (1, length, 16)
    assert all(tensor.isfinite().all() for tensor in output)


def test_more_characters_than_positions() -> None:
    with pytest.raises(UserError, match=r"model\.embedder\.max_characters"):
        encoder_of()(*text(2049))


@pytest.mark.parametrize(("character", "seen"), [(character, character < 8) for character in range(10)])
def test_the_last_group_is_never_a_key_in_the_trunk(character: int, seen: bool) -> None:
    """The official mask is off by one; `align_mask` fixes it."""
    blocks = {"block": 8}
    assert changes(encoder_of(downsampler=blocks), *text(10, size=16), character)["pooled"].item() == seen
    aligned = encoder_of(downsampler={**blocks, "align_mask": True})
    assert changes(aligned, *text(10, size=16), character)["pooled"].item()


def test_blocks_do_not_see_each_other() -> None:
    encoder = encoder_of()
    codepoints, mask = text(256)
    other = codepoints.clone()
    other[0, 130] = 0x4E2D
    (one, _), (two, _) = encoder.encode(codepoints, mask), encoder.encode(other, mask)
    assert torch.equal(one.characters_BCD[:, :128], two.characters_BCD[:, :128])
    assert (one.characters_BCD[:, 128:] != two.characters_BCD[:, 128:]).any(dim=-1).all()


@pytest.mark.parametrize("targets", [[[0, 0, 5, 149, 31]], [[77]]])
def test_targets_are_rows_of_all_characters(targets: list[list[int]]) -> None:
    encoder = encoder_of()
    codepoints, mask = text(150, 40)
    rows = torch.tensor(targets).expand(2, -1) % torch.tensor([[150], [40]])
    with torch.no_grad():
        everything = encoder(codepoints, mask).characters
        some = encoder(codepoints, mask, None, rows).characters
    wanted = everything.gather(1, rows[..., None].expand(-1, -1, 16))
    assert (some - wanted).abs().max() < 1e-5


@given(targets=st.lists(st.integers(0, 39), min_size=1, max_size=9))
@settings(max_examples=15)
def test_targets_do_not_see_each_other(targets: list[int]) -> None:
    """Whatever else is asked for, in whatever order and however often."""
    encoder = encoder_of().double()
    codepoints, mask = text(40)
    with torch.no_grad():
        together = encoder(codepoints, mask, None, torch.tensor([targets])).characters[0]
        everything = encoder(codepoints, mask).characters[0]
    torch.testing.assert_close(together, everything[targets], atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("size", "longer", "length", "same"),
    [(16, 24, length, length <= 10) for length in range(1, 17)]
    + [(24, 32, length, length <= 18) for length in range(1, 25)],
)
def test_padding(size: int, longer: int, length: int, same: bool) -> None:
    """The pooled output never changes; a character does where the convolution of UP reads the last unit's repeats."""
    encoder = encoder_of(downsampler={"block": 128}).double()
    with torch.no_grad():
        one, two = encoder(*text(length, size=size)), encoder(*text(length, size=longer))
    torch.testing.assert_close(one.pooled, two.pooled, atol=1e-12, rtol=0)
    difference = (one.characters[:, :length] - two.characters[:, :length]).abs().max()
    assert (difference < 1e-12) == same


def test_a_row_of_padding_keeps_cls() -> None:
    encoder = encoder_of()
    codepoints, mask = text(40, 40)
    nothing = mask & torch.tensor([[True], [False]])
    with torch.no_grad():
        output = encoder(codepoints, nothing)
        alone = encoder(codepoints[:1], mask[:1])
    assert all(tensor.isfinite().all() for tensor in output)
    torch.testing.assert_close(output.characters[:1], alone.characters)


def test_targets_reach_all_characters_and_units_with_gradients() -> None:
    encoder = encoder_of()
    codepoints, mask = text(64)
    kept: dict[str, Any] = {}
    encoder.embedder.register_forward_hook(
        lambda module, inputs, output: kept.__setitem__("embedded", output)
    )
    encoder.trunk.register_forward_hook(lambda module, inputs, output: kept.__setitem__("units", output))
    encoder.upsampler.register_forward_pre_hook(lambda module, inputs: kept.__setitem__("initial", inputs[2]))
    output = encoder(codepoints, mask, None, torch.tensor([[30]]))
    gradients = torch.autograd.grad(
        score(output.characters), [kept["embedded"], kept["initial"], kept["units"]]
    )
    reached = [(gradient != 0).any(dim=-1) for gradient in gradients]
    assert reached[0].all()
    assert reached[1].all()
    assert reached[2][:, 1:].all()  # CLS stands for no character, unless it is the only unit


@pytest.mark.parametrize("attention", ["full", "multi_scale"])
def test_every_parameter_gets_a_gradient(attention: str) -> None:
    encoder = encoder_of(trunk={**TINY["trunk"], "attention": attention}).train()
    output = encoder(*text(50, 20))
    (score(output.characters) + score(output.pooled)).backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("attention", ["full", "multi_scale"])
def test_bfloat16_has_no_nan(attention: str) -> None:
    encoder = encoder_of(trunk={**TINY["trunk"], "attention": attention}).train()
    codepoints, mask = text(300, 5, size=400)
    with torch.autocast("cpu", torch.bfloat16):
        output = encoder(codepoints, mask, None, torch.tensor([[0, 299], [0, 4]]))
        score(output.characters).backward()
    assert all(tensor.isfinite().all() for tensor in output)
    assert all(
        parameter.grad.isfinite().all() for parameter in encoder.parameters() if parameter.grad is not None
    )


def test_embed_characters_is_the_embedder_at_places() -> None:
    encoder = encoder_of()
    codepoints, _ = text(20, 20)
    places = torch.tensor([[3, 0, 3], [19, 7, 1]])
    embedded = encoder.embed_characters(codepoints.gather(1, places), places)
    wanted = encoder.embedder(codepoints).gather(1, places[..., None].expand(-1, -1, 16))
    torch.testing.assert_close(embedded, wanted)


def test_initial_weights() -> None:
    torch.manual_seed(0)
    encoder = config(width=64, upsampler={"kernel": 4}).build()
    for name, parameter in encoder.state_dict().items():
        if "norm.weight" in name:
            assert (parameter == 1).all(), name
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif "convolution" in name:
            fans = sum(parameter.shape[:2]) * parameter.shape[2]
            assert parameter.abs().max() <= (6 / fans) ** 0.5, name
            assert parameter.std().item() == pytest.approx((2 / fans) ** 0.5, rel=0.05), name
        else:
            assert parameter.abs().max() <= 0.04, name
            assert parameter.std().item() == pytest.approx(0.02 * 0.88, rel=0.05), name  # 0.88: two std cut


def test_equal_seeds_give_equal_weights() -> None:
    one, two = encoder_of().state_dict(), encoder_of().state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_problems_are_told_together() -> None:
    wrong = config(width=18, embedder={"hashes": 4, "max_characters": 100}, trunk={"heads": 4})
    assert check(wrong, 126) == [
        "model.trunk.heads: 4 does not divide model.width, 18",
        "model.embedder.hashes: 4 does not divide model.width, 18",
        "model.embedder.max_characters: 100 is less than the length of an example, 126",
    ]
    with pytest.raises(UserError, match=r"model\.trunk\.heads: 4 .*; model\.embedder\.hashes: 4"):
        wrong.build()
    assert check(config(), 128) == []


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"embedder": "codepoint_hsh"}, "did you mean 'codepoint_hash'"),
        ({"downsampler": {"rte": 2}}, "did you mean 'downsampler.rate'"),
        ({"trunk": {"attention": {"alpha": 1}}}, "alpha"),
        ({"trunk": {"layers": 0}}, "trunk.layers"),
    ],
)
def test_misspelt_settings(mapping: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(ModelConfig, mapping, source="test")
