"""Every optimizer of the folder, and LAMB against its definition written out slowly."""

import copy
import math

import pytest
import torch
from torch import nn

from preprocess.settings import Slot
from train.optimizers._groups import parameter_groups
from train.optimizers.adamw import Config as AdamWConfig
from train.optimizers.lamb import Config as LambConfig

NAMES = Slot("train.optimizers", "adamw").names()


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
    assert NAMES == ["adamw", "lamb"]


@pytest.mark.parametrize("name", NAMES)
def test_lowers_a_loss(name: str, model: Small) -> None:
    optimizer = Slot("train.optimizers", name).config_class(name)().build(model)
    losses = train(model, optimizer, 60)
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


@pytest.mark.parametrize("name", NAMES)
def test_biases_and_norms_do_not_decay(name: str, model: Small) -> None:
    optimizer = Slot("train.optimizers", name).config_class(name)(weight_decay=0.3).build(model)
    names = {parameter: name for name, parameter in model.named_parameters()}
    decay = {
        names[parameter]: group["weight_decay"] for group in optimizer.param_groups for parameter in group["params"]
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


def test_lamb_is_its_definition(model: Small) -> None:
    config = LambConfig(weight_decay=0.1)
    reference = copy.deepcopy(model)
    train(model, config.build(model), 5)

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
            u = (m[name] / (1 - 0.9**step)) / ((v[name] / (1 - 0.999**step)).sqrt() + 1e-6)
            if w.ndim > 1:
                u = u + 0.1 * w.data
            norms = math.sqrt(w.data.square().sum().item()), math.sqrt(u.square().sum().item())
            ratio = norms[0] / norms[1] if norms[0] > 0 and norms[1] > 0 else 1.0
            w.data -= 0.05 * ratio * u
    for (name, ours), theirs in zip(model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=name)


def test_lamb_moves_weights_that_are_zero() -> None:
    weight = nn.Linear(2, 1, bias=False)
    nn.init.zeros_(weight.weight)
    optimizer = LambConfig().build(weight)
    weight(torch.ones(1, 2)).sum().backward()
    optimizer.param_groups[0]["lr"] = 0.1
    optimizer.step()
    torch.testing.assert_close(weight.weight.data, torch.full((1, 2), -0.1))  # a ratio of 1, a step of the rate
