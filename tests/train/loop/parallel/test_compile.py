"""Compiled runs: losses to rounding, names in checkpoints as ever, and a refusal on a CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tokenfree.core.errors import UserError
from tokenfree.train.config import PretrainRecipe, TrainConfig
from tokenfree.train.loop import parallel
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.model.common.basic import layer_norm
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs import checkpoints

MakeRecipe = Callable[..., PretrainRecipe]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_losses_names_and_going_on(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    torch.compiler.reset()
    options: Any = {"model": {"trunk": {"dropout": 0.0}}, "ema_decay": 0.9, "steps": 4}
    plain = Loop(make_recipe(**options), corpus, device="cuda:0")
    compiled = Loop(make_recipe(compile=True, **options), corpus, device="cuda:0")
    lines: list[list[Any]] = [[], []]
    for loop, into in zip((plain, compiled), lines, strict=True):
        into.extend(loop.steps(4))
    for name, tolerance in (("loss", 1e-4), ("gradient_norm", 1e-3)):
        ours, theirs = ([line[name] for line in each] for each in lines)
        assert theirs == pytest.approx(ours, rel=tolerance)
    assert compiled.validate()["validation_loss"] == pytest.approx(
        plain.validate()["validation_loss"], rel=1e-3
    )
    ours, theirs = plain.snapshot()[0], compiled.snapshot()[0]
    assert {part: set(ours[part]) for part in ours} == {part: set(theirs[part]) for part in theirs}
    checkpoints.write(tmp_path / "saved", *compiled.snapshot())
    plain.load(checkpoints.read(tmp_path / "saved"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_dropout_is_drawn_anew_for_every_batch_and_again_after_a_stop(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    torch.compiler.reset()
    recipe = make_recipe(compile=True, checkpoint_activations=True, steps=4, validate_every_steps=4)
    undisturbed, first, second = (Loop(recipe, corpus, device="cuda:0") for _ in range(3))
    lines: list[list[Any]] = [[], [], []]
    lines[0].extend(undisturbed.steps(4))
    lines[1].extend(first.steps(2))
    checkpoints.write(tmp_path / "saved", *first.snapshot())
    second.load(checkpoints.read(tmp_path / "saved"))
    lines[1].extend(second.steps(4))
    assert [line["loss"] for line in lines[1]] == [line["loss"] for line in lines[0]]


@pytest.mark.parametrize(
    ("compiles", "steps", "device", "expected"),
    [
        (None, 10_000, "cuda", True),
        (None, 9_999, "cuda", False),
        (None, 10_000, "cpu", False),
        (True, 1, "cuda", True),
        (True, 1, "cpu", False),
        (False, 10_000, "cuda", False),
    ],
)
def test_long_runs_are_compiled_on_gpus(
    compiles: bool | None, steps: int, device: str, expected: bool
) -> None:
    config = TrainConfig(compile=compiles, steps=steps)
    assert parallel.compiles(config, torch.device(device)) is expected


def test_compiled_training_keeps_vectors_in_the_dtype_of_products() -> None:
    norm = layer_norm(8)
    compiled = torch.compile(norm, backend="eager")
    x = torch.randn(2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert norm(x).dtype == torch.float32
        assert compiled(x).dtype == torch.bfloat16
        torch.testing.assert_close(compiled(x).float(), norm(x), atol=0.02, rtol=0.02)
        norm.eval()
        assert compiled(x).dtype == torch.float32


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_a_cpu_is_refused(
    device: str, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    recipe = make_recipe(compile=True, device=device)
    with pytest.raises(UserError, match=r"^train\.compile: true makes training on a CPU .* slower"):
        pretrain(recipe, corpus, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()  # so that the command can be run again without it
    loop = Loop(recipe, corpus)
    loop.validate()  # a run of a GPU can be evaluated
    with pytest.raises(UserError, match=r"^train\.compile"):
        list(loop.steps(1))
