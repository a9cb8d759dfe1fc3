"""Hours, bytes and memory by formula, against arithmetic by hand and against what a run leaves."""

from dataclasses import replace
from pathlib import Path

import pytest

from tokenfree.core.settings import build
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.train.config import PretrainRecipe, TrainConfig
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.model.costs import Memory
from tokenfree.train.planning import (
    LINKS,
    NETWORK,
    Work,
    checkpoint_bytes,
    device_memory,
    exchange_seconds,
    num_checkpoints,
    run_seconds,
    work_of,
)
from tokenfree.train.runs import checkpoints

WORK = Work(
    parameters=1000,
    example_flops=1e6,
    targets=5,
    classes=20,
    data_bytes=None,
    epochs=None,
    source="a test",
)
TRAIN = TrainConfig(steps=1000, validate_every_steps=300, validation_windows=60, keep_checkpoints=2)
TINY = {
    "model": {"width": 32, "embedder": {"buckets": 64}, "trunk": {"layers": 1, "heads": 2}},
    "objective": {"max_predictions": 6},
    "train": {
        "steps": 3,
        "global_batch": 4,
        "length": 64,
        "streams": 2,
        "validation_windows": 2,
        "ema_decay": 0.9,
    },
}


@pytest.fixture
def tiny() -> PretrainRecipe:
    return build(PretrainRecipe, TINY, source="a test")


def test_gradients_go_around_a_ring() -> None:
    assert exchange_seconds(WORK, 1, 1) == 0
    of_four = exchange_seconds(WORK, 4, 1)
    assert of_four == pytest.approx(2 * 3 / 4 * 4 * 1000 / LINKS)
    apart = exchange_seconds(WORK, 4, 2)
    assert apart == pytest.approx(of_four * LINKS / NETWORK)


def test_validations_count_as_forward_passes() -> None:
    # After 300, 600, 900 and 1,000 steps.
    assert run_seconds(TRAIN, 2.0, 0.3) == pytest.approx(1000 * 2.0 + 4 * 60 * 0.1)


def test_sharded_workers_hold_a_part_of_all_but_activations() -> None:
    encoder = Memory(1, 1, 2, 7000)
    whole = device_memory(TRAIN, WORK, encoder, 8, 4)
    assert whole == Memory(4000, 4000, 8000, 7000 + 3 * 4 * 8 * 5 * 20)
    sharded = device_memory(replace(TRAIN, parallel="fsdp"), WORK, encoder, 8, 4)
    assert sharded == Memory(1000, 1000, 2000, whole.activations)


def test_checkpoints_are_as_large_as_those_that_are_written(
    tiny: PretrainRecipe, corpus: str, tmp_path: Path
) -> None:
    loop = Loop(tiny, corpus)
    list(loop.steps(1))
    checkpoints.write(tmp_path / "checkpoint", *loop.snapshot())
    size = sum(path.stat().st_size for path in (tmp_path / "checkpoint").glob("*.safetensors"))
    assert checkpoint_bytes(tiny.train, work_of(tiny, corpus)) == pytest.approx(size, rel=0.05)


def test_the_best_checkpoint_is_kept_besides_the_newest() -> None:
    assert num_checkpoints(replace(TRAIN, checkpoint_every_steps=100)) == 3
    assert num_checkpoints(replace(TRAIN, checkpoint_every_steps=700)) == 2


def test_work_is_that_of_the_model_on_the_data_or_on_full_windows(tiny: PretrainRecipe, corpus: str) -> None:
    loop = Loop(tiny, corpus)
    real, full = work_of(tiny, corpus), work_of(tiny, None)
    assert real.parameters == sum(parameter.numel() for parameter in loop.model.parameters())
    # A row and a bias each.
    assert full.parameters - real.parameters == (full.classes - real.classes) * (32 + 1)
    assert full.classes == 32_000  # the default vocabulary
    assert 0 < real.targets <= full.targets == 6
    assert real.example_flops < full.example_flops
    assert real.data_bytes == sum(path.stat().st_size for path in Path(corpus).rglob("*.arrow"))
    assert real.epochs == pytest.approx(3 * 4 / load_manifest(corpus).splits["train"].rows)
