from pathlib import Path

import pytest
import torch

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoint_state import CheckpointState
from tokenfree.train.runs.locate import newest_checkpoint, run_at


def save(run: Path, step: int) -> Path:
    folder = run / "checkpoints" / checkpoints.name(step)
    state = CheckpointState(step, 0, "recipe", "manifest", None, {}, 1)
    checkpoints.write(folder, {"model": {"w": torch.ones(1)}, "average": {"w": torch.zeros(1)}}, state)
    return folder


def test_the_newest_sound_checkpoint(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    (tmp_path / "checkpoints" / checkpoints.name(3) / "COMMIT").unlink()
    for run in (tmp_path, str(tmp_path), f"file://{tmp_path}"):
        assert newest_checkpoint(run).step == 2
    assert newest_checkpoint(tmp_path).weights()["w"].tolist() == [0.0]  # the average, where there is one


def test_a_run_without_a_sound_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{tmp_path} has no sound checkpoint; train it first"):
        newest_checkpoint(tmp_path)
    (save(tmp_path, 4) / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"no sound checkpoint; the checkpoint .*step_00000004 is damaged"):
        newest_checkpoint(tmp_path)


def test_paths_are_made_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_at("run").name == str(tmp_path / "run")
