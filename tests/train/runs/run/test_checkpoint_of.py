import shutil
from pathlib import Path

import pytest
import torch

from tokenfree.core.errors import JobError, UserError
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoints import CheckpointState
from tokenfree.train.runs.run import Run, checkpoint_of


def save(run: Path, step: int) -> Path:
    folder = run / "checkpoints" / checkpoints.checkpoint_name(step)
    state = CheckpointState(step, 0, "recipe", "manifest", None, {}, 1)
    checkpoints.write(folder, {"model": {"w": torch.ones(1)}, "average": {"w": torch.zeros(1)}}, state)
    return folder


def test_the_newest_sound_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    (tmp_path / "checkpoints" / checkpoints.checkpoint_name(3) / "COMMIT").unlink()
    for run in (tmp_path, str(tmp_path), f"file://{tmp_path}"):
        found = checkpoint_of(run)
        assert found.step == 2
        assert found.record() == {"step": 2, "damaged": list(found.damaged)}
        assert found.damaged[0] in caplog.text
        caplog.clear()
    assert checkpoint_of(tmp_path).weights()["w"].tolist() == [0.0]  # the average, where there is one


def test_a_run_without_a_sound_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{tmp_path} has no checkpoint; train it first"):
        checkpoint_of(tmp_path)
    (save(tmp_path, 4) / "model.safetensors").unlink()
    with pytest.raises(JobError, match=r"no sound checkpoint; the checkpoint .*step_00000004 is damaged"):
        checkpoint_of(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "gone", "renamed"])
def test_a_finished_run_is_used_with_its_last_checkpoint_or_the_one_asked_for(
    tmp_path: Path, damage: str
) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    (tmp_path / "result.json").write_text('{"steps": 3, "best_step": 2}')
    assert [checkpoint_of(tmp_path).step, checkpoint_of(tmp_path, 1).step] == [3, 1]
    assert checkpoint_of(tmp_path, best=True).step == 2
    last = tmp_path / "checkpoints" / checkpoints.checkpoint_name(3)
    if damage == "cut":
        (last / "model.safetensors").write_bytes(b"")
    elif damage == "gone":
        shutil.rmtree(last)
    else:
        last.rename(last.with_name("kept"))
    with pytest.raises(JobError, match=r"step_00000003 is damaged.*with --step.*Its steps: 1, 2\."):
        checkpoint_of(tmp_path)
    assert checkpoint_of(tmp_path, 2).record() == {"step": 2}
    with pytest.raises(UserError, match=r"no checkpoint of step 7\. Use one of these: 1, 2"):
        checkpoint_of(tmp_path, 7)


def test_paths_are_made_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Run("run").name == str(tmp_path / "run")
