"""Compiled runs: losses to rounding, names in checkpoints as ever, and a word where there is no compiler."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import REPOSITORY
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import Loop

MakeRecipe = Callable[..., PretrainRecipe]


@pytest.mark.slow
def test_losses_names_and_going_on(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    torch.compiler.reset()
    options: Any = {"model": {"trunk": {"dropout": 0.0}}, "ema_decay": 0.9, "steps": 4}
    plain = Loop(make_recipe(**options), corpus)
    compiled = Loop(make_recipe(compile=True, **options), corpus)
    lines: list[list[Any]] = [[], []]
    for loop, into in zip((plain, compiled), lines, strict=True):
        loop.train_until(4, into.append)
    for name, tolerance in (("loss", 1e-4), ("gradient_norm", 1e-3)):
        ours, theirs = ([line[name] for line in each] for each in lines)
        assert theirs == pytest.approx(ours, rel=tolerance)
    assert compiled.validate()["validation_loss"] == pytest.approx(plain.validate()["validation_loss"], rel=1e-3)
    ours, theirs = plain.snapshot()[0], compiled.snapshot()[0]
    assert {part: set(ours[part]) for part in ours} == {part: set(theirs[part]) for part in theirs}
    compiled.save(tmp_path / "saved")
    plain.restore(tmp_path / "saved")


@pytest.mark.slow
def test_dropout_is_drawn_anew_for_every_batch_and_again_after_a_stop(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    torch.compiler.reset()
    recipe = make_recipe(compile=True, checkpoint_activations=True, steps=4, validate_every_steps=4)
    undisturbed, first, second = (Loop(recipe, corpus) for _ in range(3))
    lines: list[list[Any]] = [[], [], []]
    undisturbed.train_until(4, lines[0].append)
    first.train_until(2, lines[1].append)
    first.save(tmp_path / "saved")
    second.restore(tmp_path / "saved")
    second.train_until(4, lines[1].append)
    assert [line["loss"] for line in lines[1]] == [line["loss"] for line in lines[0]]


def test_no_compiler(tmp_path: Path) -> None:
    program = (
        "import torch\nfrom tokenfree.train.loop.parallel import compile_task\n"
        "compile_task(torch.nn.Linear(1, 1), [], device=torch.device('cpu'), in_parts=False)"
    )
    environment = {**os.environ, "PATH": str(tmp_path), "CXX": "no-such-compiler"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=REPOSITORY, env=environment
    )
    assert "UserError: train.compile: torch.compile needs a C++ compiler" in done.stderr
