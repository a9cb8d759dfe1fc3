"""state.json as it is on disk, and as it was before some of its keys were there."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tokenfree.core.errors import JobError
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoints import CheckpointState, RunProgress

OLD: dict[str, Any] = {
    "step": 8,
    "seed": 0,
    "recipe": "cf26",
    "manifest": "cfcd",
    "vocabulary": None,
    "loader": {"data": "cfcd", "seed": 0},
    "world_size": 2,
}
TALLY = {"loss": 6.875, "characters": 62377, "seconds": 2.1, "validation": {"validation_loss": 6.5},
         "best_step": 8, "best_loss": 6.5}  # fmt: skip


def test_the_keys_on_disk() -> None:
    state = CheckpointState(**OLD, left_out=(3,), recent_losses=(7.5, 7.25), progress=RunProgress(**TALLY))
    mapping = json.loads(json.dumps(state.to_mapping()))
    assert mapping == {**OLD, "left_out": [3], "recent_losses": [7.5, 7.25], "tally": TALLY}
    assert list(mapping) == [*OLD, "left_out", "recent_losses", "tally"]
    assert CheckpointState.from_mapping(mapping) == state


def test_a_trial_s_own_part() -> None:
    trial: Any = {
        "steps": 30,
        "used": {"train_seconds": 0.5, "characters": 900, "flops": 1.5},
        "report": {"report": 2, "validation_loss": 6.5},
    }
    state = CheckpointState(**OLD, trial=trial)
    mapping = json.loads(json.dumps(state.to_mapping()))
    assert mapping["trial"] == trial
    assert "tally" not in mapping
    assert CheckpointState.from_mapping(mapping) == state


def test_older_and_newer_checkpoints() -> None:
    oldest = CheckpointState.from_mapping({**OLD, "tally": {"loss": 1.5}})
    assert (oldest.left_out, oldest.recent_losses) == ((), ())
    assert oldest.progress is not None
    assert (oldest.progress.loss, oldest.progress.best_step) == (1.5, None)
    newest = CheckpointState.from_mapping(
        {**OLD, "weather": "fair", "tally": {**TALLY, "mood": "good"}, "files": {}}
    )
    assert newest == CheckpointState(**OLD, progress=RunProgress(**TALLY))


def test_a_state_without_a_key_that_all_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"seed: is missing \(and 1 more\)"):
        CheckpointState.from_mapping(
            {key: value for key, value in OLD.items() if key not in ("seed", "loader")}
        )
    monkeypatch.setattr(CheckpointState, "to_mapping", lambda state: {"step": 8})
    checkpoints.write(tmp_path / "one", {"model": {"w": torch.ones(1)}}, CheckpointState(**OLD))
    with pytest.raises(JobError, match=r"one is of another version: its state.json seed: is missing"):
        checkpoints.read(tmp_path / "one")


def test_how_far_a_run_has_come() -> None:
    start = RunProgress()
    one = start.after_step({"loss": 5.0, "characters": 100, "seconds": 0.5})
    two = one.after_step({"loss": 4.0, "characters": 90, "seconds": 0.25})
    assert (two.loss, two.characters, two.seconds) == (4.0, 190, 0.75)
    assert math.isnan(start.loss)
    first = two.after_validation(2, {"validation_loss": 3.0}, 3.0)
    second = first.after_validation(4, {"validation_loss": 3.0}, 3.0)
    assert (second.best_step, second.best_loss) == (2, 3.0)  # the first of two equal ones
    third = second.after_validation(6, {"validation_loss": 2.5}, 2.5)
    assert (third.best_step, third.best_loss, third.validation) == (6, 2.5, {"validation_loss": 2.5})
