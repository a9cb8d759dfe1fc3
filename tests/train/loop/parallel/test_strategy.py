"""Sharded workers train as copies do: the same losses, the same files, and one resumes from the other."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.two_processes import in_two_processes
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.loop.step import ModelWithHead
from tokenfree.train.runs import checkpoints

MakeRecipe = Callable[..., PretrainRecipe]

# Trains with each recipe in turn, from the beginning or from the checkpoint of the leg before.
LEGS = """
from pathlib import Path
from tokenfree.core.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.runs import checkpoints

legs, data, folder = json.loads(arguments[0]), arguments[1], Path(arguments[2])
lines, saved = [], None
for number, (mapping, until, fresh) in enumerate(legs):
    loop = Loop(build(PretrainRecipe, mapping, source="test"), data, rank=rank, world_size=2)
    if not fresh:
        loop.load(checkpoints.read(saved))
    lines.extend(loop.steps(until))
    validation = loop.validate()
    saved = folder / f"leg_{number}"
    parts, state = loop.snapshot()
    assert (len(parts["model"]) > 0) == (rank == 0)
    if rank == 0:
        checkpoints.write(saved, parts, state)
    dist.barrier()
held = sum(parameter.to_local().numel() if hasattr(parameter, "to_local") else parameter.numel()
           for parameter in loop.model.parameters())
result = [lines, validation, held]
"""


def train_legs(
    legs: list[tuple[PretrainRecipe, int, bool]], corpus: str, folder: Path
) -> tuple[Any, Any, list[int]]:
    """The lines and the last validation, which are those of both workers, and how many weights each holds."""
    folder.mkdir()
    mappings = json.dumps([(to_mapping(recipe), *more) for recipe, *more in legs])
    results = in_two_processes(LEGS, folder, mappings, corpus, str(folder))
    assert [line["loss"] for line in results[0][0]] == [line["loss"] for line in results[1][0]]
    assert results[0][1] == results[1][1]
    return results[0][0], results[0][1], [result[2] for result in results]


def losses(lines: list[Any]) -> list[float]:
    return [line["loss"] for line in lines]


TIED: dict[str, Any] = {
    "model": {
        "embedder": {"name": "subword_table", "size": 403},
        "downsampler": {"name": "identity"},
        "upsampler": {"name": "identity"},
    },
    "objective": {"name": "masked_subwords", "tied": True},
}


@pytest.mark.parametrize(
    ("optimizer", "parts"),
    [
        pytest.param("adamw", {}, marks=pytest.mark.slow),
        ("lamb", {}),
        pytest.param("lamb", TIED, marks=pytest.mark.slow),
    ],
    ids=["adamw", "lamb", "tied"],
)
def test_shards_train_as_one_worker_does(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, optimizer: str, parts: dict[str, Any]
) -> None:
    """With dropout, micro batches, an average of the weights, and validation batches too small for all workers."""
    options: Any = {
        "micro_batch": 1,
        "ema_decay": 0.9,
        "optimizer": {"name": optimizer},
        "validation_windows": 5,
    }
    options |= parts
    recipe = make_recipe(parallel="fsdp", **options)
    alone = Loop(make_recipe(**options), corpus)
    expected = list(alone.steps(4))
    lines, validation, held = train_legs([(recipe, 4, True)], corpus, tmp_path / "fsdp")

    assert losses(lines) == pytest.approx(losses(expected), rel=2e-5)
    norms = [[line["gradient_norm"] for line in each] for each in (lines, expected)]
    assert norms[0] == pytest.approx(norms[1], rel=2e-4)
    assert validation == pytest.approx(alone.validate(), rel=1e-4)
    total = sum(parameter.numel() for parameter in alone.model.parameters())
    assert sum(held) == total
    assert max(held) < 0.6 * total
    checkpoints.write(tmp_path / "alone", *alone.snapshot())
    theirs, ours = checkpoints.read(tmp_path / "fsdp" / "leg_0"), checkpoints.read(tmp_path / "alone")
    assert theirs.parts == ours.parts == {"model", "optimizer", "average"}
    for part in ("model", "optimizer", "average"):
        tensors = theirs.tensors(part)
        for name, tensor in ours.tensors(part).items():
            torch.testing.assert_close(tensors[name], tensor, rtol=2e-3, atol=2e-4, msg=f"{part}: {name}")


def test_a_run_goes_on_with_the_other_strategy(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    shards, copies = (make_recipe(parallel=name, micro_batch=2, ema_decay=0.5) for name in ("fsdp", "ddp"))
    mixed = [(shards, 2, True), (copies, 4, False), (shards, 6, False)]
    lines, _, _ = train_legs([*mixed, (copies, 6, True), (shards, 2, True)], corpus, tmp_path / "both")
    expected = losses(lines[6:12])
    assert losses(lines[:6]) == pytest.approx(expected, rel=2e-5)
    assert losses(lines[12:]) == losses(lines[:2])  # to the bit
    # One worker has all there is.
    alone = Loop(make_recipe(parallel="fsdp", micro_batch=2, ema_decay=0.5), corpus)
    alone.load(checkpoints.read(tmp_path / "both" / "leg_1"))
    after = list(alone.steps(6))
    assert losses(after) == pytest.approx(expected[4:], rel=2e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_shards_on_a_gpu(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of one NCCL worker is sharded where it is asked for by hand."""
    import torch.distributed as dist

    from tokenfree.train.loop.parallel import FullyShardedDataParallel
    from tokenfree.train.loop.trainer import TrainingLoop

    dist.init_process_group("nccl", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        recipe = make_recipe(precision="bfloat16", model={"trunk": {"dropout": 0.0}})
        plain = Loop(recipe, corpus, device="cuda:0")

        def by_hand(loop: TrainingLoop, task: ModelWithHead) -> FullyShardedDataParallel:
            return FullyShardedDataParallel(task, list(task.encoder.trunk.layers), loop.device)

        monkeypatch.setattr(TrainingLoop, "_shared", by_hand)
        sharded = Loop(recipe, corpus, device="cuda:0")
        lines: list[list[Any]] = [[], []]
        for loop, into in zip((plain, sharded), lines, strict=True):
            into.extend(loop.steps(3))
        assert losses(lines[1]) == pytest.approx(losses(lines[0]), rel=1e-2)
    finally:
        dist.destroy_process_group()
