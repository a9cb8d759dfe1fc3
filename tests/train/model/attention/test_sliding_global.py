"""Sliding windows with global units: against loops, and what reaches what; test_longformer.py has the parity."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.train.model.attention.function_bias import FunctionBias
from tokenfree.core.errors import UserError
from tokenfree.core.settings import Slot, build
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.model.attention.full import FullAttention
from tokenfree.train.model.attention.sliding_global import Config, SlidingGlobalAttention
from tokenfree.train.model.common.attention import Heads
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.costs import costs, step_memory
from tokenfree.train.model.encoder import Encoder, ModelConfig, Trunk, check
from tokenfree.train.model.layers.bert import BertLayer

DIMENSIONS = Dimensions(width=16, heads=4, inner_width=12, dropout=0.0, activation="gelu")


def core(one_sided_window: int, global_units: int = 0, **options: Any) -> SlidingGlobalAttention:
    config = Config(one_sided_window=one_sided_window, global_units=global_units, **options)
    return config.build(DIMENSIONS, 0, 1)


def layer_of(attention: FullAttention | SlidingGlobalAttention, seed: int = 0) -> BertLayer:
    torch.manual_seed(seed)
    return BertLayer(DIMENSIONS, attention).double()


def units(*shape: int) -> Tensor:
    return torch.randn(*shape, 16, dtype=torch.float64)


def all_valid(x: Tensor) -> Tensor:
    return torch.ones(x.shape[:2], dtype=torch.bool)


class Loops(FullAttention):
    """The pattern one query at a time, with the weights of `fast`."""

    def __init__(self, fast: SlidingGlobalAttention) -> None:
        super().__init__(0.0)
        self.fast = fast

    def forward(self, heads: Heads) -> Tensor:
        q, k, v, valid, source, bias = heads[:6]
        if self.fast.separate:
            own = (self.fast.query, self.fast.key, self.fast.value)
            q_all, k_all, v_all = (layer(source).unflatten(-1, (4, -1)).transpose(1, 2) for layer in own)
        else:
            q_all, k_all, v_all = q, k, v
        context = torch.zeros_like(q)
        for b in range(len(q)):
            real = [i for i in range(q.shape[2]) if valid[b, i]]
            marked = [i for i in real if i == 0 or (heads.global_BK is not None and heads.global_BK[b, i])]
            chosen = marked[: self.fast.num_global]
            for i in range(q.shape[2]):
                w, d = self.fast.window, self.fast.dilation
                seen = [j for j in real if (abs(i - j) <= w * d and (i - j) % d == 0) or j in chosen]
                if not seen or (self.fast.zero_padding and i not in real):
                    continue
                keys = torch.tensor(real if i in chosen else seen)
                queries, all_keys, values = (q_all, k_all, v_all) if i in chosen else (q, k, v)
                logits = (queries[b, :, i, None] * all_keys[b][:, keys]).sum(-1) / q.shape[-1] ** 0.5
                if bias is not None:
                    of_pairs = bias(slice(None), torch.full_like(keys, i), keys)
                    logits = logits + (of_pairs[b] if of_pairs.dim() == 3 else of_pairs)
                context[b, :, i] = (logits.softmax(-1)[..., None] * values[b][:, keys]).sum(1)
        return context


def bias_of_heads(heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
    """A bias that tells heads, sides and places apart."""
    slopes = torch.tensor([0.3, -0.2, 0.1, 0.7], dtype=torch.float64)[heads]
    pairs = torch.broadcast_tensors(queries, keys)
    return slopes.view(-1, *[1] * pairs[0].dim()) * (pairs[0] - pairs[1]) + 0.01 * pairs[0]


def bias_of_examples(heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
    """One that differs between two examples as well, [B, H, *pairs]."""
    of_heads = bias_of_heads(heads, queries, keys)
    return torch.stack([of_heads, 0.5 - of_heads / 2])


@given(
    window=st.integers(1, 12),
    dilation=st.integers(1, 3),
    lengths=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    padding=st.integers(0, 20),
    room=st.integers(0, 5),
    marks=st.tuples(*[st.lists(st.integers(0, 99), max_size=5)] * 2) | st.none(),
    separate=st.booleans(),
    zero=st.booleans(),
    bias=st.sampled_from([None, bias_of_heads, bias_of_examples]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_equals_loops(
    window: int, dilation: int, lengths: Any, padding: int, room: int, marks: Any, separate: bool, zero: bool,
    bias: Any, seed: int,
) -> None:  # fmt: skip
    torch.manual_seed(seed)
    size = max(lengths) + padding
    valid = torch.arange(size) < torch.tensor(lengths)[:, None]
    valid &= torch.rand(valid.shape) < 0.9  # holes, and sometimes no CLS: windows then may show nothing
    marked = None
    if marks is not None:
        marked = torch.stack(
            [torch.isin(torch.arange(size), torch.tensor(row, dtype=torch.int64)) for row in marks]
        )
    options: dict[str, Any] = {"dilation": dilation, "padding_queries": "zero" if zero else "attend"}
    attention = core(window, room, separate_global_projections=separate and room > 0, **options)
    fast = layer_of(attention, seed)
    slow = layer_of(Loops(attention))
    slow.load_state_dict(
        {name: tensor for name, tensor in fast.state_dict().items() if "core" not in name}, False
    )
    x = units(2, size).requires_grad_()
    weights = torch.randn_like(x)
    results = []
    for layer in (fast, slow):
        output = layer(x, valid, None if bias is None else FunctionBias(bias, size), global_BU=marked)
        own = [parameter for name, parameter in layer.named_parameters() if "core" not in name]
        wanted = [x, *own, *attention.parameters()]
        gradients = torch.autograd.grad((output * weights).sum(), wanted, materialize_grads=True)
        results.append([output, *gradients])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)


@pytest.mark.parametrize("size", [5, 40, 200])
@pytest.mark.parametrize("room", [0, 3])
def test_the_widest_window_is_full_attention(size: int, room: int) -> None:
    x = units(2, size)
    valid = torch.arange(size) < torch.tensor([[size], [max(1, size // 2)]])
    marked = torch.rand(2, size) < 0.1
    full, wide = layer_of(FullAttention(0.0)), layer_of(core(size - 1, room))
    torch.testing.assert_close(wide(x, valid, global_BU=marked), full(x, valid), atol=1e-12, rtol=0)


@pytest.mark.parametrize(("window", "dilation", "num_layers"), [(3, 1, 1), (3, 1, 3), (2, 3, 1), (2, 3, 2)])
def test_reach(window: int, dilation: int, num_layers: int) -> None:
    layers = [layer_of(core(window, dilation=dilation), seed) for seed in range(num_layers)]
    before = units(1, 150)
    after = before.clone()
    after[:, 70] += 1
    for layer in layers:
        before, after = layer(before, all_valid(before)), layer(after, all_valid(after))
    changed = (before != after).any(dim=-1)[0].nonzero().flatten().tolist()
    far = num_layers * window
    assert changed == [70 + dilation * step for step in range(-far, far + 1)]


def test_two_layers_with_a_global_unit_connect_any_pair() -> None:
    layers = [layer_of(core(2, 1), seed) for seed in range(2)]
    before = units(1, 150)
    after = before.clone()
    after[:, 140] += 1
    reached = []
    for layer in layers:
        before, after = layer(before, all_valid(before)), layer(after, all_valid(after))
        reached.append((before != after).any(dim=-1)[0].nonzero().flatten().tolist())
    assert reached[0] == [0, *range(138, 143)]
    assert reached[1] == list(range(150))


@pytest.mark.parametrize("size", [20, 150])
def test_a_global_key_in_the_window_counts_once(size: int) -> None:
    """Of equal logits each visible key gets an equal share."""
    q, v = torch.zeros(1, 4, size, 4), torch.eye(size)[None, None].expand(1, 4, -1, -1)
    context = core(3, 1)(Heads(q, q, v, all_valid(v[:, 0]), v[:, 0], None))
    assert torch.allclose(context[0, 0, 2, :6], torch.full((6,), 1 / 6))
    assert torch.allclose(context[0, 0, 10].nonzero().flatten(), torch.tensor([0, *range(7, 14)]))
    assert context[0, 0, 10, 0].item() == pytest.approx(1 / 8)


@pytest.mark.parametrize(
    ("window", "pairs", "percent"),
    [(32, 32_224, 12.3), (64, 61_888, 23.6), (128, 115_072, 43.9), (256, 196_864, 75.1)],
)
def test_visible_pairs(window: int, pairs: int, percent: float) -> None:
    assert core(window).num_pairs(512, 512, 4) == 4 * pairs
    assert round(100 * pairs / 512**2, 1) == percent


@pytest.mark.parametrize(
    ("window", "dilation", "room"), [(3, 1, 0), (3, 4, 0), (3, 2, 2), (50, 1, 1), (9, 9, 5), (1, 1, 99)]
)
def test_pairs_are_those_that_are_seen(window: int, dilation: int, room: int) -> None:
    size = 40
    q, v = torch.zeros(1, 4, size, 4), torch.eye(size)[None, None].expand(1, 4, -1, -1)
    attention = core(window, room, dilation=dilation)
    marked = torch.arange(size)[None] < room
    context = attention(Heads(q, q, v, all_valid(v[:, 0]), v[:, 0], None, global_BK=marked))
    assert attention.num_pairs(size, size, 4) == (context > 0).sum().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [20, 300])
@pytest.mark.parametrize("padding_queries", ["attend", "zero"])
def test_chunks_of_padding_give_zeros_and_never_nan(
    dtype: torch.dtype, size: int, padding_queries: Any
) -> None:
    attention = core(4, 0, padding_queries=padding_queries)
    q, k, v = (100 * torch.randn(2, 4, size, 4, dtype=dtype).requires_grad_() for _ in range(3))
    valid = torch.arange(size) < torch.tensor([[size], [1]])
    context = attention(Heads(q, k, v, valid, v, None))
    assert context.isfinite().all()
    first_unseeing = 5 if padding_queries == "attend" else 1
    assert (context[1, :, first_unseeing:] == 0).all()
    assert (context[1, :, :first_unseeing] != 0).all()
    gradients = torch.autograd.grad(context.float().sum(), (q, k, v))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_padding_does_not_matter() -> None:
    layer, x = layer_of(core(5, 3)), units(1, 50)
    marked = torch.arange(50)[None] % 20 == 7
    padded = torch.cat([x, units(1, 150)], dim=1)
    valid = torch.arange(200)[None] < 50
    longer = layer(padded, valid, global_BU=torch.cat([marked, torch.ones(1, 150, dtype=torch.bool)], dim=1))
    torch.testing.assert_close(longer[:, :50], layer(x, all_valid(x), global_BU=marked), atol=1e-12, rtol=0)


def canine(**attention: Any) -> ModelConfig:
    trunk = {"layers": 2, "heads": 2, "attention": attention or "full"}
    mapping = {"width": 16, "embedder": {"buckets": 512, "hashes": 4, "max_characters": 2048}, "trunk": trunk}
    return build(ModelConfig, mapping, source="test")


def encoder_of(**attention: Any) -> Encoder:
    torch.manual_seed(0)
    return canine(**attention).build().eval()


def text(*lengths: int) -> tuple[Tensor, Tensor]:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return torch.randint(32, 0x3000, mask.shape, generator=torch.Generator().manual_seed(0)) * mask, mask


@pytest.mark.parametrize("separate", [False, True])
def test_a_converted_canine_gives_its_outputs(separate: bool) -> None:
    full = encoder_of()
    wide = encoder_of(name="sliding_global", one_sided_window=99, separate_global_projections=separate)
    wide.load_state_dict(full.state_dict(), strict=False)
    layers: list[Any] = list(wide.trunk.layers)
    for layer in layers:
        layer.core.copy_projections(layer)
    with torch.no_grad():
        for one, other in zip(wide(*text(400, 91, 1)), full(*text(400, 91, 1)), strict=True):
            assert (one - other).abs().max() < 1e-5


def test_marked_characters_make_their_units_global() -> None:
    """Of the first 10 characters, those of a question, the units are 0 to 3."""
    encoder = encoder_of(name="sliding_global", one_sided_window=1, global_units=8)
    seen: dict[str, Any] = {}
    encoder.trunk.register_forward_pre_hook(lambda module, inputs: seen.__setitem__("global", inputs[3]))
    codepoints, mask = text(64, 64)
    marked = torch.arange(64) < torch.tensor([[10], [0]])
    output = encoder(codepoints, mask, global_BC=marked)
    assert seen["global"].nonzero().tolist() == [[0, 1], [0, 2], [0, 3]]  # and CLS, always
    assert (output.units[0] != encoder(codepoints, mask).units[0]).any(dim=-1).all()
    torch.testing.assert_close(output.units[1], encoder(codepoints, mask).units[1], atol=1e-6, rtol=0)


@pytest.mark.slow
def test_compiles_without_graph_breaks() -> None:
    encoder = encoder_of(name="sliding_global", one_sided_window=2, dilation=[1, 2], global_units=4)
    compiled = torch.compile(encoder, fullgraph=True, backend="eager")
    codepoints, mask = text(301, 100)
    marked = torch.arange(301)[None] < torch.tensor([[5], [9]])
    batch = (codepoints, mask, None, torch.tensor([[3, 0], [99, 7]]), None, marked)
    for one, other in zip(compiled(*batch), encoder(*batch), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dilation", [1, 3])
def test_memory_is_linear_in_the_length(dilation: int) -> None:
    attention = {"name": "sliding_global", "one_sided_window": 16, "dilation": dilation}
    mapping = {"width": 16, "trunk": {"layers": 2, "heads": 2, "attention": attention}}
    config = build(
        ModelConfig, {**mapping, "downsampler": "identity", "upsampler": "identity"}, source="test"
    )
    short, long = (step_memory(config, length, 1).activations for length in (1024, 4096))
    assert 3.9 < long / short < 4.1


def test_parameters() -> None:
    def parameters(**attention: Any) -> int:
        config = build(ModelConfig, {"trunk": {"attention": attention}}, source="test")
        return sum(cost.parameters for cost in costs(config, 2048))

    assert parameters(name="sliding_global") == 132_082_944
    assert parameters(name="sliding_global", separate_global_projections=True) == 132_082_944 + 21_261_312


def test_costs_of_separate_projections() -> None:
    shared, separate = (
        costs(canine(name="sliding_global", separate_global_projections=own), 256) for own in (False, True)
    )
    more = sum(cost.multiply_accumulates for cost in separate) - sum(
        cost.multiply_accumulates for cost in shared
    )
    assert more == 2 * (2 * 64 + 1) * 16 * 16


def test_every_layer_has_its_own_window() -> None:
    config = canine(name="sliding_global", one_sided_window=[8, 32], dilation=[1, 2])
    assert build(ModelConfig, to_mapping(config), source="test") == config
    layers: list[Any] = list(config.build().trunk.layers)
    assert [(layer.core.window, layer.core.dilation) for layer in layers] == [(8, 1), (32, 2)]


def test_problems() -> None:
    wrong = {"one_sided_window": [8, 8, 8], "separate_global_projections": True, "global_units": 0}
    problems = check(canine(name="sliding_global", **wrong))
    assert problems[0].startswith("model.trunk.attention.one_sided_window: 3 values for 2 layers")
    assert problems[1].startswith("model.trunk.attention.separate_global_projections: ")
    layer = {"name": "multi_scale", "head_width": 4}
    attention = {"name": "sliding_global", "separate_global_projections": True}
    config = build(TrunkConfig, {"layer": layer, "attention": attention}, source="test")
    assert "model.trunk.layer.head_width" in "; ".join(config.check(None))
    with pytest.raises(UserError, match="one_sided_window"):
        canine(name="sliding_global", one_sided_window=0)


POSITIONS = Slot("tokenfree.train.model.positions", "none").names()


@pytest.mark.parametrize("segments", ["none", "per_head"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_position_codes_and_segments_on_visible_pairs(
    positions: str, segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks as with all pairs at once, for which `test_equals_loops` vouches."""
    attention = {"name": "sliding_global", "one_sided_window": 3, "dilation": [1, 2], "global_units": 4}
    mapping = {"layers": 2, "heads": 4, "attention": attention, "positions": positions, "segments": segments}
    config = build(TrunkConfig, mapping, source="test")
    assert list(config.check(120)) == []
    torch.manual_seed(0)
    trunk = Trunk(config, DIMENSIONS).double()
    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.normal_(0, 0.3)
    x = units(2, 120).requires_grad_()
    valid = torch.arange(120) < torch.tensor([[120], [50]])
    segment = (torch.arange(120) > torch.tensor([[60], [20]])).long()
    marked = torch.arange(120) == torch.tensor([[9], [33]])
    results = []
    for _ in range(2):
        output = trunk(x, valid, segment, marked)
        results.append([output, *torch.autograd.grad((output**3).sum(), [x, *trunk.parameters()])])
        monkeypatch.setattr(
            SlidingGlobalAttention, "_banded", lambda self, heads, chosen, _: self._dense(heads, chosen)
        )
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)
