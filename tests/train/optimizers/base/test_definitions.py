"""Every optimizer of the folder, and LAMB and BERT's AdamW against their definitions written out slowly."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tokenfree.core.settings import Slot, build
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import ModelConfig, Trunk
from tokenfree.train.optimizers.adamw import Config as AdamWConfig
from tokenfree.train.optimizers.adamw_bert import Config as BertAdamWConfig
from tokenfree.train.optimizers.base import parameter_groups, stacked_tensors
from tokenfree.train.optimizers.lamb import Config as LambConfig

NAMES = Slot("tokenfree.train.optimizers", "adamw").names()


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(3, 4)
        self.norm = nn.LayerNorm(4)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.dense(x))


@pytest.fixture
def model() -> Small:
    torch.manual_seed(0)
    return Small()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(steps):
        x = torch.randn(8, 3, generator=generator)
        loss = (model(x) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = 0.05
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_lists_the_folder() -> None:
    assert NAMES == ["adamw", "adamw_bert", "lamb"]


@pytest.mark.parametrize("name", NAMES)
def test_lowers_a_loss(name: str, model: Small) -> None:
    optimizer = Slot("tokenfree.train.optimizers", name).config_class(name)().build(model)
    losses = train(model, optimizer, 60)
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


@pytest.mark.parametrize("name", NAMES)
def test_biases_and_norms_do_not_decay(name: str, model: Small) -> None:
    optimizer = Slot("tokenfree.train.optimizers", name).config_class(name)(weight_decay=0.3).build(model)
    names = {parameter: name for name, parameter in model.named_parameters()}
    decay = {
        names[parameter]: group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert decay == {
        "dense.weight": 0.3,
        "unused.weight": 0.3,
        "dense.bias": 0.0,
        "norm.weight": 0.0,
        "norm.bias": 0.0,
        "unused.bias": 0.0,
    }


def test_adamw_is_fused_and_its_definition(model: Small) -> None:
    optimizer = AdamWConfig(weight_decay=0.1).build(model)
    assert all(group["fused"] for group in optimizer.param_groups)
    reference = copy.deepcopy(model)
    slow = torch.optim.AdamW(
        parameter_groups(reference, 0.1), lr=0.05, betas=(0.9, 0.999), eps=1e-8, fused=False, foreach=False
    )
    assert train(model, optimizer, 5) == pytest.approx(train(reference, slow, 5), rel=1e-5)


Update = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], torch.Tensor]


def assert_trains_alike(model: Small, optimizer: torch.optim.Optimizer, update: Update) -> None:
    """Five steps change the weights as `update` says, from weights, both moments and the number of the step."""
    reference = copy.deepcopy(model)
    train(model, optimizer, 5)

    m = {name: torch.zeros_like(w) for name, w in reference.named_parameters()}
    v = {name: torch.zeros_like(w) for name, w in reference.named_parameters()}
    generator = torch.Generator().manual_seed(1)
    for step in range(1, 6):
        x = torch.randn(8, 3, generator=generator)
        reference.zero_grad()
        (reference(x) - x[:, :1]).square().mean().backward()
        for name, w in reference.named_parameters():
            if w.grad is None:
                continue
            m[name] = 0.9 * m[name] + 0.1 * w.grad
            v[name] = 0.999 * v[name] + 0.001 * w.grad**2
            w.data -= 0.05 * update(w.data, m[name], v[name], step)
    for (name, ours), theirs in zip(model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=name)


def test_lamb_is_its_definition(model: Small) -> None:
    def update(w: torch.Tensor, m: torch.Tensor, v: torch.Tensor, step: int) -> torch.Tensor:
        u = (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-6)
        if w.ndim > 1:
            u = u + 0.1 * w
        norms = math.sqrt(w.square().sum().item()), math.sqrt(u.square().sum().item())
        return (norms[0] / norms[1] if w.ndim > 1 and norms[0] > 0 and norms[1] > 0 else 1.0) * u

    assert_trains_alike(model, LambConfig(weight_decay=0.1).build(model), update)


def test_bert_s_adamw_is_its_definition(model: Small) -> None:
    def update(w: torch.Tensor, m: torch.Tensor, v: torch.Tensor, step: int) -> torch.Tensor:
        return m / (v.sqrt() + 1e-6) + (0.1 * w if w.ndim > 1 else 0)

    assert_trains_alike(model, BertAdamWConfig(weight_decay=0.1).build(model), update)


def test_lamb_moves_weights_that_are_zero() -> None:
    weight = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(weight.weight)
    optimizer = LambConfig().build(weight)
    weight(torch.ones(1, 2)).sum().backward()
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    # A ratio of 1, a step of the rate.
    torch.testing.assert_close(weight.weight.data, torch.full((1, 2), -0.1))


class Stacked(nn.Module):
    """Three tables in one parameter, of which the second is a hundred times as large as the first, and scalars."""

    def __init__(self) -> None:
        super().__init__()
        sizes = torch.tensor([0.01, 1.0, 0.1]).repeat_interleave(4)[:, None, None]
        self.tables = nn.Parameter(sizes * torch.randn(12, 3, 2))
        self.scalars = nn.Parameter(torch.zeros(2, 5))
        self.stacked = {"tables": 3, "scalars": 0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.tables - x[:12, :3, None]).square().sum() + (self.scalars - 1).square().sum()


def test_each_of_several_tensors_in_one_has_a_ratio_of_its_own() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"inner": Stacked()})
    stacked = model["inner"]
    assert isinstance(stacked, Stacked)
    assert stacked_tensors(model) == {"inner.tables": 3, "inner.scalars": 0}
    apart = nn.ParameterList([table.clone() for table in stacked.tables.detach().chunk(3)])
    optimizers = [LambConfig(weight_decay=0.1).build(each) for each in (model, apart)]
    x = torch.randn(12, 3)
    for _ in range(5):
        stacked(x).backward()
        for table, part in zip(apart, x[..., None].chunk(3), strict=True):
            (table - part).square().sum().backward()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = 0.05
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(stacked.tables.detach(), torch.cat(list(apart)).detach())


def test_a_table_that_begins_at_zero_moves_as_fast_as_with_adam() -> None:
    """Half way in 50 steps of 0.01: with a trust ratio it would grow by 1% of itself at a step, which takes 400."""
    config = build(TrunkConfig, {"layers": 2, "heads": 2, "positions": "diet_rel"}, source="test")
    positions = Trunk(config, Dimensions(8, 2, 8, 0.0, "gelu")).positions
    optimizer = LambConfig(weight_decay=0.0).build(positions)
    steps = 0
    while positions.by_offset_LHO.mean() < 0.5:
        (positions.by_offset_LHO - 1).square().sum().backward()
        optimizer.param_groups[0]["lr"] = 0.01
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        assert steps < 100
    assert steps >= 50


POSITIONS = Slot("tokenfree.train.model.positions", "none").names()


@pytest.mark.parametrize("positions", POSITIONS)
def test_every_table_of_the_layers_says_so(positions: str) -> None:
    """Parameters of a position code or of segments that hold one table for each of three layers, or begin at zero."""
    mapping = {"layers": 3, "heads": 4, "positions": {"name": positions}, "segments": "per_head"}
    if positions not in ("none", "tupe"):
        mapping["positions"]["sharing"] = "none"
    trunk = Trunk(build(TrunkConfig, mapping, source="test"), Dimensions(16, 4, 16, 0.0, "gelu"))
    found = stacked_tensors(trunk)
    for name, parameter in trunk.named_parameters():
        if parameter.ndim > 1 and name.startswith(("positions", "segments")):
            expected = 0 if not parameter.any() else 3 if len(parameter) == 3 else 1
            assert found.get(name, 1) == expected, name


@pytest.mark.parametrize("embedder", [{"name": "codepoint_hash"}, {"name": "ngram_hash", "orders": 3}])
def test_every_hash_has_a_table_of_its_own(embedder: dict[str, object]) -> None:
    mapping = {
        "width": 16,
        "trunk": {"heads": 2, "layers": 1},
        "embedder": {"hashes": 4, "buckets": 32, **embedder},
    }
    encoder = build(ModelConfig, mapping, source="test").build()
    orders = 3 if embedder["name"] == "ngram_hash" else 1
    assert stacked_tensors(encoder) == {"embedder.table.rows.weight": 4 * orders}
    assert len(encoder.embedder.table.rows.weight) == 4 * orders * 32


def test_adamw_is_that_of_torch(model: Small) -> None:
    twin = copy.deepcopy(model)
    ours = AdamWConfig(weight_decay=0.1).build(model)
    groups = parameter_groups(twin, 0.1)
    theirs = torch.optim.AdamW(groups, lr=0.0, fused=True)
    assert train(model, ours, 5) == train(twin, theirs, 5)
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    assert train(model, ours, 5) == train(twin, theirs, 5)
    assert all(not tensor.requires_grad for state in ours.state.values() for tensor in state.values())
