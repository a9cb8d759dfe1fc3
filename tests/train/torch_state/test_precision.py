"""Runs trained in bfloat16, on processors with and without instructions for it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.train.conftest import MakeRecipe
from tests.train.finetune.conftest import task_recipe, write_files
from tokenfree import evaluate, finetune, load_finetuned, pretrain
from tokenfree.train import torch_state
from tokenfree.train.runs.run import Run


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Set whether the processor has instructions for bfloat16."""
    return lambda present: monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: present)


def test_evaluate_uses_bfloat16_only_where_auto_does(
    choose: Callable[[bool], None],
    corpus: str,
    make_recipe: MakeRecipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = {precision: str(tmp_path / precision) for precision in ("float32", "bfloat16")}
    for precision, run in runs.items():
        pretrain(make_recipe(steps=1, precision=precision, device="cpu"), corpus, run)
    found = {}
    for present in (False, True):
        choose(present)
        found |= {(name, present): evaluate(run, corpus)["validation_loss"] for name, run in runs.items()}
    monkeypatch.setattr(torch_state, "uses_bfloat16", lambda precision, device: False)
    in_float32 = evaluate(runs["bfloat16"], corpus)["validation_loss"]
    assert found["bfloat16", False] == in_float32 != found["bfloat16", True]
    assert found["float32", False] == found["float32", True]


def test_finetuned_models_use_bfloat16_only_where_auto_does(
    choose: Callable[[bool], None], tmp_path: Path
) -> None:
    file, run = write_files(tmp_path)["train"], str(tmp_path / "run")
    finetune(task_recipe("classification", steps=1, precision="bfloat16", device="cpu"), {"train": file}, run)
    model, losses = load_finetuned(run), []
    for present in (False, True):
        choose(present)
        losses.append(model.evaluate(file).loss)
    model.recipe = task_recipe("classification", precision="float32")
    assert losses[0] == model.evaluate(file).loss != losses[1]


@pytest.mark.parametrize(
    ("precision", "present", "warnings"), [("bfloat16", False, 1), ("bfloat16", True, 0), ("auto", False, 0)]
)
def test_training_warns_once_of_slow_bfloat16(
    precision: str,
    present: bool,
    warnings: int,
    choose: Callable[[bool], None],
    corpus: str,
    make_recipe: MakeRecipe,
    tmp_path: Path,
) -> None:
    choose(present)
    recipe, run = make_recipe(steps=4, precision=precision, device="cpu"), str(tmp_path / "run")

    def interrupt(line: object) -> None:
        if isinstance(line, dict) and line.get("step") == 3 and "loss" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(recipe, corpus, run, progress=interrupt)
    messages: list[str] = []
    pretrain(recipe, corpus, run, progress=lambda line: messages.append(line.get("message", "")))
    warned = [message for message in messages if "train.precision is bfloat16" in message]
    assert len(warned) == warnings
    assert all(message.startswith("warning: ") for message in warned)
    assert sum(event["event"] == "slow_precision" for event in Run(run).events()) == 2 * warnings
