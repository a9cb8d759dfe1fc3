import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tokenfree.core.errors import JobError, UserError
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoints import (
    Checkpoint,
    CheckpointState,
    CheckpointWriter,
    RunProgress,
    checkpoint_name,
    newest_sound,
    prune,
    read,
    write,
)
from tokenfree.train.runs.run import Run


def state_of(step: int) -> CheckpointState:
    return CheckpointState(
        step, 0, "recipe", "manifest", None, {"seed": 0}, 1, progress=RunProgress(loss=1.5)
    )


def newest(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    return newest_sound(checkpoints.steps(folder), lambda step: read(folder / checkpoint_name(step)), warn)


def save(folder: Path, step: int) -> Path:
    parts = {"model": {"w": torch.full((3,), float(step))}, "optimizer": {"w|exp_avg": torch.ones(2)}}
    write(folder / checkpoint_name(step), parts, state_of(step))
    return folder / checkpoint_name(step)


def test_reads_what_was_written(tmp_path: Path) -> None:
    checkpoint = read(save(tmp_path, 7))
    assert (checkpoint.step, checkpoint.state) == (7, state_of(7))
    assert checkpoint.tensors("model")["w"].tolist() == [7.0, 7.0, 7.0]
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000007"]


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_all_files_have_the_permissions_that_the_umask_gives(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        path = save(tmp_path, 1)
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o666 & ~umask}


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json", "COMMIT"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_one_is_named_and_the_one_before_it_used(tmp_path: Path, file: str, damage: str) -> None:
    save(tmp_path, 1)
    path = save(tmp_path, 2) / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(content if damage == "flip" else content[: len(content) // 2])
    warnings: list[str] = []
    found = newest(tmp_path, warnings.append)
    assert found is not None
    assert found.step == 1
    assert len(warnings) == 1
    assert str(tmp_path / checkpoint_name(2)) in warnings[0]


@pytest.mark.parametrize(("file", "every"), [("COMMIT", 1), ("state.json", 29)])
def test_every_flipped_bit_of_its_small_files_is_seen(file: str, every: int, tmp_path: Path) -> None:
    path = save(tmp_path, 2) / file
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), every):
        path.write_bytes(
            content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :]
        )
        with pytest.raises(JobError, match=f"{checkpoint_name(2)} is damaged"):
            read(tmp_path / checkpoint_name(2))


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    assert newest(tmp_path / "absent", pytest.fail) is None


def test_a_write_that_was_killed_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "sync", killed)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 2)
    found = newest(tmp_path, pytest.fail)
    assert found is not None
    assert found.step == 1
    save(tmp_path, 2)
    prune(tmp_path, step=2, keep=5, best=None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [checkpoint_name(1), checkpoint_name(2)]


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "sync", full)
    with pytest.raises(UserError, match="No space left on device; make room"):
        save(tmp_path, 2)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_one_is_replaced_when_training_comes_there_again(tmp_path: Path) -> None:
    (save(tmp_path, 2) / "COMMIT").unlink()
    assert read(save(tmp_path, 2)).step == 2


def test_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    for step in range(1, 7):
        save(tmp_path, step)
    prune(tmp_path, step=6, keep=2, best=3)
    assert checkpoints.steps(tmp_path) == [3, 5, 6]


def test_going_back_does_not_cost_the_new_checkpoints(tmp_path: Path) -> None:
    (save(tmp_path, 9) / "COMMIT").unlink()
    for step in (4, 5):
        save(tmp_path, step)
        prune(tmp_path, step=step, keep=1, best=None)
    assert checkpoints.steps(tmp_path) == [5, 9]


def test_the_writer_raises_what_happened_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="cannot write"),
        CheckpointWriter(tmp_path / "file", saved=pytest.fail) as writer,
    ):
        writer.submit({"model": {"w": torch.ones(1)}}, state_of(1), best=None)


def test_the_writer_keeps_to_its_number(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with CheckpointWriter(tmp_path / "checkpoints", saved=functools.partial(run.saved, keep=2)) as writer:
        for step in range(1, 6):
            writer.submit({"model": {"w": torch.ones(1)}}, state_of(step), best=1)
    assert checkpoints.steps(tmp_path / "checkpoints") == [1, 4, 5]
