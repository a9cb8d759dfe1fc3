"""A run of two workers on this machine: what it listens on, and what it does when a part of Ray is killed."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import read_json_lines
from tests.train.listening import addresses
from tests.train.ray_parts import parts_named
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain
from tokenfree.train.ray.child import ray_processes

MakeRecipe = Callable[..., PretrainRecipe]
WORKER = "ray::RayTrainWorker"
WORKERS_AGAIN = "; starting the workers again from the newest checkpoint"
RAY_AGAIN = "; starting Ray and the workers again"
NODE = "the Ray node of this machine (its raylet, or another process of Ray) was lost"
PARTS = {  # what is killed: what is said to be lost, and what follows
    WORKER: ("worker ", WORKERS_AGAIN),
    "/raylet": (NODE, RAY_AGAIN),
    "ray::RuntimeEnvAgent": (NODE, RAY_AGAIN),
    "ray::DashboardAgent": (NODE, RAY_AGAIN),
    "ray::TrainController": (NODE, RAY_AGAIN),
    # Last: the workers continue meanwhile.
    "/gcs_server": ("the head of the Ray cluster (its GCS) was lost", RAY_AGAIN),
}
CLOCK = ("seconds", "data_wait", "utilisation")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc"),
]


class Killer:
    """A progress that kills these parts of Ray, one after the other, and notes what is listened on before that."""

    def __init__(self, *parts: str) -> None:
        self.parts, self.listened, self.messages = list(parts), set[str](), list[str]()
        self._at = 30

    def __call__(self, line: Mapping[str, Any]) -> None:
        if "message" in line:
            self.messages.append(line["message"])
        if "loss" not in line or line["step"] < self._at or not self.parts:
            return
        family = ray_processes(title="")
        part = self.parts[0]
        # The title of an actor ends with the method that it runs, if it runs one.
        found = [process for end in ("", ".run") for process in parts_named(f"{part}{end}", family)]
        if len(found) != (2 if part == WORKER else 1):  # it has no title yet
            return
        self.parts.pop(0)
        self._at = line["step"] + 30
        self.listened |= {address for process in family for address in addresses(process.pid)}
        self.listened |= set(addresses(os.getpid()))
        os.kill(found[0].pid, signal.SIGKILL)


def history(run: Path) -> list[dict[str, Any]]:
    lines = read_json_lines(run / "metrics.jsonl")
    return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]


def test_ray_is_started_again_and_the_losses_are_the_same(
    corpus: str, make_recipe: MakeRecipe, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = make_recipe(
        steps=2400,
        micro_batch=2,
        checkpoint_every_steps=10,
        validate_every_steps=300,
        max_restarts=len(PARTS),
    )
    killer = Killer(*PARTS)
    killed = pretrain(recipe, corpus, str(tmp_path / "killed"), workers=(2, 2), progress=killer)
    lost = [message for message in killer.messages if "lost" in message]
    print(*lost, sep="\n")
    assert killer.parts == []
    assert killed.restarts == len(PARTS)
    assert len(lost) == len(PARTS)
    for part, message in zip(PARTS, lost, strict=True):
        what, after = PARTS[part]
        assert what in message
        assert message.endswith(after)
    assert killer.listened == {"127.0.0.1"}
    said = [line for line in "".join(capfd.readouterr()).splitlines() if line not in lost]
    assert said == []  # of Ray

    quiet = pretrain(recipe, corpus, str(tmp_path / "quiet"), workers=(2, 2))
    assert quiet.restarts == 0
    assert history(tmp_path / "killed") == history(tmp_path / "quiet")
