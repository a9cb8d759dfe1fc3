"""The equations of single parts, written out in loops over words, units and heads, against the modules.

Every dropout is made to double what it is given, so that an equation shows where it stands.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tokenfree.core.settings import build, merge
from tokenfree.train.model.attention import sliding_global
from tokenfree.train.model.common.attention import Heads
from tokenfree.train.model.common.basic import Dimensions, Dropout
from tokenfree.train.model.encoder import Encoder, ModelConfig

WORDS: dict[str, Any] = {
    "width": 12,
    "character_width": 8,
    "embedder": "word_bytes",
    "downsampler": {"name": "word_pooling", "max_words": 16},
    "trunk": {"layers": 2, "heads": 3, "dropout": 0.0, "layer": "pre_ln"},
    "upsampler": "subword_queries",
}
CNN = {"downsampler": {"name": "character_cnn", "widths": [1, 2, 4], "counts": [3, 4, 5], "word_width": 10}}
TEXT = [b"\x02", b"ab", b"abcdefg", b"x", b"\x04", b"zzz", b"\x03"]


class Twice(nn.Module):
    """Stands where a dropout stood."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def shown(module: nn.Module) -> Any:
    """In float64, with weights and biases so large that every part of an equation shows, and each dropout a factor."""
    module = module.double().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    for part in [*module.modules()]:
        for name, child in [*part.named_children()]:
            if isinstance(child, Dropout):
                setattr(part, name, Twice())
    return module


def encoder_of(mapping: dict[str, Any]) -> Encoder:
    torch.manual_seed(0)
    return shown(build(ModelConfig, mapping, source="test").build())


def units_of(encoder: Encoder) -> tuple[Tensor, Tensor]:
    """What DOWN gives for the words of `TEXT`, [U, D], of which the last three are the second segment; its segments."""
    ends = torch.tensor([len(word) for word in TEXT]).cumsum(0)
    segments = (torch.arange(int(ends[-1])) >= ends[3]).long()
    codepoints = torch.tensor([list(b"".join(TEXT))])
    mask = torch.ones_like(codepoints, dtype=torch.bool)
    with torch.no_grad():
        nothing = ends[-1:].repeat(2)  # words without bytes, as after the last word of every example
        down, _ = encoder.encode(codepoints, mask, segments[None], torch.cat([ends, nothing])[None])
    return down.units_BUD[0], segments[ends - 1]


def gelu(x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")


def norm(x: Tensor, layer: Any) -> Tensor:
    """LayerNorm over the last dimension, by hand."""
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-12).sqrt() * layer.weight + layer.bias


def from_pooled(output: Any, pooled: Tensor, place: int, segment: int) -> Tensor:
    """dropout(LN(e + place + type)) W_proj."""
    summed = pooled + output.places.weight[place] + output.types.weight[segment]
    return output.projection.weight @ (2 * norm(summed, output.norm)) + output.projection.bias


@pytest.mark.parametrize("num_queries", [None, 1])
@pytest.mark.parametrize("byte_positions", ["none", "learned"])
def test_word_pooling(num_queries: int | None, byte_positions: str) -> None:
    """arXiv 2211.12677: e = softmax(Q K^T / sqrt(d)) V; H = LN(FFN(e) + e + place + type) W_proj."""
    options = {"num_queries": num_queries, "byte_positions": byte_positions}
    encoder = encoder_of(merge(WORDS, {"downsampler": options}))
    found, segments = units_of(encoder)
    down: Any = encoder.downsampler
    for place, word in enumerate(TEXT):
        rows = encoder.embedder.table.weight[list(word)]
        if byte_positions == "learned":
            rows = rows + down.byte_positions.weight[: len(word)]
        keys, values = rows @ down.key.weight.T, rows @ down.value.weight.T
        query = down.queries.weight[0 if num_queries else place]
        logits = torch.stack([query @ key / 8**0.5 for key in keys])
        e = sum(weight * value for weight, value in zip(logits.softmax(0), values, strict=True))
        ffn = down.outer.weight @ gelu(down.inner.weight @ e + down.inner.bias) + down.outer.bias
        expected = from_pooled(down.output, ffn + e, place, int(segments[place]))
        torch.testing.assert_close(found[place], expected)


def test_character_convolutions() -> None:
    """Filters see the bytes of their word and zeros after it; highways are g ReLU(W x) + (1 - g) x."""
    encoder = encoder_of(merge(WORDS, CNN))
    found, segments = units_of(encoder)
    down: Any = encoder.downsampler
    for place, word in enumerate(TEXT):
        rows = encoder.embedder.table.weight[list(word)]
        maxima = []
        for filters in down.filters:
            width = filters.in_features // 8
            padded = torch.cat([rows, rows.new_zeros(width - 1, 8)])
            windows = [padded[start : start + width].flatten() for start in range(len(word))]
            maxima.append(
                torch.stack([(filters.weight @ window + filters.bias).relu() for window in windows]).amax(0)
            )
        x = torch.cat(maxima)
        for highway in down.highways:
            gate = 1 / (1 + (-(highway.gate.weight @ x + highway.gate.bias)).exp())
            x = gate * (highway.change.weight @ x + highway.change.bias).relu() + (1 - gate) * x
        pooled = down.projection.weight @ x + down.projection.bias
        torch.testing.assert_close(
            found[place], from_pooled(down.output, pooled, place, int(segments[place]))
        )


def dense(layer: Any, x: Tensor) -> Tensor:
    return x @ layer.weight.T + layer.bias


def feed_forward(layer: Any, x: Tensor) -> Tensor:
    return dense(layer.outer, gelu(dense(layer.inner, x)))


def attention(layer: Any, x: Tensor, num_heads: int) -> Tensor:
    """Multi-head attention of all units [U, D] among themselves."""
    q, k, v = (dense(each, x).chunk(num_heads, -1) for each in (layer.query, layer.key, layer.value))
    width = q[0].shape[1]
    heads = [((a @ b.T) / width**0.5).softmax(-1) @ c for a, b, c in zip(q, k, v, strict=True)]
    return dense(layer.attention_output, torch.cat(heads, dim=-1))


def test_pre_ln_layers() -> None:
    """x + attention(LN(x)), then x + FFN(LN(x)); the stack ends in a LayerNorm (Xiong et al. 2020, figure 1b)."""
    encoder = encoder_of(WORDS)
    trunk: Any = encoder.trunk
    x = torch.randn(5, 12, dtype=torch.float64)
    with torch.no_grad():
        found = trunk(x[None], torch.ones(1, 5, dtype=torch.bool))[0]
    for layer in trunk.layers:
        x = x + 2 * attention(layer, norm(x, layer.attention_norm), 3)
        x = x + 2 * feed_forward(layer, norm(x, layer.norm))
    torch.testing.assert_close(found, norm(x, trunk.end))


@pytest.mark.parametrize("upsampler", ["repeat_concat", "repeat_add"])
def test_upsampled_characters_are_dropped_out_in_training(upsampler: str) -> None:
    """Between UP's LayerNorm and its final layer: a share of the values is 0, the others are as much larger."""
    mapping = {"width": 32, "embedder": {"hashes": 2, "buckets": 64, "max_characters": 256},
               "trunk": {"layers": 1, "heads": 2, "dropout": 0.25}, "upsampler": upsampler}  # fmt: skip
    encoder = build(ModelConfig, mapping, source="test").build()
    normed: list[Tensor] = []
    entering: list[Tensor] = []
    encoder.upsampler.norm.register_forward_hook(lambda module, inputs, output: normed.append(output))
    encoder.upsampler.final.register_forward_pre_hook(lambda module, inputs: entering.append(inputs[0]))
    codepoints = torch.randint(97, 123, (4, 256))
    for training in (True, False):
        encoder.train(training)(codepoints, codepoints > 0)
    assert (entering[0] == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    kept = entering[0] != 0
    torch.testing.assert_close(entering[0][kept], (normed[0] / 0.75)[kept], rtol=1e-3, atol=1e-3)
    assert torch.equal(entering[1], normed[1])


@pytest.mark.parametrize("window", [150, 20])  # all pairs with a mask, and in blocks
def test_softmax_of_windows_is_of_full_precision(window: int) -> None:
    """Of bfloat16 queries and keys the result errs no more than its own rounding; rounded logits would err 3 times."""
    torch.manual_seed(0)
    dimensions = Dimensions(32, 2, 32, 0.0, "gelu")
    core = sliding_global.Config(one_sided_window=window).build(dimensions, 0, 1).eval()
    q, k, v = (scale * torch.randn(1, 2, 600, 16) for scale in (3, 1, 1))

    def context(dtype: torch.dtype) -> Tensor:
        queries, keys, values = (x.bfloat16().to(dtype) for x in (q, k, v))
        valid, source = torch.ones(1, 600, dtype=torch.bool), torch.zeros(1, 600, 32, dtype=dtype)
        return core(Heads(queries, keys, values, valid_BK=valid, source_BKD=source, bias=None))

    with torch.no_grad():
        exact, found = context(torch.float64), context(torch.bfloat16)
    assert found.dtype == torch.bfloat16
    rounding = (exact.bfloat16().double() - exact).abs().mean()
    assert (found.double() - exact).abs().mean() < 1.5 * rounding
