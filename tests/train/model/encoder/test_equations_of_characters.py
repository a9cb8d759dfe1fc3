"""The equations of CANINE's parts and of the heads, written out in loops, against the modules.

As in test_equations.py, every dropout doubles what it is given.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.model.encoder.test_equations import (
    attention,
    dense,
    encoder_of,
    feed_forward,
    gelu,
    norm,
    shown,
)
from tokenfree.core.settings import merge
from tokenfree.train.batches.base import KEPT, MASKED, REPLACED
from tokenfree.train.model.attention import causal, full, linformer, multi_scale, sliding_global
from tokenfree.train.model.common.attention import Heads
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.objectives.base import MaskedHead, NextSentence, real_only, score

CHARACTERS: dict[str, Any] = {
    "width": 12,
    "embedder": {"name": "codepoint_hash", "hashes": 3, "buckets": 50, "max_characters": 64, "segments": 3},
    "downsampler": {"name": "strided_conv", "rate": 3, "block": 4, "layers": 2},
    "trunk": {"layers": 2, "heads": 3},
    "upsampler": {"name": "repeat_concat", "kernel": 4},
}
CODEPOINTS = torch.tensor([0xE000, 72, 0x4E2D, 105, 33, 0x1F600, 49, 50, 51, 97, 98, 0xE001])
SEGMENTS = torch.tensor([0] * 7 + [2] * 5)
PRIMES = (31, 43, 59)


def bert_layer(layer: Any, x: Tensor) -> Tensor:
    """h = LN(x + dropout(attention(x))); LN(h + dropout(FFN(h)))."""
    h = norm(x + 2 * attention(layer, x, 3), layer.attention_norm)
    return norm(h + 2 * feed_forward(layer, h), layer.norm)


def embedded(embedder: Any) -> Tensor:
    """dropout(LN([E_1[H_1(x)]; ...; E_K[H_K(x)]] + segment + position)), H_k(x) = (x + 1) p_k mod B."""
    rows = []
    for place, (codepoint, segment) in enumerate(zip(CODEPOINTS.tolist(), SEGMENTS.tolist(), strict=True)):
        shards = [
            embedder.table.rows.weight[k * 50 + (codepoint + 1) * prime % 50]
            for k, prime in enumerate(PRIMES)
        ]
        summed = torch.cat(shards) + embedder.segments.weight[segment] + embedder.positions.weight[place]
        rows.append(2 * norm(summed, embedder.norm))
    return torch.stack(rows)


def taps(convolution: Any, window: Tensor) -> Tensor:
    """Sum of W_k x_k over the rows of a window, and the bias."""
    products = [convolution.weight[:, :, k] @ x for k, x in enumerate(window)]
    return torch.stack(products).sum(0) + convolution.bias


def convolved(characters: Tensor, repeated: Tensor | None, convolution: Any) -> Tensor:
    """A convolution over [characters ; repeated units] with one zero before and two after."""
    joined = characters if repeated is None else torch.cat([characters, repeated], dim=-1)
    padded = torch.cat([joined.new_zeros(1, joined.shape[1]), joined, joined.new_zeros(2, joined.shape[1])])
    return torch.stack([taps(convolution, padded[at : at + 4]) for at in range(len(joined))])


@pytest.mark.parametrize("up", ["repeat_concat", "repeat_add", "repeat_add with residuals"])
def test_canine_from_end_to_end(up: str) -> None:
    """arXiv 2103.06874, section 3: every step, from codepoints to vectors of characters, and the pooled one."""
    residuals = "residuals" in up
    options = {"residual_characters": True, "residual_units": True} if residuals else {}
    upsampler = {"name": up.split()[0], **options}
    encoder: Any = encoder_of({**CHARACTERS, "upsampler": upsampler})
    with torch.no_grad():
        found = encoder(CODEPOINTS[None], torch.ones(1, 12, dtype=torch.bool), SEGMENTS[None])
    x, down, upper = embedded(encoder.embedder), encoder.downsampler, encoder.upsampler
    for layer in down.local:
        x = torch.cat([bert_layer(layer, block) for block in x.split(4)])
    groups = [x[3 * j : 3 * j + 3] for j in range(3)]  # of the last one there is no unit
    units = norm(torch.stack([x[0], *(gelu(taps(down.convolution, group)) for group in groups)]), down.norm)
    for layer in encoder.trunk.layers:
        units = bert_layer(layer, units)
    repeated = units[[1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3]]
    if up == "repeat_concat":
        h = gelu(convolved(x, repeated, upper.convolution))
    else:
        h = gelu(convolved(repeated, None, upper.convolution)) + ((x + repeated) if residuals else 0)
    y = bert_layer(upper.final, 2 * norm(h, upper.norm))
    torch.testing.assert_close(found.characters[0], y)
    torch.testing.assert_close(found.units[0], units)
    torch.testing.assert_close(found.pooled[0], dense(encoder.pooler, units[0]).tanh())


def test_multi_scale_layers() -> None:
    """arXiv 1912.00544: LN(H + dropout(ReLU(MSMSA(H)))); with windows as wide as the text it is full attention."""
    trunk = {"layer": "multi_scale", "attention": {"name": "multi_scale", "scales": [99]}}
    stack: Any = encoder_of(merge(CHARACTERS, {"trunk": trunk})).trunk
    x = torch.randn(5, 12, dtype=torch.float64)
    with torch.no_grad():
        found = stack(x[None], torch.ones(1, 5, dtype=torch.bool))[0]
    for layer in stack.layers:
        layer.attention_output = layer.output
        x = norm(x + 2 * attention(layer, x, 3).clamp(min=0), layer.norm)
    torch.testing.assert_close(found, x)


def test_masked_heads() -> None:
    """Devlin et al. 2019: softmax of LN(GELU(h W + b)) W_out + b_out; the loss is -log of the gold class, summed."""
    torch.manual_seed(0)
    head, h = shown(MaskedHead(6, 9)), torch.randn(4, 6, dtype=torch.float64)
    logits = dense(head.output, norm(gelu(dense(head.dense, h)), head.norm))
    torch.testing.assert_close(head.logits(head, h), logits)
    gold, real = torch.tensor([8, 0, 3, 3]), torch.tensor([True, True, False, True])
    kinds = torch.tensor([MASKED, KEPT, MASKED, REPLACED])
    loss = score(logits, {"target_ids": gold, "target_mask": real, "target_kinds": kinds}, bits=True)
    nats = torch.stack([-(logits[i].exp() / logits[i].exp().sum()).log()[gold[i]] for i in (0, 1, 3)])
    assert loss.total.item() == pytest.approx(nats.sum().item(), rel=1e-5)
    assert loss.num_targets.item() == 3
    assert loss.num_correct.item() == sum(int(logits[i].argmax() == gold[i]) for i in (0, 1, 3))
    total, count = loss.means["bits_per_character"]
    assert (total / count).item() == pytest.approx(nats.mean().item() / 0.6931472, rel=1e-5)
    hidden, right = (loss.means[f"masked_only_{name}"] for name in ("loss", "accuracy"))  # of the first alone
    assert (hidden[0].item(), hidden[1].item()) == (pytest.approx(nats[0].item(), rel=1e-5), 1)
    assert (right[0].item(), right[1].item()) == (int(logits[0].argmax() == 8), 1)


def test_scores_are_in_full_precision() -> None:
    """Whatever the precision of the products, the softmax over the classes is in float32."""
    torch.manual_seed(0)
    logits, gold = (3 * torch.randn(50, 300)).bfloat16(), torch.arange(50)
    targets = {"target_ids": gold, "target_mask": gold >= 0, "target_kinds": torch.zeros(50)}
    expected = -logits.float().log_softmax(-1)[gold, gold].sum()
    torch.testing.assert_close(score(logits, targets, bits=False).total, expected)


def test_next_sentences_count_once_for_each_target() -> None:
    torch.manual_seed(0)
    head, pooled = shown(NextSentence(6)).float(), torch.randn(3, 6)
    targets = {
        "target_ids": torch.arange(5),
        "target_mask": torch.ones(5) > 0,
        "target_kinds": torch.zeros(5),
    }
    masked = score(torch.randn(5, 7), targets, bits=False)
    batch = {
        "from_elsewhere": torch.tensor([0, 1, 1]),
        "target_mask": torch.ones(3, 5) * torch.tensor([[1], [0], [1]]),
    }
    loss = head(masked, pooled, batch)
    logits = dense(head.output, pooled)
    nats = torch.stack([-logits[i].softmax(0)[gold].log() for i, gold in enumerate((0, 1, 1))])
    torch.testing.assert_close(loss.total, masked.total + 5 * nats[0] + 5 * nats[2])
    apart = {name: (total / count).item() for name, (total, count) in loss.means.items()}
    assert apart["masked_loss"] == pytest.approx(masked.total.item() / 5)
    assert apart["next_sentence_loss"] == pytest.approx(nats.mean().item(), rel=1e-5)
    right = [int(logits[i].argmax() == gold) for i, gold in enumerate((0, 1, 1))]
    assert apart["next_sentence_accuracy"] == pytest.approx(sum(right) / 3)


PATTERNS: dict[str, Any] = {
    "full": full.Config(),
    "full with values of offsets": full.Config(),
    "linformer": linformer.Config(projection=40),
    "windows with a mask": sliding_global.Config(one_sided_window=40, global_units=1),
    "windows in blocks": sliding_global.Config(one_sided_window=4, global_units=1),
    "scales with a mask": multi_scale.Config(scales=(49,)),
    "scales in blocks": multi_scale.Config(scales=(5,)),
    "alone": multi_scale.Config(scales=(1,)),
    "causal": causal.Config(),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_attention_weights_are_dropped_out_in_training(name: str) -> None:
    """Of values that are all 1 the context is the sum of the weights: 1, in training 1 on the average."""
    torch.manual_seed(0)
    dimensions = Dimensions(32, 2, 32, 0.25, "gelu")
    core: Any = PATTERNS[name].build(dimensions, 0, 1)
    q, k = (torch.randn(8, 2, 60 if name != "linformer" else 40, 16) for _ in range(2))
    valid, source = torch.ones(8, q.shape[2], dtype=torch.bool), torch.zeros(8, q.shape[2], 32)
    heads = Heads(q, k, torch.ones(8, 2, q.shape[2], 16), valid, source)
    if name == "full with values of offsets":
        half = 0.5 * torch.ones(8, 2, q.shape[2], 16)
        heads = heads._replace(values_BHKE=half, offset_values=torch.full((2, 3, 16), 0.5))
    dropped = core.train()(heads)
    assert dropped.mean().item() == pytest.approx(1, abs=0.02)
    assert ((dropped - 1).abs() > 0.001).float().mean() > 0.2
    if name == "alone":
        assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.05)
    torch.testing.assert_close(core.eval()(heads), torch.ones_like(dropped))


def test_softmax_in_training_is_of_full_precision() -> None:
    """Of bfloat16 logits the exponentials are summed in float32: no weight errs by more than its own rounding."""
    torch.manual_seed(0)
    # A rate by which none is dropped.
    core = full.Config().build(Dimensions(32, 1, 32, 1e-9, "gelu"), 0, 1).train()
    q, k = ((2 * torch.randn(1, 1, 512, 32)).bfloat16() for _ in range(2))
    v = torch.eye(512).bfloat16()[None, None]  # the context is the weights
    with torch.no_grad():
        found = core(Heads(q, k, v, torch.ones(1, 512, dtype=torch.bool), v[0]))[0, 0].double()
        logits = ((q * 32**-0.5) @ k.transpose(-2, -1))[0, 0]
    exact = logits.double().softmax(-1)
    kept = found > 0
    assert kept.float().mean() > 0.99
    assert ((found - exact).abs() / exact)[kept].max() < 2**-8 * 1.01


def test_attention_under_compilation_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fused kernels drop weights out themselves; ours would be made again of many."""
    rates = []
    kernel = "scaled_dot_product_attention"
    monkeypatch.setattr(torch.nn.functional, kernel, lambda q, k, v, mask, rate: rates.append(rate))
    q, valid = torch.randn(1, 2, 5, 16), torch.ones(1, 5, dtype=torch.bool)
    core = full.Config().build(Dimensions(32, 2, 32, 0.25, "gelu"), 0, 1)
    core.train()(Heads(q, q, q, valid, q))
    assert rates == []
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    core(Heads(q, q, q, valid, q))
    core.eval()(Heads(q, q, q, valid, q))
    assert rates == [0.25, 0.0]


def test_rows_without_target_are_left_out_where_that_costs_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = torch.tensor([[True, False]])
    targets: dict[str, torch.Tensor] = dict.fromkeys(("target_ids", "target_mask", "target_kinds"), mask)
    assert real_only(torch.ones(1, 2, 3), targets)[0].shape == (1, 3)
    assert real_only(torch.ones(1, 2, 3, device="meta"), targets)[0].shape == (1, 2, 3)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert real_only(torch.ones(1, 2, 3), targets)[0].shape == (1, 2, 3)
