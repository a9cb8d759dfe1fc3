"""The loop gives the same losses however it is divided: over micro batches, processes and interruptions."""

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import REPOSITORY
from tests.train.two_processes import TRAINING, in_two_processes
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.loop.step import NotANumber
from tokenfree.train.runs import checkpoints

MakeRecipe = Callable[..., PretrainRecipe]
NO_DROPOUT = {"trunk": {"dropout": 0.0}}
TIMES = ("seconds", "data_wait", "utilisation")


def run(loop: Loop, until: int) -> list[Mapping[str, float]]:
    """The lines of the steps, without what the clock says."""
    lines = list(loop.steps(until))
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def assert_close(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for our, their in zip(ours, theirs, strict=True):
        for name in ("step", "num_targets", "characters"):
            assert our[name] == their[name]
        assert our["loss"] == pytest.approx(their["loss"], rel=2e-5)
        assert our["gradient_norm"] == pytest.approx(their["gradient_norm"], rel=2e-4)


def test_the_loss_falls(corpus: str, make_recipe: MakeRecipe) -> None:
    loop = Loop(make_recipe(steps=60, learning_rate=0.02, model=NO_DROPOUT), corpus)
    before = loop.validate()["validation_loss"]
    lines = run(loop, 60)
    assert sum(line["loss"] for line in lines[-10:]) < sum(line["loss"] for line in lines[:10]) - 5
    assert loop.validate()["validation_loss"] < before - 0.3
    baselines = loop.windows.baselines()
    assert baselines is not None
    assert 2 < baselines.entropy < before


@pytest.mark.parametrize("micro_batch", [1, 3, 4])
def test_micro_batches_change_nothing(corpus: str, make_recipe: MakeRecipe, micro_batch: int) -> None:
    whole = Loop(make_recipe(model=NO_DROPOUT), corpus)
    parts = Loop(make_recipe(model=NO_DROPOUT, micro_batch=micro_batch), corpus)
    assert_close(run(parts, 6), run(whole, 6))


def of_two_workers(recipe: PretrainRecipe, corpus: str, folder: Path) -> list[Any]:
    """The lines and the validation, whose losses are those of both workers."""
    results = in_two_processes(TRAINING, folder, json.dumps(to_mapping(recipe)), corpus, "6")
    assert [line["loss"] for line in results[0][0]] == [line["loss"] for line in results[1][0]]
    return results[0]


def test_two_processes_are_one(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    """With dropout, too: it is seeded by the first sample of a micro batch, wherever that is worked on."""
    alone = Loop(make_recipe(micro_batch=2), corpus)
    lines, validation = of_two_workers(make_recipe(micro_batch=2), corpus, tmp_path)
    assert_close(lines, run(alone, 6))
    assert validation == pytest.approx(alone.validate(), rel=1e-4)


@pytest.mark.parametrize("optimizer", ["adamw", "adamw_bert", "lamb"])
def test_goes_on_bit_for_bit_after_any_step(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, optimizer: str
) -> None:
    recipe = make_recipe(steps=5, optimizer={"name": optimizer})
    undisturbed = Loop(recipe, corpus)
    expected = run(undisturbed, 5)
    for step in range(1, 5):
        first = Loop(recipe, corpus)
        run(first, step)
        first.validate()  # must leave no trace
        checkpoints.write(tmp_path / f"{step}", *first.snapshot())
        torch.manual_seed(step)
        second = Loop(recipe, corpus)
        second.load(checkpoints.read(tmp_path / f"{step}"))
        assert run(second, 5) == expected[step:]
        for name, tensor in second.model.state_dict().items():
            assert torch.equal(tensor, undisturbed.model.state_dict()[name]), name


def test_other_data_order_is_refused(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    checkpoints.write(tmp_path / "saved", *Loop(make_recipe(), corpus).snapshot())
    with pytest.raises(UserError, match="seed 0, now 1"):
        Loop(make_recipe(seed=1), corpus).load(checkpoints.read(tmp_path / "saved"))


def test_seeds_and_dropout_matter(corpus: str, make_recipe: MakeRecipe) -> None:
    losses = {
        run(Loop(recipe, corpus), 1)[0]["loss"]
        for recipe in (make_recipe(), make_recipe(seed=1), make_recipe(model=NO_DROPOUT))
    }
    assert len(losses) == 3


def test_building_a_loop_leaves_the_callers_random_numbers_alone(
    corpus: str, make_recipe: MakeRecipe
) -> None:
    state = torch.get_rng_state()
    Loop(make_recipe(), corpus)
    assert torch.equal(torch.get_rng_state(), state)


def test_not_a_number_stops_before_the_step(corpus: str, make_recipe: MakeRecipe) -> None:
    loop = Loop(make_recipe(micro_batch=2), corpus)
    run(loop, 1)
    with torch.no_grad():
        next(iter(loop.model.head.parameters())).fill_(float("nan"))
    with pytest.raises(NotANumber, match="not a number at step 2") as caught:
        run(loop, 3)
    assert caught.value.sample_ids == list(range(8, 16))
    assert loop.step == 1
    assert isinstance(caught.value, JobError)


def test_bfloat16_is_near_float32(corpus: str, make_recipe: MakeRecipe) -> None:
    exact = run(Loop(make_recipe(model=NO_DROPOUT), corpus), 3)
    rough = run(Loop(make_recipe(model=NO_DROPOUT, precision="bfloat16"), corpus), 3)
    assert [line["loss"] for line in rough] == pytest.approx([line["loss"] for line in exact], rel=0.02)
    assert rough[0]["loss"] != exact[0]["loss"]


@pytest.mark.parametrize("supported", [True, False])
def test_auto_is_bfloat16_where_the_processor_has_it(
    corpus: str, make_recipe: MakeRecipe, monkeypatch: pytest.MonkeyPatch, supported: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: supported)
    chosen = run(Loop(make_recipe(precision="auto"), corpus), 1)
    same = run(Loop(make_recipe(precision="bfloat16" if supported else "float32"), corpus), 1)
    assert chosen[0]["loss"] == same[0]["loss"]


def test_under_bfloat16_all_that_is_kept_is_float32(corpus: str, make_recipe: MakeRecipe) -> None:
    loop = Loop(make_recipe(precision="bfloat16", ema_decay=0.9), corpus)
    seen = []
    layers: list[Any] = list(loop.model.encoder.trunk.layers)
    layers[0].inner.register_forward_hook(lambda *call: seen.append(call[2].dtype))
    run(loop, 2)
    assert set(seen) == {torch.bfloat16}
    parts, _ = loop.snapshot()
    assert {tensor.dtype for part in parts.values() for tensor in part.values()} == {torch.float32}


@pytest.mark.parametrize(("size", "micro_batch"), [(8, None), (8, 1), (2, 1)])
def test_the_update_is_of_the_mean_over_the_global_batch(
    corpus: str, make_recipe: MakeRecipe, size: int, micro_batch: int | None
) -> None:
    """The gradient of the mean loss of all targets, however the batch is divided, as a plain backward pass has it."""
    options: Any = {"global_batch": size, "clip_norm": 1e9, "model": NO_DROPOUT}
    loop = Loop(make_recipe(micro_batch=micro_batch, **options), corpus)
    plain = Loop(make_recipe(**options), corpus)
    total, sums = plain.model(
        {name: torch.from_numpy(array) for name, array in plain.loader.batch(0).items()}
    )
    (total / sums.num_targets).backward()
    gradients = [parameter.grad for parameter in plain.model.parameters() if parameter.grad is not None]
    (line,) = run(loop, 1)
    assert line["loss"] == pytest.approx((total / sums.num_targets).item(), rel=1e-5)
    assert line["gradient_norm"] == pytest.approx(torch.nn.utils.get_total_norm(gradients).item(), rel=1e-4)
    means = {name: loop.optimizer.state[parameter] for name, parameter in loop.model.named_parameters()}
    for name, parameter in plain.model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(
                means[name]["exp_avg"], 0.1 * parameter.grad, rtol=1e-3, atol=1e-7, msg=name
            )


def test_the_gradient_is_clipped(corpus: str, make_recipe: MakeRecipe) -> None:
    free, tight = (
        Loop(make_recipe(clip_norm=norm, optimizer={"name": "adamw", "epsilon": 1.0}), corpus)
        for norm in (9, 0.01)
    )
    start = {name: tensor.clone() for name, tensor in free.model.state_dict().items()}
    assert run(free, 1)[0]["gradient_norm"] == run(tight, 1)[0]["gradient_norm"] > 0.01

    def moved(loop: Loop) -> float:
        return sum(
            (tensor - start[name]).abs().sum().item() for name, tensor in loop.model.state_dict().items()
        )

    assert moved(tight) < moved(free)


FAULTS = """
import resource, torch
from tokenfree.train.loop.step import keep_freed_memory
keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(2**24).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(min(faults() for _ in range(10)))  # the heap settles after some
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_large_tensors_get_the_memory_of_freed_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    assert int(done.stdout) < 1000  # of 16,384 pages
