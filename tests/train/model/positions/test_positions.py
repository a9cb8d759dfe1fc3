"""Every position code with every pattern against loops over pairs, and what holds for all of them."""

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.t5.modeling_t5 import T5Attention

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.model.attention.full import FullAttention
from tokenfree.train.model.attention.multi_scale import resolve_width
from tokenfree.train.model.common.attention import Heads
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import Encoder, ModelConfig, Trunk, check
from tokenfree.train.model.positions.none import NoPositions
from tokenfree.train.model.positions.t5 import bucket
from tokenfree.train.model.segments.none import NoSegments

DIMENSIONS = Dimensions(width=16, heads=4, inner_width=12, dropout=0.0, activation="gelu_tanh")
LAYERS = 2
MAX_UNITS = 80
SCALES = (1, 3, 9, "N/4")

CODES: dict[str, dict[str, Any]] = {
    **{
        f"{name}-{sharing}": {"name": name, "sharing": sharing, "max_units": MAX_UNITS}
        for name in ("diet_abs", "diet_rel")
        for sharing in ("none", "head_wise", "layer_wise")
    },
    "diet_abs-rank-scale": {"name": "diet_abs", "rank": 7, "scale": "width", "max_units": MAX_UNITS},
    "t5": {"name": "t5"},
    "t5-none": {"name": "t5", "sharing": "none", "buckets": 16, "max_distance": 40},
    "shaw": {"name": "shaw", "clip": 4},
    "shaw-values": {"name": "shaw", "clip": 100, "values": True},
    "shaw-values-none": {"name": "shaw", "clip": 3, "values": True, "sharing": "none"},
    "tupe": {"name": "tupe", "max_units": MAX_UNITS},
    "tupe-absolute": {"name": "tupe", "relative": False, "untie_cls": False, "max_units": MAX_UNITS},
    "none": {"name": "none"},
}
PATTERNS: dict[str, dict[str, Any]] = {
    "full": {"name": "full"},
    "multi_scale": {"name": "multi_scale", "alpha": 0.0, "scales": list(SCALES)},
    "sliding_global": {"name": "sliding_global", "one_sided_window": 5, "global_units": 1},
}
PAIRS = [
    (code, pattern)
    for code in CODES
    for pattern in PATTERNS
    if not (CODES[code].get("values") and pattern == "sliding_global")  # not defined; test_problems tells
]


def trunk_of(code: str, pattern: str = "full", segments: str = "none", **options: Any) -> Trunk:
    """In float64, with parameters large enough for every path to show."""
    torch.manual_seed(0)
    mapping = {"layers": LAYERS, "heads": 4, "positions": CODES[code], "attention": PATTERNS[pattern]}
    config = build(TrunkConfig, {**mapping, "segments": segments, **options}, source="test")
    assert list(config.check(MAX_UNITS)) == []
    trunk = Trunk(config, DIMENSIONS).double()
    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.normal_(0, 0.4)
    return trunk


class Reference(FullAttention):
    """Dense attention in one layer, whose biases and added vectors are made pair by pair."""

    def __init__(
        self, trunk: Trunk, layer: int, pattern: str, lengths: list[int], segments: Tensor | None
    ) -> None:
        super().__init__(0.0)
        self.layer, self.pattern, self.lengths, self.segments = layer, pattern, lengths, segments
        self.positions: Any = trunk.positions
        self.segment_code: Any = trunk.segments

    def forward(self, heads: Heads) -> Tensor:
        q, k, v = heads[:3]
        code = self.positions
        is_shaw = type(code).__name__ == "Shaw"
        self.num_units, width = q.shape[2:]
        logits = q @ k.transpose(-2, -1) / width**0.5 * getattr(code, "query_factor", 1.0)
        if is_shaw:
            logits = logits + torch.einsum("bhie,hije->bhij", q, self._vectors(code.keys_LHOE)) / width**0.5
        else:
            logits = self._with_positions(logits)
        if self.segments is not None:
            table = self._own(self.segment_code.table_LHSS)
            logits = logits + torch.stack([table[:, row[:, None], row] for row in self.segments])
        seen = visible(self.pattern, tuple(self.lengths), self.num_units)
        weights = logits.masked_fill(~seen, -torch.inf).softmax(dim=-1)
        context = weights @ v
        if is_shaw and code.values_LHOE is not None:
            context = context + torch.einsum("bhij,hije->bhie", weights, self._vectors(code.values_LHOE))
        return context

    def _with_positions(self, logits: Tensor) -> Tensor:
        code = self.positions
        match type(code).__name__:
            case "DietAbs":
                queries, keys = self._own(code.queries_LHUR).unbind(1), self._own(code.keys_LHKR).unbind(1)
                return logits + self._pairs(lambda i, j: (queries[i] * keys[j]).sum(-1))
            case "DietRel":
                table = self._own(code.by_offset_LHO)
                return logits + self._pairs(lambda i, j: table[:, MAX_UNITS - 1 + j - i])
            case "T5":
                table, farthest = self._own(code.by_bucket_LHN), self.num_units
                offsets = torch.arange(-farthest, farthest)
                bins = T5Attention._relative_position_bucket(
                    offsets, True, table.shape[1], code.max_distance
                ).tolist()
                return logits + self._pairs(lambda i, j: table[:, bins[j - i + farthest]])
            case "Tupe":
                queries, keys = (code.table.weight @ x.weight.T for x in (code.query, code.key))
                each = queries.view(-1, 4, 4).unbind(0), keys.view(-1, 4, 4).unbind(0)
                return logits / 2**0.5 + self._pairs(lambda i, j: self._tupe(*each, i, j))
            case _:
                return logits

    def _pairs(self, of_pair: Callable[[int, int], Tensor]) -> Tensor:
        """[H, U, U] from a function that gives [H] for a query and a key."""
        places = range(self.num_units)
        return torch.stack([torch.stack([of_pair(i, j) for j in places], dim=-1) for i in places], dim=-2)

    def _vectors(self, table: Tensor) -> Tensor:
        """[H, U, U, E]: Shaw's vector for each pair."""
        own, places, clip = self._own(table).unbind(1), range(self.num_units), self.positions.clip
        rows = [
            torch.stack([own[clip + max(-clip, min(clip, j - i))] for j in places], dim=1) for i in places
        ]
        return torch.stack(rows, dim=1)

    def _own(self, table: Tensor) -> Tensor:
        """The parameters of this layer, for each of four heads."""
        own = table[self.layer if len(table) > 1 else 0]
        return own if len(own) == 4 else torch.cat([own] * 4)

    def _tupe(self, queries: Sequence[Tensor], keys: Sequence[Tensor], i: int, j: int) -> Tensor:
        code = self.positions
        if code.thetas_2H is not None and 0 in (i, j):
            return code.thetas_2H[0 if i == 0 else 1]
        score = (queries[i] * keys[j]).sum(-1) / 8**0.5
        return score if code.by_offset_HO is None else score + code.by_offset_HO[:, MAX_UNITS - 1 + j - i]


@functools.cache
def visible(pattern: str, lengths: tuple[int, ...], num_units: int) -> Tensor:
    """[B, 4, U, U]: which units see which, pair by pair."""

    def sees(length: int, scale: int | str, i: int, j: int) -> bool:
        if pattern == "full":
            return j < length
        if pattern == "sliding_global":
            return j < length and (abs(i - j) <= 5 or 0 in (i, j))
        reach = ((scale if isinstance(scale, int) else resolve_width(scale, length)) - 1) // 2
        return i == j or (j < length and abs(i - j) <= reach)

    units = range(num_units)
    return torch.tensor(
        [
            [[[sees(length, scale, i, j) for j in units] for i in units] for scale in SCALES]
            for length in lengths
        ]
    )


def run(
    trunk: Trunk, parameters: Sequence[Tensor], x: Tensor, valid: Tensor, segments: Tensor | None
) -> list[Tensor]:
    output = trunk(x, valid, segments)
    weights = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).view_as(output) ** 3
    gradients = torch.autograd.grad((output * weights).sum(), [x, *parameters], allow_unused=True)
    wanted = zip([x, *parameters], gradients, strict=True)
    return [output, *(torch.zeros_like(of) if gradient is None else gradient for of, gradient in wanted)]


def compare(code: str, pattern: str, lengths: list[int], padding: int, segmented: bool, seed: int) -> None:
    trunk = trunk_of(code, pattern, "per_head" if segmented else "none")
    torch.manual_seed(seed)
    size = max(lengths) + padding
    valid = torch.arange(size) < torch.tensor(lengths)[:, None]
    segments = torch.randint(2, (len(lengths), size)) if segmented else None
    x = torch.randn(len(lengths), size, 16, dtype=torch.float64, requires_grad=True)
    parameters = list(trunk.parameters())
    fast = run(trunk, parameters, x, valid, segments)
    slow_trunk = copy.copy(trunk)
    slow_trunk._modules = dict(trunk._modules)
    cores = [Reference(trunk, index, pattern, lengths, segments) for index in range(LAYERS)]
    slow_trunk.positions, slow_trunk.segments = NoPositions(), NoSegments()
    for layer, core in zip(trunk.layers, cores, strict=True):
        layer.core = core
    slow = run(slow_trunk, parameters, x, valid, segments)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("code", "pattern"), PAIRS)
def test_codes_equal_loops(code: str, pattern: str) -> None:
    compare(code, pattern, [50, 31], 1, segmented=True, seed=0)  # long enough for blocks


@given(
    pair=st.sampled_from(PAIRS),
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=2),
    padding=st.integers(0, 6),
    segmented=st.booleans(),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_codes_equal_loops_at_any_size(
    pair: tuple[str, str], lengths: list[int], padding: int, segmented: bool, seed: int
) -> None:
    compare(*pair, lengths, padding, segmented, seed)


@pytest.mark.parametrize("distance", [(32, 128), (32, 64), (8, 20), (64, 500)])
def test_buckets_are_those_of_transformers(distance: tuple[int, int]) -> None:
    offsets = torch.arange(-3000, 3001)
    theirs = T5Attention._relative_position_bucket(offsets, True, *distance)
    assert torch.equal(bucket(offsets, *distance), theirs)


def test_buckets_of_the_document() -> None:
    offsets = [0, -1, 1, -7, -8, 8, -128, -5000, 128, 5000]
    assert bucket(torch.tensor(offsets), 32, 128).tolist() == [0, 1, 17, 7, 8, 24, 15, 15, 31, 31]


@pytest.mark.parametrize(("code", "pattern"), PAIRS)
def test_padding_changes_nothing(code: str, pattern: str) -> None:
    trunk = trunk_of(code, pattern, "per_head")
    x, segments = torch.randn(1, 50, 16, dtype=torch.float64), torch.randint(2, (1, 50))
    longer = torch.cat([x, torch.randn(1, 27, 16, dtype=torch.float64)], dim=1)
    more_segments = torch.cat([segments, torch.ones(1, 27, dtype=torch.int64)], dim=1)
    one = trunk(x, torch.ones(1, 50, dtype=torch.bool), segments)
    two = trunk(longer, torch.arange(77)[None] < 50, more_segments)
    torch.testing.assert_close(two[:, :50], one, atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("code", CODES)
def test_no_nan_for_rows_of_padding(code: str, dtype: torch.dtype) -> None:
    trunk = trunk_of(code, "multi_scale", "per_head").to(dtype)
    x = torch.randn(2, 70, 16, dtype=dtype, requires_grad=True)
    output = trunk(x, torch.arange(70) < torch.tensor([[70], [1]]), torch.zeros(2, 70, dtype=torch.int64))
    assert output.isfinite().all()
    (output.float() * torch.linspace(-1, 1, 16) ** 3).sum().backward()
    assert all(p.grad.isfinite().all() for p in [x, *trunk.parameters()] if p.grad is not None)


def encoder_of(code: str, **trunk: Any) -> Encoder:
    mapping = {
        "width": 16,
        "embedder": {"buckets": 64, "hashes": 4, "max_characters": 64, "positions": "none", "segments": 0},
        "downsampler": "identity",
        "upsampler": "identity",
        "trunk": {"layers": LAYERS, "heads": 4, "positions": CODES[code], "segments": "per_head", **trunk},
    }
    torch.manual_seed(0)
    return build(ModelConfig, mapping, source="test").build()


@pytest.mark.parametrize("code", CODES)
def test_training_with_dropout_reaches_every_parameter(code: str) -> None:
    """The explicit path of attention, with bfloat16 as well; segments come from the characters."""
    encoder = encoder_of(code).train()
    codepoints, segments = torch.randint(32, 999, (2, 20)), torch.arange(20).expand(2, -1) // 10
    for dtype in (torch.float32, torch.bfloat16):
        encoder.zero_grad()
        with torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
            output = encoder(codepoints, torch.ones(2, 20, dtype=torch.bool), segments)
        (output.characters.float() * torch.linspace(-1, 1, 16) ** 3).sum().backward()
        for name, parameter in encoder.trunk.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            if "positions" in name or "segments" in name:
                assert parameter.grad.abs().max() > 0, name


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    """What was compiled for another model makes the compiler try dynamic shapes, which takes far longer."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.slow
@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.parametrize(
    ("code", "pattern"),
    [
        ("diet_abs-layer_wise", "full"),
        pytest.param("tupe", "full", marks=pytest.mark.slow),
        ("shaw-values", "full"),
        pytest.param("diet_rel-none", "multi_scale", marks=pytest.mark.slow),
    ],
)
def test_compiles_without_graph_breaks(code: str, pattern: str) -> None:
    encoder = encoder_of(code, attention=PATTERNS[pattern]).eval()
    compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
    batch = (
        torch.randint(32, 999, (2, 60)),
        torch.ones(2, 60, dtype=torch.bool),
        torch.arange(60).expand(2, -1) // 30,
    )
    torch.testing.assert_close(compiled(*batch).characters, encoder(*batch).characters, atol=1e-5, rtol=0)
    compiled(*batch).characters.square().sum().backward()


def problems(length: int | None = None, **trunk: Any) -> list[str]:
    mapping = {"downsampler": "identity", "trunk": {"layers": 2, **trunk}}
    return check(build(ModelConfig, mapping, source="test"), length)


def test_problems() -> None:
    assert problems(600, positions="diet_abs") == [
        "model.trunk.positions.max_units: 512 is less than the units of an example, 600"
    ]
    assert problems(512, positions="diet_rel") == []
    (line,) = problems(positions={"name": "shaw", "values": True}, attention="sliding_global")
    assert line.startswith(
        "model.trunk.positions.values: defined with the attention full and multi_scale only"
    )
    separate = {"name": "sliding_global", "separate_global_projections": True}
    for positions in ("tupe", "shaw", {"name": "diet_abs", "scale": "width"}):
        (line,) = problems(positions=positions, attention=separate)
        assert "separate_global_projections" in line
    assert problems(positions="diet_abs", attention=separate) == []
    for distance in (2, 8):
        (line,) = problems(positions={"name": "t5", "max_distance": distance})
        assert line.startswith(f"model.trunk.positions.max_distance: {distance}")


@pytest.mark.parametrize("code", ["diet_abs", "diet_rel", "tupe"])
def test_more_units_than_the_table_has_rows(code: str) -> None:
    trunk = Trunk(
        build(TrunkConfig, {"layers": 1, "positions": {"name": code, "max_units": 8}}, source="test"),
        DIMENSIONS,
    )
    with pytest.raises(UserError, match=r"9 units are more than model\.trunk\.positions\.max_units, 8"):
        trunk(torch.zeros(1, 9, 16), torch.ones(1, 9, dtype=torch.bool))
