"""What the DIET paper says of its codes: parameters, ranks, gradients, shifts, sharing."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tokenfree.core.settings import build
from tokenfree.train.model.common.attention import FactorBias, OffsetBias
from tokenfree.train.model.common.basic import Dimensions, count_parameters
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.costs import costs
from tokenfree.train.model.encoder import Encoder, ModelConfig, Trunk

LAYER = 7_087_872
POOLER = 590_592
MLM_TRANSFORM = 592_128
BASE = Dimensions(width=768, heads=12, inner_width=3072, dropout=0.1, activation="gelu")
SMALL = Dimensions(width=32, heads=4, inner_width=32, dropout=0.0, activation="gelu")
EVERYTHING = slice(None)


def trunk_of(dimensions: Dimensions, device: str = "cpu", **options: Any) -> Trunk:
    torch.manual_seed(0)
    config = build(TrunkConfig, {"heads": dimensions.heads, "layers": 2, **options}, source="test")
    with torch.device(device):
        return Trunk(config, dimensions)


def scale_up(trunk: Trunk) -> Trunk:
    """In float64, with position parameters as large as those of the content."""
    trunk.double()
    for name, parameter in trunk.named_parameters():
        if "positions" in name or "segments" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    return trunk


def biases_of(trunk: Trunk, num_units: int) -> Any:
    biases = trunk.positions(torch.zeros(1, num_units, 1), torch.ones(1, num_units, dtype=torch.bool))
    return biases * len(trunk.layers) if len(biases) == 1 else biases


@pytest.mark.parametrize(
    ("positions", "input_positions", "english", "multilingual"),
    [
        ({"name": "none"}, 512, 110_104_890, 178_913_472),
        ({"name": "none"}, 0, 109_711_674, 178_520_256),
        ({"name": "diet_rel"}, 0, 109_858_986, 178_667_568),
        ({"name": "diet_rel", "sharing": "layer_wise"}, 0, 109_723_950, 178_532_532),
        ({"name": "diet_abs", "rank": 128, "sharing": "none"}, 0, 128_586_042, 197_394_624),
        ({"name": "diet_abs", "rank": 128}, 0, 111_284_538, 180_093_120),
        ({"name": "shaw", "clip": 1023, "values": True}, 0, 112_855_866, 181_664_448),
    ],
)
def test_parameters_of_table_6(
    positions: dict[str, Any], input_positions: int, english: int, multilingual: int
) -> None:
    """The stack is counted as built; the rest of BERT base with its tied head by hand."""
    stack = count_parameters(trunk_of(BASE, "meta", layers=12, positions=positions))
    for vocabulary, total in ((30_522, english), (120_000, multilingual)):
        embeddings = (vocabulary + input_positions + 2 + 2) * 768
        assert embeddings + stack + POOLER + MLM_TRANSFORM + vocabulary == total


@pytest.mark.parametrize(
    ("sharing", "own"),
    [("none", 12 * 12), ("head_wise", 12), ("layer_wise", 12), ("layer_wise_segments", 12)],
)
def test_segments_are_shared_like_positions(sharing: str, own: int) -> None:
    positions = {"name": "diet_rel", "sharing": sharing.removesuffix("_segments")}
    segments = {"name": "per_head", "sharing": "layer_wise"} if sharing.endswith("_segments") else "per_head"
    trunk = trunk_of(BASE, "meta", layers=12, positions=positions, segments=segments)
    assert count_parameters(trunk.positions) == 1023 * own
    assert count_parameters(trunk.segments) == 4 * own  # 576 where nothing is shared
    assert count_parameters(trunk) == 12 * LAYER + 1027 * own


def test_costs() -> None:
    def parts(**trunk: Any) -> dict[str, tuple[int, int]]:
        mapping = {"downsampler": "identity", "upsampler": "identity", "trunk": {"layers": 3, **trunk}}
        config = build(ModelConfig, mapping, source="test")
        return {cost.name: (cost.parameters, cost.multiply_accumulates) for cost in costs(config, 256)}

    name, square = "positions + segments", 256**2
    plain = parts()
    assert name not in plain
    for positions, wanted in (
        ({"name": "diet_abs"}, (2 * 12 * 512 * 64, 12 * square * 64)),
        ({"name": "diet_abs", "rank": 10, "sharing": "none"}, (3 * 2 * 12 * 512 * 10, 3 * 12 * square * 10)),
        ({"name": "diet_abs", "rank": 10, "sharing": "head_wise"}, (3 * 2 * 512 * 10, 3 * square * 10)),
        ({"name": "diet_rel", "sharing": "layer_wise"}, (12 * 1023, 0)),
        ({"name": "t5"}, (12 * 32, 0)),
        ({"name": "shaw", "clip": 5}, (3 * 11 * 64, 3 * 12 * square * 64)),
        ({"name": "shaw", "clip": 5, "values": True}, (2 * 3 * 11 * 64, 2 * 3 * 12 * square * 64)),
        ({"name": "tupe"}, ((512 + 2 * 768) * 768 + 12 * 1023 + 24, 2 * 256 * 768**2 + square * 768)),
    ):
        found = parts(positions=positions)
        assert found[name] == wanted, positions
        assert found["deep stack"] == plain["deep stack"]
    windows = {"name": "multi_scale", "scales": [3]}
    pairs = 12 * (3 * 256 - 2)
    assert (
        parts(positions={"name": "diet_abs", "sharing": "none"}, attention=windows)[name][1] == 3 * pairs * 64
    )


def test_initial_logits_are_nearly_those_of_content() -> None:
    """P is normal with std 0.02, so that its products begin near 0; scalars begin at 0."""
    trunk = trunk_of(BASE, layers=1, positions="diet_abs")
    bias = biases_of(trunk, 512)[0].dense(EVERYTHING)
    assert bias.shape == (12, 512, 512)
    assert bias.std().item() == pytest.approx(0.02**2 * 64**0.5, rel=0.02)
    for positions in ("diet_rel", "t5"):
        assert biases_of(trunk_of(SMALL, positions=positions), 9)[0].dense(EVERYTHING).abs().max() == 0
    segments: Any = trunk_of(SMALL, segments="per_head").segments
    assert segments.table_LHSS.abs().max() == 0


@pytest.mark.parametrize("name", ["diet_abs", "diet_rel", "t5"])
def test_sharing_modes(name: str) -> None:
    for sharing in ("none", "head_wise", "layer_wise"):
        trunk = scale_up(trunk_of(SMALL, positions={"name": name, "sharing": sharing}))
        first, second = biases_of(trunk, 9)
        assert (first is second) == (sharing == "layer_wise")  # the same object computes once
        dense = [bias.dense(EVERYTHING) for bias in (first, second)]
        assert dense[0].shape == (4, 9, 9)
        assert torch.equal(dense[0], dense[1]) == (sharing == "layer_wise")
        assert torch.equal(dense[0][0], dense[0][1]) == (sharing == "head_wise")


def test_the_product_is_computed_once_a_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    dense = FactorBias.dense
    monkeypatch.setattr(FactorBias, "dense", lambda self, heads: calls.append(heads) or dense(self, heads))
    for sharing, times in (("layer_wise", 1), ("none", 6)):
        calls.clear()
        trunk = trunk_of(SMALL, layers=6, positions={"name": "diet_abs", "sharing": sharing})
        trunk(torch.randn(2, 9, 32), torch.ones(2, 9, dtype=torch.bool))
        assert len(calls) == times


def logits_of(x: Tensor, w_q: Tensor, w_k: Tensor) -> Tensor:
    return x @ w_q @ w_k.T @ x.T


def test_ranks() -> None:
    """At the input, logits have at most the rank of a head; DIET adds its own."""
    n, d, d_h, d_p = 40, 32, 8, 16
    x, p = torch.randn(n, d, dtype=torch.float64), torch.randn(n, d, dtype=torch.float64)
    w_q, w_k = torch.randn(d, d_h, dtype=torch.float64), torch.randn(d, d_h, dtype=torch.float64)
    rank = torch.linalg.matrix_rank
    assert rank(logits_of(x + p, w_q, w_k)) == d_h

    trunk = scale_up(trunk_of(SMALL, positions={"name": "diet_abs", "rank": d_p, "max_units": n}))
    bias = biases_of(trunk, n)[0].dense(EVERYTHING)[1]
    assert rank(bias) == d_p
    assert rank(logits_of(x, w_q, w_k) + bias) == d_h + d_p
    same = torch.randn(n, d_p, dtype=torch.float64)
    assert rank(logits_of(x, w_q, w_k) + same @ same.T) == d_h + d_p  # with P_Q = P_K as well
    first, last = torch.eye(n, d, dtype=torch.float64), torch.eye(n, dtype=torch.float64)[:, n - d_p :]
    w = torch.eye(d, d_h, dtype=torch.float64)
    assert rank(logits_of(first, w, w) + last @ last.T) == d_h + d_p

    trunk = scale_up(trunk_of(SMALL, positions={"name": "diet_rel", "max_units": n}))
    assert rank(biases_of(trunk, n)[0].dense(EVERYTHING)[0]) == n
    segments: Any = scale_up(trunk_of(SMALL, segments="per_head")).segments
    of_segments = segments((torch.arange(n)[None] >= 25).long())[0].dense(EVERYTHING)[0, 0]
    assert rank(of_segments) == 2
    assert rank(logits_of(x, w_q, w_k) + bias + of_segments) == d_h + d_p + 2
    any_bias = torch.randn(n, n, dtype=torch.float64)
    whole = FactorBias(any_bias[None], torch.eye(n, dtype=torch.float64)[None], 1)
    assert torch.equal(whole.dense(EVERYTHING)[0], any_bias)  # d_p = n expresses anything


def small_encoder(**options: Any) -> Encoder:
    mapping = {
        "width": 32,
        "embedder": {"buckets": 64, "max_characters": 16},
        "downsampler": "identity",
        "upsampler": "identity",
        "trunk": {"layers": 2, "heads": 4, **options},
    }
    torch.manual_seed(0)
    return build(ModelConfig, mapping, source="test").build().double()


def test_gradients_of_input_positions_are_those_of_words() -> None:
    """dL/dP is the sum over the batch of dL/dX; the gradient of P_Q is dA P_K, and another."""
    encoder = small_encoder(positions={"name": "diet_abs", "rank": 32, "sharing": "head_wise"})
    kept: dict[str, Tensor] = {}
    encoder.embedder.table.register_forward_hook(lambda module, inputs, output: kept.__setitem__("x", output))
    positions: Any = encoder.trunk.positions

    def keep_bias(module: Any, inputs: Any, output: Any) -> None:
        kept["bias"] = output[0].dense(EVERYTHING)
        output[0].dense = lambda *arguments: kept["bias"]

    positions.register_forward_hook(keep_bias)
    output = encoder(torch.randint(32, 999, (3, 11)), torch.ones(3, 11, dtype=torch.bool))
    wanted = [kept["x"], encoder.embedder.positions.weight, positions.queries_LHUR, kept["bias"]]
    loss = (output.characters * torch.linspace(-1, 1, 32) ** 3).sum()
    of_x, of_p, of_queries, of_bias = torch.autograd.grad(loss, wanted)
    torch.testing.assert_close(of_p[:11], of_x.sum(dim=0), atol=1e-15, rtol=1e-12)
    from_bias = of_bias.sum(dim=0) @ positions.keys_LHKR[0, 0, :11]
    torch.testing.assert_close(of_queries[0, 0, :11], from_bias)
    assert (from_bias - of_p[:11]).abs().max() > 1e-6


def test_order_is_told_by_the_bias_only() -> None:
    x, valid = torch.randn(2, 12, 32, dtype=torch.float64), torch.ones(2, 12, dtype=torch.bool)
    order = torch.randperm(12)
    for positions in ("diet_abs", "diet_rel", "t5", "shaw", "tupe"):
        trunk = trunk_of(SMALL, positions={"name": positions}).double()
        for parameter in trunk.positions.parameters():
            torch.nn.init.zeros_(parameter)
        torch.testing.assert_close(trunk(x[:, order], valid), trunk(x, valid)[:, order])
        scale_up(trunk)
        assert (trunk(x[:, order], valid) - trunk(x, valid)[:, order]).abs().max() > 1e-3


def test_a_constant_bias_changes_nothing() -> None:
    x, valid = torch.randn(2, 12, 32, dtype=torch.float64), torch.ones(2, 12, dtype=torch.bool)
    trunk = scale_up(trunk_of(SMALL, positions="diet_rel"))
    before, relative = trunk(x, valid), trunk.positions
    with torch.no_grad():
        relative.by_offset_LHO += torch.randn(2, 4, 1)
    torch.testing.assert_close(trunk(x, valid), before)
    absolute = scale_up(trunk_of(SMALL, positions="diet_abs"))
    code = absolute.positions
    with torch.no_grad():  # a column of ones in P_K adds a constant to each row
        code.keys_LHKR[..., 0] = 1
        before = absolute(x, valid)
        code.queries_LHUR[..., 0] += torch.randn(1, 4, 512)
    torch.testing.assert_close(absolute(x, valid), before)


def shift(bias: Tensor) -> float:
    """The paper's shifting pattern: how far the bias of a pair is from that of the next along the diagonal."""
    return ((bias[..., 1:, 1:] - bias[..., :-1, :-1]).abs().mean() / bias.std()).item()


def test_relative_codes_shift_and_absolute_ones_need_not() -> None:
    def dense(positions: str) -> Tensor:
        return biases_of(scale_up(trunk_of(SMALL, positions=positions)), 30)[0].dense(EVERYTHING)

    assert shift(dense("diet_rel")) == 0
    assert shift(dense("t5")) == 0
    assert shift(dense("diet_abs")) > 0.5
    untied = dense("tupe")
    assert (untied[:, 0] == untied[:, 0, :1]).all()  # CLS as a query
    assert (untied[:, 1:, 0] == untied[:, 1:2, 0]).all()  # CLS as a key
    assert (untied[:, 0, 0] != untied[:, 1, 0]).all()


@pytest.mark.parametrize("positions", ["diet_abs", "diet_rel", "t5", "tupe"])
def test_length_slices_and_pairs_agree(positions: str) -> None:
    """A bias of fewer units is a corner of that of more, and some pairs are entries of the whole."""
    trunk = scale_up(trunk_of(SMALL, positions=positions))
    long, short = biases_of(trunk, 30)[1], biases_of(trunk, 11)[1]
    whole = long.dense(EVERYTHING)
    torch.testing.assert_close(short.dense(EVERYTHING), whole[:, :11, :11])
    torch.testing.assert_close(long.dense(slice(1, 3)), whole[1:3])
    queries, keys = torch.randint(30, (5, 3, 1)), torch.randint(30, (5, 1, 4))
    torch.testing.assert_close(long(slice(1, 3), queries, keys), whole[1:3, queries, keys])
    one_by_one = torch.randint(30, (2, 7)), torch.randint(30, (2, 7))
    torch.testing.assert_close(long(EVERYTHING, *one_by_one), whole[:, one_by_one[0], one_by_one[1]])


def test_gradient_of_the_dense_relative_bias_is_that_of_pairs() -> None:
    by_offset = torch.randn(3, 13, dtype=torch.float64, requires_grad=True)
    bias = OffsetBias(by_offset, 3)
    assert torch.autograd.gradcheck(lambda table: OffsetBias(table, 3).dense(EVERYTHING), by_offset)
    weights, places = torch.randn(3, 7, 7, dtype=torch.float64), torch.arange(7)
    pairs = bias(EVERYTHING, places[:, None], places)
    torch.testing.assert_close(bias.dense(EVERYTHING), pairs)
    one, other = (
        torch.autograd.grad((x * weights).sum(), by_offset)[0] for x in (bias.dense(EVERYTHING), pairs)
    )
    torch.testing.assert_close(one, other)


def test_segments() -> None:
    """A table of zeros is no table; swapped segments are a swapped table; one segment alone is no segment."""
    x, valid = torch.randn(2, 12, 32, dtype=torch.float64), torch.ones(2, 12, dtype=torch.bool)
    segments = (torch.arange(12) >= torch.tensor([[5], [8]])).long()
    plain, trunk = trunk_of(SMALL).double(), trunk_of(SMALL, segments="per_head").double()
    trunk.load_state_dict({**trunk.state_dict(), **plain.state_dict()})
    torch.testing.assert_close(trunk(x, valid, segments), plain(x, valid))
    scale_up(trunk)
    told = trunk(x, valid, segments)
    assert (told - plain(x, valid)).abs().max() > 1e-3
    torch.testing.assert_close(trunk(x, valid, torch.ones_like(segments)), plain(x, valid))
    torch.testing.assert_close(trunk(x, valid), plain(x, valid))
    table: Any = trunk.segments
    with torch.no_grad():
        table.table_LHSS.copy_(table.table_LHSS.flip(-1, -2))
    torch.testing.assert_close(trunk(x, valid, 1 - segments), told)
    with pytest.raises(IndexError):
        trunk(x, valid, segments + 1)
