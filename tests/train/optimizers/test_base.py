from typing import Any

import pytest
import torch
from torch import nn

from tokenfree.train.optimizers import adamw, adamw_bert, lamb
from tokenfree.train.optimizers.base import learning_rate, set_options


def rates(steps: int, warmup: float) -> list[float]:
    return [learning_rate(step, steps=steps, peak=1.0, warmup=warmup) for step in range(steps)]


def test_rises_to_the_peak_and_falls_towards_zero() -> None:
    assert rates(10, 0.2) == [0.5, 1.0, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]


@pytest.mark.parametrize("warmup", [0.0, 0.001, 1.0])
def test_ends_of_the_warm_up(warmup: float) -> None:
    values = rates(4, warmup)
    assert max(values) == 1.0
    assert min(values) > 0
    assert values[0] == (0.25 if warmup == 1.0 else 1.0)


def test_the_paper_s_warm_up() -> None:
    values = [learning_rate(step, steps=124_000, peak=0.018, warmup=0.025) for step in (3098, 3099, 3100)]
    assert values[0] < values[1] == 0.018 == values[2]


def test_bert_s_jumps_down_where_the_warm_up_ends() -> None:
    values = [learning_rate(step, steps=20, peak=1.0, warmup=0.25, schedule="bert") for step in range(20)]
    assert values[:7] == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 0.75, 0.7])
    assert values[-1] == pytest.approx(0.05)
    # Not one whole step of warm-up.
    assert learning_rate(0, steps=20, peak=1.0, warmup=0.04, schedule="bert") == 1.0


@pytest.mark.parametrize("optimizer", [adamw, adamw_bert, lamb])
def test_a_part_has_a_rate_of_its_own(optimizer: Any) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    built = optimizer.Config().build(model)
    set_options(built, model[0], rate_factor=10.0)
    factors = {each: group.get("rate_factor", 1) for group in built.param_groups for each in group["params"]}
    assert sum(len(group["params"]) for group in built.param_groups) == len(factors) == 4
    assert all(
        factors[each] == (10.0 if part == 0 else 1) for part in (0, 1) for each in model[part].parameters()
    )
    decays = {each: group["weight_decay"] for group in built.param_groups for each in group["params"]}
    assert all((decays[each] > 0) == (each.ndim > 1) for each in model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    for group in built.param_groups:
        group["lr"] = 0.1
    built.step()
