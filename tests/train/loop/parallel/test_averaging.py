"""The average of the weights: its values, its use in validation, and that it is saved, resumed and exported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tokenfree.train.config import PretrainRecipe
from tokenfree.train.evaluate import evaluate
from tokenfree.train.inference.text_encoder import load_encoder
from tokenfree.train.loop.parallel import WeightAverage
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs import checkpoints

MakeRecipe = Callable[..., PretrainRecipe]


def test_an_average_is_its_definition() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    average = WeightAverage(model, decay=0.25)
    expected = 1.0
    for number, weight in enumerate((3.0, 2.0, 8.0), 1):
        with torch.no_grad():
            model.weight.fill_(weight)
        average.update(number)
        decay = (2 / 11, 0.25, 0.25)[number - 1]  # (1 + n) / (10 + n) while that is less
        expected = decay * expected + (1 - decay) * weight
    with average.in_use():
        assert model.weight.item() == pytest.approx(expected)
    assert model.weight.item() == 8.0


def test_validation_uses_it_and_training_does_not(corpus: str, make_recipe: MakeRecipe) -> None:
    plain, averaged = (Loop(make_recipe(ema_decay=decay, learning_rate=0.1), corpus) for decay in (None, 0.9))
    lines: list[list[Any]] = [[], []]
    for loop, into in zip((plain, averaged), lines, strict=True):
        into.extend(loop.steps(4))
        loop.validate()
        into.extend(loop.steps(6))
    assert [line["loss"] for line in lines[0]] == [line["loss"] for line in lines[1]]
    assert averaged.validate()["validation_loss"] != plain.validate()["validation_loss"]
    parts, _ = averaged.snapshot()
    plain.model.load_state_dict({**parts["model"], **parts["average"]})
    assert plain.validate() == averaged.validate()


def test_it_goes_on_bit_for_bit(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = make_recipe(ema_decay=0.9)
    undisturbed, first = Loop(recipe, corpus), Loop(recipe, corpus)
    list(undisturbed.steps(6))
    list(first.steps(3))
    checkpoints.write(tmp_path / "saved", *first.snapshot())
    second = Loop(recipe, corpus)
    second.load(checkpoints.read(tmp_path / "saved"))
    list(second.steps(6))
    for ours, theirs in zip(second.snapshot()[0].values(), undisturbed.snapshot()[0].values(), strict=True):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_what_comes_out_of_a_run_is_the_average(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    result = pretrain(make_recipe(ema_decay=0.9), corpus, str(tmp_path / "run"))
    checkpoint = checkpoints.read(Path(result.checkpoint))
    used, weights = checkpoint.weights(), checkpoint.tensors("model")
    assert used.keys() == weights.keys()
    encoder = load_encoder(tmp_path / "run").encoder
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, used[f"encoder.{name}"])
    assert not torch.equal(used["head.dense.weight"], weights["head.dense.weight"])
    assert evaluate(str(tmp_path / "run"), corpus)["validation_loss"] == pytest.approx(
        result.validation_loss, rel=1e-5
    )
