"""The synthetic task of the multi-scale Transformer: which tokens can meet in which of its models (arXiv 1912.00544).

B batch, N tokens, D width of a token
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tokenfree.core.settings import build
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import ModelConfig, Trunk
from tokenfree.workflows.recipes import library

WIDTH, HEADS = 20, 10


def mirrored_sum(x_BND: Tensor, num_pairs: int) -> Tensor:
    """The sum of a_i * a_{n-i+1} over the first `num_pairs` i, [B, D]."""
    return (x_BND[:, :num_pairs] * x_BND.flip(1)[:, :num_pairs]).sum(dim=1)


def meetings(outputs: Any, x_BND: Tensor, one: int, other: int) -> Tensor:
    """The mixed second difference of `outputs` in two tokens: exactly 0 where no function of both is computed."""
    changes = torch.zeros(4, *x_BND.shape[1:], dtype=x_BND.dtype)
    changes[[1, 3], one] += 0.5
    changes[[2, 3], other] -= 0.25
    neither, first, second, both = outputs(x_BND + changes)
    return (both - first) - (second - neither)


def trunk_of(recipe: str, width: int = WIDTH) -> Trunk:
    model = build(ModelConfig, library.read_based(recipe)["model"], source=recipe)
    config = build(TrunkConfig, {**to_mapping(model.trunk), "heads": HEADS, "dropout": 0.0}, source=recipe)
    torch.manual_seed(0)
    trunk = Trunk(config, Dimensions(width, HEADS, 4 * width, 0.0, "gelu_tanh")).double()
    with torch.no_grad():
        for parameter in trunk.parameters():
            parameter.normal_(0, 0.4)
    return trunk


@pytest.mark.parametrize("num_pairs", [1, 3, 50])
def test_error_of_the_best_constant(num_pairs: int) -> None:
    """K / 4, with a mean squared error of 7 K / 144: the variance of a product of two U(0, 1), K times."""
    numbers = torch.Generator().manual_seed(0)
    targets = mirrored_sum(torch.rand(4000, 100, 50, generator=numbers), num_pairs)
    assert targets.mean().item() == pytest.approx(num_pairs / 4, rel=0.01)
    assert (targets - num_pairs / 4).square().mean().item() == pytest.approx(7 * num_pairs / 144, rel=0.02)


def test_distances_of_the_pairs() -> None:
    """Pair i is n + 1 - 2i apart, so the nearest of K pairs n + 1 - 2K; no other two tokens meet in the target."""
    length, num_pairs = 20, 4
    x = torch.rand(1, length, 3, dtype=torch.float64)
    found = {
        (one, other)
        for one in range(length)
        for other in range(one + 1, length)
        if meetings(lambda x: mirrored_sum(x, num_pairs), x, one, other).abs().max() > 1e-9
    }
    assert found == {(i - 1, length - i) for i in range(1, num_pairs + 1)}
    distances = sorted(other - one for one, other in found)
    assert distances == [length + 1 - 2 * i for i in range(num_pairs, 0, -1)]
    assert distances[0] == length + 1 - 2 * num_pairs


@pytest.mark.parametrize(
    ("recipe", "farthest"), [("ms-hier-s-base", 4), ("ms-deep-hier-s-base", 12), ("ms-flex-base", 99)]
)
def test_how_far_apart_tokens_meet(recipe: str, farthest: int) -> None:
    """Two tokens meet at some unit if they are at most l (w - 1) apart, and at no unit otherwise."""
    trunk = trunk_of(recipe)
    x = torch.randn(1, 100, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def units(x: Tensor) -> Tensor:
        return trunk(x, torch.ones(x.shape[:2], dtype=torch.bool))

    first = max(0, 50 - farthest // 2 - 1)
    for distance in {1, 2, farthest - 1, farthest, farthest + 1, farthest + 2, 99 - first} & set(
        range(1, 100 - first)
    ):
        met = (meetings(units, x, first, first + distance) != 0).any(dim=-1)
        assert met.any() == (distance <= farthest), distance


@pytest.mark.slow
def test_full_attention_learns_far_pairs_and_windows_of_three_do_not() -> None:
    """Pairs that are 15 to 19 apart among 20 tokens, as the paper finds with longer ones; half a minute on one core."""
    assert error_of("ms-standard-base") < 0.3
    assert error_of("ms-hier-s-base") > 0.5


def error_of(recipe: str, *, steps: int = 600, length: int = 20, width: int = 8, num_pairs: int = 3) -> float:
    """The mean squared error after training, as a share of that of the best constant."""
    trunk = trunk_of(recipe, 40).float()
    torch.manual_seed(0)
    positions = (
        nn.Parameter(torch.randn(length + 1, 40) / 2) if recipe == "ms-standard-base" else torch.zeros(1, 1)
    )
    model = nn.ModuleDict({
        "trunk": trunk, "tokens": nn.Linear(width, 40), "cls": nn.Embedding(1, 40),
        "output": nn.Sequential(nn.Linear(80, 64), nn.ReLU(), nn.Linear(64, width)),
    })  # fmt: skip
    for module in trunk.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()
    learnt = [*model.parameters(), *([positions] if isinstance(positions, nn.Parameter) else [])]
    optimizer = torch.optim.Adam(learnt, lr=1e-3)
    numbers = torch.Generator().manual_seed(1)

    def squared_error(num_examples: int) -> Tensor:
        x_BND = torch.rand(num_examples, length, width, generator=numbers)
        cls_B1D = model["cls"](torch.zeros(num_examples, 1, dtype=torch.int64))
        h_BUD = torch.cat([cls_B1D, model["tokens"](x_BND)], dim=1) + positions
        h_BUD = trunk(h_BUD, torch.ones(h_BUD.shape[:2], dtype=torch.bool))
        sentence_BD = torch.cat([h_BUD[:, 0], h_BUD.amax(dim=1)], dim=-1)
        return (model["output"](sentence_BD) - mirrored_sum(x_BND, num_pairs)).square().mean()

    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * (1 - step / steps)
        loss = squared_error(64)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return squared_error(4000).item() / (7 * num_pairs / 144)
