"""Checkpoints on real disks: killed while one is written, and a disk that is full."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs import checkpoints

MakeRecipe = Callable[..., PretrainRecipe]
History = Callable[[Path], list[dict[str, Any]]]
LARGE = {"embedder": {"name": "codepoint_hash", "buckets": 65_536, "max_characters": 64}}


@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_killed_while_a_checkpoint_is_written(
    number: int, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, start: Any, history: History
) -> None:
    recipe = make_recipe(model=LARGE, checkpoint_every_steps=1)
    run = tmp_path / "run"
    training = start(recipe, corpus, str(run))
    until = time.monotonic() + 120
    while not list(run.glob(f"checkpoints/_tmp_step_{number:08d}_*/*.safetensors")):
        assert training.process.poll() is None, training.log.read_text()
        assert time.monotonic() < until
    training.process.kill()
    training.end()
    assert list(run.glob(f"checkpoints/_tmp_step_{number:08d}_*"))
    assert checkpoints.steps(run / "checkpoints") == list(range(1, number))
    pretrain(recipe, corpus, str(run))
    pretrain(recipe, corpus, str(tmp_path / "undisturbed"))
    assert history(run) == history(tmp_path / "undisturbed")
    assert not list(run.glob("checkpoints/_tmp_*"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 3 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True)
    if made.returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk(
    small_disk: Path, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, history: History
) -> None:
    recipe = make_recipe(steps=40, checkpoint_every_steps=1, keep_checkpoints=1000, validate_every_steps=20)
    run = small_disk / "run"
    with pytest.raises(UserError, match=r"No space left on device.*make room.*the same command again"):
        pretrain(recipe, corpus, str(run))
    steps = checkpoints.steps(run / "checkpoints")
    assert 0 < len(steps) < 40
    assert checkpoints.read(run / "checkpoints" / checkpoints.checkpoint_name(steps[-1])).step == steps[-1]
    subprocess.run(["mount", "-o", "remount,size=100m", small_disk], check=True)
    assert pretrain(recipe, corpus, str(run)).restarts == 1
    pretrain(recipe, corpus, str(tmp_path / "undisturbed"))
    assert history(run) == history(tmp_path / "undisturbed")
