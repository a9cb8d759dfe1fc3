"""Linformer and DIET-ABS-LIN: the formula, padding, cost, and what is not defined."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.settings import build
from tokenfree.train.model.common.basic import Dimensions, count_parameters
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import ModelConfig, Trunk, check

DIMENSIONS = Dimensions(width=16, heads=4, inner_width=12, dropout=0.0, activation="gelu_tanh")


def trunk_of(**options: Any) -> Trunk:
    torch.manual_seed(0)
    trunk = Trunk(
        build(TrunkConfig, {"layers": 2, "heads": 4, **options}, source="test"), DIMENSIONS
    ).double()
    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.normal_(0, 0.4)
    return trunk


def linformer(projection: int = 5, positions: str = "none", max_units: int = 40) -> Trunk:
    code = (
        {"name": positions} if positions == "none" else {"name": positions, "rank": 3, "max_units": max_units}
    )
    attention = {"name": "linformer", "projection": projection, "max_units": max_units}
    return trunk_of(attention=attention, positions=code)


@given(
    positions=st.sampled_from(["none", "diet_abs"]),
    projection=st.integers(1, 9),
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    padding=st.integers(0, 9),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=25)
def test_formula(positions: str, projection: int, lengths: list[int], padding: int, seed: int) -> None:
    """Output and gradients against loops over heads and examples, with padding."""
    trunk = linformer(projection, positions)
    layer: Any = trunk.layers[0]
    torch.manual_seed(seed)
    size = max(lengths) + padding
    x = torch.randn(len(lengths), size, 16, dtype=torch.float64, requires_grad=True)
    valid = torch.arange(size) < torch.tensor(lengths)[:, None]
    fast = layer(x, valid, trunk._biases(x, valid, None)[0])
    contexts = []
    for b in range(len(lengths)):
        mixed = sum(layer.core.mixtures_KU[:, i, None] * x[b, i] for i in range(lengths[b]))
        q, k, v = layer.query(x[b]), layer.key(mixed), layer.value(mixed)
        heads = []
        for h in range(4):
            part = slice(4 * h, 4 * h + 4)
            logits = q[:, part] @ k[:, part].T / 2
            if positions == "diet_abs":
                code: Any = trunk.positions
                logits = logits + code.queries_LHUR[0, h, :size] @ code.keys_LHKR[0, h].T
            heads.append(logits.softmax(dim=-1) @ v[:, part])
        contexts.append(torch.cat(heads, dim=-1))
    attended = layer.attention_norm(x + layer.attention_output(torch.stack(contexts)))
    inner = torch.nn.functional.gelu(layer.inner(attended), approximate="tanh")
    slow = layer.norm(attended + layer.outer(inner))
    parameters = [x, *layer.parameters(), *trunk.positions.parameters()]
    weights = torch.randn_like(slow)
    for one, other in zip(
        [fast, *torch.autograd.grad((fast * weights).sum(), parameters)],
        [slow, *torch.autograd.grad((slow * weights).sum(), parameters)],
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)


def test_with_as_many_mixtures_as_units_it_is_diet_abs() -> None:
    few, full = (
        linformer(projection=9, positions="diet_abs", max_units=9),
        trunk_of(positions={"name": "diet_abs", "rank": 3, "max_units": 9}),
    )
    with torch.no_grad():
        for layer in few.layers:
            core: Any = layer.core
            core.mixtures_KU.copy_(torch.eye(9))
    full.load_state_dict(
        {name: tensor for name, tensor in few.state_dict().items() if "mixtures" not in name}
    )
    x, valid = torch.randn(2, 9, 16, dtype=torch.float64), torch.ones(2, 9, dtype=torch.bool)
    torch.testing.assert_close(few(x, valid), full(x, valid))


@pytest.mark.parametrize("positions", ["none", "diet_abs"])
def test_padding_changes_nothing(positions: str) -> None:
    trunk = linformer(positions=positions)
    x = torch.randn(1, 20, 16, dtype=torch.float64)
    longer = torch.cat([x, torch.randn(1, 20, 16, dtype=torch.float64)], dim=1)
    one = trunk(x, torch.ones(1, 20, dtype=torch.bool))
    two = trunk(longer, torch.arange(40)[None] < 20)
    torch.testing.assert_close(two[:, :20], one, atol=1e-12, rtol=0)


def test_memory_and_cost_are_linear_in_the_length() -> None:
    long = {"max_units": 1536}
    config = {
        "layers": 1,
        "attention": {"name": "linformer", **long},
        "positions": {"name": "diet_abs", **long},
    }
    trunk = Trunk(build(TrunkConfig, config, source="test"), DIMENSIONS).train()

    def largest(num_units: int) -> int:
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            trunk(torch.randn(1, num_units, 16), torch.ones(1, num_units, dtype=torch.bool))
        return max(sizes)

    assert largest(1024) == 2 * largest(512) < 1024**2
    cost = [sum(part.multiply_accumulates for part in trunk.costs(size)) for size in (512, 1024, 1536)]
    assert cost[2] - cost[1] == cost[1] - cost[0]
    keys = 32 * 2 * 16 * 16  # projected once, whatever the length
    per_unit = 2 * 16 * 16 + 2 * 16 * 12 + 32 * 16 + 2 * 32 * 16
    assert trunk.costs(512)[-1].multiply_accumulates == keys + 512 * per_unit
    assert trunk.costs(512)[0].multiply_accumulates == 4 * 512 * 32 * 4


def test_parameters_and_initial_mixtures() -> None:
    trunk = build(
        TrunkConfig, {"layers": 2, "attention": {"name": "linformer", "projection": 256}}, source="test"
    )
    plain = build(TrunkConfig, {"layers": 2}, source="test")
    torch.manual_seed(0)
    built = Trunk(trunk, DIMENSIONS)
    assert count_parameters(built) - count_parameters(Trunk(plain, DIMENSIONS)) == 2 * 256 * 512
    core: Any = built.layers[0].core
    assert core.mixtures_KU.std().item() == pytest.approx(512**-0.5, rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_nan_for_rows_of_padding(dtype: torch.dtype) -> None:
    trunk = linformer(positions="diet_abs").to(dtype)
    x = torch.randn(2, 30, 16, dtype=dtype, requires_grad=True)
    output = trunk(x, torch.arange(30) < torch.tensor([[30], [0]]))
    (output.float() * torch.linspace(-1, 1, 16) ** 3).sum().backward()
    assert output.isfinite().all()
    assert all(p.grad.isfinite().all() for p in [x, *trunk.parameters()] if isinstance(p.grad, Tensor))


def test_codes_that_are_not_defined() -> None:
    def problems(**trunk: Any) -> list[str]:
        mapping = {"trunk": {"layers": 2, "attention": "linformer", **trunk}}
        return check(build(ModelConfig, mapping, source="test"))

    for code in ("diet_rel", "t5", "shaw", "tupe"):
        (line,) = problems(positions=code)
        assert line.startswith(f"model.trunk.positions.name: {code} is not defined with linformer")
    (line,) = problems(segments="per_head")
    assert line.startswith("model.trunk.segments.name: the projected keys of linformer have no segment")
    assert problems(positions="diet_abs") == []
    with pytest.raises(UserError, match=r"41 units are more than model\.trunk\.attention\.max_units, 40"):
        linformer()(torch.zeros(1, 41, 16, dtype=torch.float64), torch.ones(1, 41, dtype=torch.bool))
