"""Layers computed again in the backward pass: the same gradients from less memory, whatever they are made of."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tokenfree.core.settings import Slot, build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.parallel import recompute
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.model.common.slots import TrunkConfig
from tokenfree.train.model.encoder import Trunk

MakeRecipe = Callable[..., PretrainRecipe]
KINDS = [
    (kind, name)
    for kind, folder in (
        ("attention", "attention"),
        ("positions", "positions"),
        ("segments", "segments"),
        ("layer", "layers"),
    )
    for name in Slot(f"tokenfree.train.model.{folder}", "").names()
]


def gradients_and_memory(trunk: Trunk) -> tuple[dict[str, Any], int]:
    """Gradients by name, and the bytes that autograd kept for them beside the parameters."""
    own = {parameter.untyped_storage().data_ptr() for parameter in trunk.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            # Which lives on, so that its place is not used again.
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    units = torch.randn(4, 64, 32, generator=torch.Generator().manual_seed(1), requires_grad=True)
    torch.manual_seed(2)  # of dropout
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = trunk(
            units, torch.ones(4, 64, dtype=torch.bool), (torch.arange(64) > 30).long().expand(4, -1)
        )
    (output * torch.linspace(-1, 1, 32) ** 3).sum().backward()
    gradients = {name: parameter.grad for name, parameter in trunk.named_parameters()}
    return {**gradients, "units": units.grad}, sum(
        tensor.untyped_storage().nbytes() for tensor in kept.values()
    )


@pytest.mark.parametrize(("kind", "name"), KINDS)
def test_gradients_are_the_same_and_memory_is_less(kind: str, name: str) -> None:
    parts: dict[str, Any] = {"positions": {"name": "diet_rel"}, "segments": {"name": "per_head"}}
    for given in ({**parts, kind: {"name": name}}, {kind: {"name": name}}):
        config = build(TrunkConfig, {"layers": 4, "heads": 4, "dropout": 0.1, **given}, source="test")
        if not list(config.check(64)):
            break
    torch.manual_seed(0)
    dimensions = Dimensions(32, 4, 128, 0.1, "gelu_tanh")
    plain, changed = Trunk(config, dimensions), Trunk(config, dimensions)
    changed.load_state_dict(plain.state_dict())
    for layer in changed.layers:
        recompute(layer)
    assert list(changed.state_dict()) == list(plain.state_dict())
    (expected, before), (gradients, after) = gradients_and_memory(plain), gradients_and_memory(changed)
    for parameter, gradient in expected.items():
        torch.testing.assert_close(gradients[parameter], gradient, rtol=1e-4, atol=1e-6, msg=parameter)
    assert after < 0.3 * before


def test_losses_are_those_of_a_plain_run(corpus: str, make_recipe: MakeRecipe) -> None:
    lines: list[list[Any]] = [[], []]
    for into, option in zip(lines, (False, True), strict=True):
        into.extend(Loop(make_recipe(checkpoint_activations=option, micro_batch=3), corpus).steps(3))
    for name in ("loss", "gradient_norm"):
        assert [line[name] for line in lines[1]] == [line[name] for line in lines[0]]
