"""Losses that are not numbers and losses that jump, made to happen in whole runs: stopped, gone on, or rolled back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import read_json_lines
from tokenfree.core.errors import JobError
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.loader import batch_of
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.loop.step import NotANumber, RecentLosses, Spike
from tokenfree.train.loop.worker import batches_to_leave_out, roll_backs, save_incident
from tokenfree.train.model.embedders.codepoint_hash import hash_buckets
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs import checkpoints

MakeRecipe = Callable[..., PretrainRecipe]
LOW_THRESHOLD = {"spike_window": 5, "spike_deviations": 1.3}
CLOCK = ("seconds", "data_wait", "utilisation")


def history(run: Path) -> list[dict[str, Any]]:
    lines = read_json_lines(run / "metrics.jsonl")
    return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]


def events(run: Path) -> list[str]:
    return [line["event"] for line in read_json_lines(run / "events.jsonl")]


def test_batches_move_up_where_some_are_left_out() -> None:
    assert [batch_of(step, (3, 1, 4)) for step in range(5)] == [0, 2, 5, 6, 7]
    assert [batch_of(step, ()) for step in range(3)] == [0, 1, 2]


def test_what_a_jump_is() -> None:
    recent = RecentLosses(4, deviations=2.0)
    for loss in (1.0, 2.0, 1.0, 2.0):
        assert not recent.jumps(1e9)  # nothing to compare with yet
        recent.append(loss)
    assert not recent.jumps(2.5)  # 1.5 and twice 0.5
    assert recent.jumps(2.501)
    again = RecentLosses(4, deviations=2.0)
    again.extend(json.loads(json.dumps(list(recent))))
    assert (again.jumps(2.5), again.jumps(2.501)) == (False, True)


def test_a_second_time_at_a_checkpoint_all_batches_since_are_left_out(tmp_path: Path) -> None:
    first = NotANumber(9, 8, float("nan"), [64, 65])
    assert batches_to_leave_out(8, 6, 6, []) == [8]
    path = save_incident(tmp_path, first, left_out=[8], checkpoint=6)
    assert json.loads(path.read_text())["loss"] is None
    assert batches_to_leave_out(9, 6, 6, roll_backs(tmp_path)) == [6, 7, 8, 9]
    assert batches_to_leave_out(12, 10, 10, roll_backs(tmp_path)) == [12]
    save_incident(tmp_path, Spike(20, 21, 9.5, [1]))  # one that training did not go back for
    assert len(roll_backs(tmp_path)) == 1


def poison(run: Path, recipe: PretrainRecipe, corpus: str) -> int:
    """Put what is not a number into the newest checkpoint, in a row of a table that a single batch to come reads."""
    (step,) = checkpoints.steps(run / "checkpoints")
    loop = Loop(recipe, corpus)
    read = [rows_of(loop, loop.loader.batch(number)) for number in range(recipe.train.steps + 1)]
    held_out = set().union(*(rows_of(loop, arrays) for arrays in loop.windows.held_out()))
    for batch in range(step + 1, recipe.train.steps):
        own = read[batch] - held_out.union(*(rows for number, rows in enumerate(read) if number != batch))
        if own:
            checkpoint = checkpoints.read(run / "checkpoints" / checkpoints.checkpoint_name(step))
            parts = {part: checkpoint.tensors(part) for part in ("model", "optimizer")}
            parts["model"]["encoder.embedder.table.rows.weight"][sorted(own)] = float("inf")
            checkpoints.write(checkpoint.path, parts, checkpoint.state)
            return batch
    raise AssertionError("no batch has characters of its own")


def rows_of(loop: Loop, arrays: Any) -> set[int]:
    table = loop.model.encoder.embedder.table
    codepoints = torch.from_numpy(arrays["codepoints"])[..., None]
    return set(
        (hash_buckets(codepoints, table.multipliers_K, 4096, "official") + table.offsets_K).unique().tolist()
    )


class Interrupt(Exception):
    pass


def interrupt_at(step: int) -> Callable[[Any], None]:
    def progress(line: Any) -> None:
        if line.get("step") == step and "loss" in line:
            raise Interrupt

    return progress


def test_a_poisoned_batch_is_left_out(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    options: Any = {"model": {"embedder": {"buckets": 4096}}, "keep_checkpoints": 1}
    recipe = make_recipe(on_nan="roll_back", **options)
    run = tmp_path / "run"
    with pytest.raises(Interrupt):
        pretrain(recipe, corpus, str(run), progress=interrupt_at(4))
    batch = poison(run, recipe, corpus)

    result = pretrain(recipe, corpus, str(run))
    assert [line["step"] for line in history(run) if "loss" in line] == list(range(1, 9))
    assert events(run) == ["start", "resume", "not_a_number", "roll_back", "complete"]
    assert result.restarts == 1  # by the interrupt; going back is none
    record = json.loads((run / "incidents" / f"batch_{batch:08d}.json").read_text())
    assert record == {"kind": "not_a_number", "step": batch + 1, "batch": batch, "loss": None,
                      "checkpoint": batch // 3 * 3, "left_out": [batch],
                      "sample_ids": list(range(8 * batch, 8 * batch + 8))}  # fmt: skip
    assert checkpoints.read(Path(result.checkpoint)).state.left_out == (batch,)


@pytest.mark.parametrize("going_on", [pytest.param("undisturbed", marks=pytest.mark.slow), "interrupted"])
def test_a_spike_rolls_back_and_its_batch_is_not_used(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, going_on: str
) -> None:
    """A threshold that ordinary losses cross; what comes out is a run that left those batches out from the start."""
    options: Any = {"steps": 12, "learning_rate": 1e-5, "checkpoint_every_steps": 5, **LOW_THRESHOLD}
    recipe = make_recipe(on_spike="roll_back", max_roll_backs=100, **options)
    run = tmp_path / "run"
    if going_on == "interrupted":
        with pytest.raises(Interrupt):
            pretrain(recipe, corpus, str(run), progress=interrupt_at(9))
    result = pretrain(recipe, corpus, str(run))
    backs = roll_backs(run)
    assert backs
    assert events(run).count("roll_back") == len(backs) == events(run).count("loss_spike")
    assert [line["step"] for line in history(run) if "loss" in line] == list(range(1, 13))

    left_out = sorted({batch for record in backs for batch in record["left_out"]})
    assert checkpoints.read(Path(result.checkpoint)).state.left_out == tuple(left_out)
    clean = Loop(make_recipe(on_spike="go_on", **options), corpus)
    clean.leave_out(left_out)
    lines = list(clean.steps(12))
    assert [line["loss"] for line in lines] == [line["loss"] for line in history(run) if "loss" in line]


def test_going_back_has_an_end(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    """Weights that an absurd learning rate has spoilt; the batches have no part in it."""
    recipe = make_recipe(learning_rate=1e30, on_nan="roll_back", max_roll_backs=2, checkpoint_every_steps=1)
    with pytest.raises(
        JobError, match=r"went back 2 times \(train.max_roll_backs\); .* not a number at step 2"
    ):
        pretrain(recipe, corpus, str(tmp_path))
    assert [record["left_out"] for record in roll_backs(tmp_path)] == [[1], [2]]
    assert [line["step"] for line in history(tmp_path)] == [1]
    assert events(tmp_path).count("roll_back") == 2


def test_spikes_stop_or_go_on(corpus: str, make_recipe: MakeRecipe, tmp_path: Path) -> None:
    options: Any = {"steps": 24, "learning_rate": 1e-5, **LOW_THRESHOLD}
    with pytest.raises(Spike, match=r"jumped to \d\.\d+ at step \d+.*train.on_spike") as stopped:
        pretrain(make_recipe(on_spike="stop", **options), corpus, str(tmp_path))
    incident = stopped.value
    record = json.loads((tmp_path / "incidents" / f"batch_{incident.batch:08d}.json").read_text())
    assert record["sample_ids"] == list(range(8 * incident.batch, 8 * incident.batch + 8))
    assert history(tmp_path)[-1]["step"] == incident.step - 1

    pretrain(make_recipe(on_spike="go_on", **options), corpus, str(tmp_path))  # the policy may change
    assert [line["step"] for line in history(tmp_path) if "loss" in line] == list(range(1, 25))
    spikes = [line for line in read_json_lines(tmp_path / "events.jsonl") if line["event"] == "loss_spike"]
    assert [line["step"] for line in spikes] == [incident.step] + [
        line["step"] for line in history(tmp_path) if "spike" in line
    ]
    assert spikes[1]["step"] == incident.step
    undisturbed = Loop(make_recipe(**options), corpus)
    lines = list(undisturbed.steps(24))
    assert [line["loss"] for line in lines] == [line["loss"] for line in history(tmp_path) if "loss" in line]
