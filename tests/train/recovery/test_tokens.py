"""Ray's token: workers have it, and nobody who reads a run or a log."""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenfree.train.config import PretrainRecipe
from tokenfree.train.ray.child import ray_processes

MakeRecipe = Callable[..., PretrainRecipe]
TOKEN = "d2f1c0ffee5a4b7e9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c0d9e8f7a6b"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]


def test_a_token_reaches_the_workers_and_no_log(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, start: Any
) -> None:
    # Short: sockets have paths of at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="tf-") as ray_folder:
        secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_TMPDIR": ray_folder}
        recipe = make_recipe(steps=40)
        training = start(recipe, corpus, str(tmp_path / "run"), workers=(2, 2), **secret)
        training.wait_for_step(3)
        workers = ray_processes(training.process.pid, "ray::RayTrainW")
        environments = [Path(f"/proc/{process.pid}/environ").read_bytes() for process in workers]
        assert len(environments) == 2
        assert all(f"RAY_AUTH_TOKEN={TOKEN}".encode() in environment for environment in environments)
        written = [
            path for folder in (tmp_path, Path(ray_folder)) for path in folder.rglob("*") if path.is_file()
        ]
        assert any("raylet" in path.name for path in written)
        assert [path for path in written if TOKEN.encode() in path.read_bytes()] == []
        assert training.end() == 0
        assert list(Path(ray_folder).iterdir()) == []
