"""Every position code and the segments, logit by logit from their papers' equations, in two whole layers."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.train.model.encoder.test_equations import dense, feed_forward, norm, shown
from tokenfree.core.settings import build
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import Trunk

HEADS, E, UNITS, MAX_UNITS = 3, 4, 8, 61
SEGMENTS = torch.tensor([0, 0, 0, 1, 1, 0, 1, 1] * 7)


def trunk_of(**options: Any) -> Any:
    fields = {"layers": 2, "heads": HEADS, **options}
    torch.manual_seed(0)
    return shown(
        Trunk(build(TrunkConfig, fields, source="test"), Dimensions(12, HEADS, 20, 0.1, "gelu_tanh"))
    )


def own(table: Tensor, layer: int, head: int) -> Tensor:
    """Of [L or 1, H or 1, ...] what a layer and head has."""
    return table[min(layer, len(table) - 1), min(head, table.shape[1] - 1)]


def bucket(offset: int, num_buckets: int, farthest: int) -> int:
    """T5's rule for key - query."""
    half, a = num_buckets // 2, abs(offset)
    exact = half // 2
    base = half if offset > 0 else 0
    if a < exact:
        return base + a
    return base + min(
        half - 1, exact + math.floor(math.log(a / exact) / math.log(farthest / exact) * (half - exact))
    )


def logit(
    code: dict[str, Any], trunk: Any, layer: int, head: int, pair: tuple[int, int], q: Tensor, k: Tensor
) -> Any:
    """Of query i and key j, from their vectors."""
    module, name, (i, j) = trunk.positions, code["name"], pair
    content = q @ k / math.sqrt(E)
    if code.get("scale") == "width":
        content = q @ k / math.sqrt(HEADS * E)
    if name == "diet_abs":
        return content + own(module.queries_LHUR, layer, head)[i] @ own(module.keys_LHKR, layer, head)[j]
    if name == "diet_rel":
        return content + own(module.by_offset_LHO, layer, head)[j - i + MAX_UNITS - 1]
    if name == "t5":
        return content + own(module.by_bucket_LHN, layer, head)[bucket(j - i, 8, 6)]
    if name == "shaw":
        return q @ (k + own(module.keys_LHOE, layer, head)[clipped(code, i, j)]) / math.sqrt(E)
    if name == "tupe":
        if code.get("untie_cls", True) and 0 in pair:
            return q @ k / math.sqrt(2 * E) + module.thetas_2H[0 if i == 0 else 1, head]
        of_head = slice(head * E, head * E + E)
        p_i, p_j = (
            (each.weight @ module.table.weight[at])[of_head]
            for each, at in ((module.query, i), (module.key, j))
        )
        relative = module.by_offset_HO[head, j - i + MAX_UNITS - 1] if code.get("relative", True) else 0
        return (q @ k + p_i @ p_j) / math.sqrt(2 * E) + relative
    return content


def clipped(code: dict[str, Any], i: int, j: int) -> int:
    return min(max(j - i, -code["clip"]), code["clip"]) + code["clip"]


def by_hand(
    code: dict[str, Any],
    trunk: Any,
    x: Tensor,
    has_segments: bool,
    reach: int = MAX_UNITS,
    num_global: int = 0,
) -> Tensor:
    """The whole stack, [U, D], whose units see others up to a distance, and the first ones all others."""
    for number, layer in enumerate(trunk.layers):
        q, k, v = (dense(each, x).unflatten(-1, (HEADS, E)) for each in (layer.query, layer.key, layer.value))
        rows = []
        for i in range(len(x)):
            heads, seen = [], [j for j in range(len(x)) if abs(i - j) <= reach or min(i, j) < num_global]
            for head in range(HEADS):
                logits = [logit(code, trunk, number, head, (i, j), q[i, head], k[j, head]) for j in seen]
                if has_segments:
                    table = own(trunk.segments.table_LHSS, number, head)
                    logits = [
                        each + table[SEGMENTS[i], SEGMENTS[j]] for j, each in zip(seen, logits, strict=True)
                    ]
                weights = torch.stack(logits).softmax(0)
                values = [v[j, head] for j in seen]
                if code.get("values"):
                    of_offsets = own(trunk.positions.values_LHOE, number, head)
                    values = [
                        value + of_offsets[clipped(code, i, j)] for j, value in zip(seen, values, strict=True)
                    ]
                heads.append(weights @ torch.stack(values))
            rows.append(torch.cat(heads))
        h = norm(x + 2 * dense(layer.attention_output, torch.stack(rows)), layer.attention_norm)
        x = norm(h + 2 * feed_forward(layer, h), layer.norm)
    return x


SHARING = ("none", "head_wise", "layer_wise")
CODES: list[dict[str, Any]] = [
    {"name": "none"},
    *({"name": "diet_abs", "rank": 2, "max_units": MAX_UNITS, "sharing": sharing} for sharing in SHARING),
    {"name": "diet_abs", "max_units": MAX_UNITS, "scale": "width"},
    *({"name": "diet_rel", "max_units": MAX_UNITS, "sharing": sharing} for sharing in SHARING),
    {"name": "diet_rel", "max_units": MAX_UNITS, "scale": "width"},
    *({"name": "t5", "buckets": 8, "max_distance": 6, "sharing": sharing} for sharing in SHARING),
    *({"name": "shaw", "clip": 3, "sharing": sharing} for sharing in SHARING),
    {"name": "shaw", "clip": 3, "values": True},
    {"name": "shaw", "clip": 3, "values": True, "sharing": "layer_wise"},
    {"name": "tupe", "max_units": MAX_UNITS},
    {"name": "tupe", "max_units": MAX_UNITS, "relative": False},
    {"name": "tupe", "max_units": MAX_UNITS, "untie_cls": False},
]


SEGMENT_CODES: dict[str, Any] = {
    "none": "none",
    **{f"per_head {how}": {"name": "per_head", "sharing": how} for how in SHARING},
}


@pytest.mark.parametrize("segments", SEGMENT_CODES)
@pytest.mark.parametrize("code", CODES, ids=lambda code: "-".join(map(str, code.values())))
def test_position_codes(code: dict[str, Any], segments: str) -> None:
    trunk = trunk_of(positions=code, segments=SEGMENT_CODES[segments])
    x, valid = torch.randn(UNITS, 12, dtype=torch.float64), torch.ones(1, UNITS, dtype=torch.bool)
    expected = by_hand(code, trunk, x, segments != "none")
    torch.testing.assert_close(trunk(x[None], valid, SEGMENTS[None, :UNITS])[0], expected)
    with torch.no_grad():  # in memory that the layers use in turn
        torch.testing.assert_close(trunk(x[None], valid, SEGMENTS[None, :UNITS])[0], expected)


def test_a_stack_of_one_layer() -> None:
    code = {"name": "diet_rel", "max_units": MAX_UNITS}
    trunk = trunk_of(layers=1, positions=code, segments="per_head")
    x, valid = torch.randn(UNITS, 12, dtype=torch.float64), torch.ones(1, UNITS, dtype=torch.bool)
    torch.testing.assert_close(
        trunk(x[None], valid, SEGMENTS[None, :UNITS])[0], by_hand(code, trunk, x, True)
    )


BLOCKS: list[dict[str, Any]] = [
    {"name": "none"},
    {"name": "diet_abs", "rank": 2, "max_units": MAX_UNITS},
    {"name": "diet_rel", "max_units": MAX_UNITS},
    {"name": "shaw", "clip": 1},
    {"name": "tupe", "max_units": MAX_UNITS},
]


@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code["name"])
@pytest.mark.parametrize(
    ("attention", "num_global"), [("multi_scale", 0), ("sliding_global", 0), ("sliding_global", 1)]
)
def test_in_windows_that_are_computed_in_blocks(
    attention: str, num_global: int, code: dict[str, Any]
) -> None:
    """55 units in windows of five: blocks of 16, the last of which is not full."""
    code = {**code, "values": True} if (attention, code["name"]) == ("multi_scale", "shaw") else code
    options = (
        {"scales": [5]} if attention == "multi_scale" else {"one_sided_window": 2, "global_units": num_global}
    )
    trunk = trunk_of(positions=code, segments="per_head", attention={"name": attention, **options})
    x, valid = torch.randn(55, 12, dtype=torch.float64), torch.ones(1, 55, dtype=torch.bool)
    with torch.no_grad():
        found = trunk(x[None], valid, SEGMENTS[None, :55])[0]
        torch.testing.assert_close(found, by_hand(code, trunk, x, True, 2, num_global))
