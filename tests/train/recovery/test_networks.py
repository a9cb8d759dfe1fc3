"""Machines of a separate network, of which one is switched off, or cut off, while a run continues."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import read_json_lines
from tests.train.recovery.network import Network, network_in
from tokenfree.train.config import PretrainRecipe

MakeRecipe = Callable[..., PretrainRecipe]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """A head without CPUs and two machines with one CPU each."""
    with network_in(tmp_path) as made:
        for number in (1, 2, 3):
            made.add(number)
        made.start_node(1, 0)
        time.sleep(3)
        for number in (2, 3):
            made.start_node(number, 1)
        made.wait_for_nodes(3)
        yield made


def next_step_with(workers: int) -> Callable[[list[dict[str, Any]]], bool]:
    def seen(lines: list[dict[str, Any]]) -> bool:
        starts = [number for number, line in enumerate(lines) if line.get("workers")]
        return (
            bool(starts)
            and lines[starts[-1]]["workers"] == workers
            and any("loss" in x for x in lines[starts[-1] :])
        )

    return seen


@pytest.mark.parametrize("loss", ["power_off", "unplug"])
def test_a_machine_is_lost(
    loss: str, network: Network, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, start: Any
) -> None:
    recipe = make_recipe(
        steps=100_000, checkpoint_every_steps=25, validate_every_steps=50_000, keep_checkpoints=2
    )
    run = tmp_path / "run"
    command = network.inside(1, [sys.executable])
    training = start(recipe, corpus, str(run), workers=(1, 2), python=command,
                     RAY_ADDRESS="10.99.0.1:6379")  # fmt: skip
    training.wait_for(next_step_with(2))
    training.wait_for_step(30)
    getattr(network, loss)(3)
    began = time.monotonic()
    training.wait_for(next_step_with(1))
    print(f"{loss}: {time.monotonic() - began:.1f} s to the next step")

    if loss == "power_off":
        network.plug_in(3)
        network.start_node(3, 1)
        began = time.monotonic()
        training.wait_for(next_step_with(2))
        print(f"{time.monotonic() - began:.1f} s to the next step with the machine that came back")
    os.kill(training.process.pid, signal.SIGTERM)
    assert training.end() == 1
    lines = read_json_lines(run / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
