"""A cluster of which one part of Ray is killed: the run continues, or the command says what was lost."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from tests.conftest import read_json_lines
from tests.train.recovery.clusters import cluster_of
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.ray.child import ray_processes

MakeRecipe = Callable[..., PretrainRecipe]
OWN_NODE = "the Ray node of this machine (its raylet, or another process of Ray) was lost; start it, and run the same"
HEAD = "the head of the Ray cluster (its GCS) was lost; start it, and run the same"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A head without CPUs, where the command is, and two nodes with one CPU each."""
    with cluster_of(2, monkeypatch) as made:
        yield made


def pid_of(node: Any, part: str) -> int:
    """Of a raylet, of a GCS, or of what a raylet has started."""
    if part in node.all_processes:
        return node.all_processes[part][0].process.pid
    (process,) = ray_processes(node.all_processes["raylet"][0].process.pid, f"ray::{part}")
    return process.pid


def begin(
    cluster: Cluster, corpus: str, make_recipe: MakeRecipe, run: Path, start: Any, *, steps: int
) -> Any:
    recipe = make_recipe(steps=steps, micro_batch=2, checkpoint_every_steps=10, validate_every_steps=100_000)
    training = start(recipe, corpus, str(run), workers=(1, 2), RAY_ADDRESS=cluster.address)
    training.wait_for(
        lambda lines: any(line.get("event") == "start" and line["workers"] == 2 for line in lines)
    )
    training.wait_for_step(30)
    return training


@pytest.mark.parametrize("part", ["raylet", "RuntimeEnvAgent", "DashboardAgent"])
def test_of_another_node(
    part: str, cluster: Cluster, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, start: Any
) -> None:
    run = tmp_path / "run"
    training = begin(cluster, corpus, make_recipe, run, start, steps=400)
    os.kill(pid_of(next(iter(cluster.worker_nodes)), part), signal.SIGKILL)
    assert training.end(400) == 0, training.log.read_text()
    steps = [line["step"] for line in read_json_lines(run / "metrics.jsonl") if "loss" in line]
    assert steps == list(range(1, 401))
    events = [line["event"] for line in read_json_lines(run / "events.jsonl")]
    print(*(line["message"] for line in training.lines() if "message" in line), sep="\n")
    assert events[0] == "start"
    assert "worker_lost" in events
    said = training.log.read_text().splitlines()
    assert [line for line in said if not line.startswith("{")] == []


@pytest.mark.parametrize(
    ("part", "words"), [("raylet", OWN_NODE), ("RuntimeEnvAgent", OWN_NODE), ("DashboardAgent", OWN_NODE),
                        ("gcs_server", HEAD)]
)  # fmt: skip
def test_where_the_command_is(
    part: str, words: str, cluster: Cluster, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, start: Any
) -> None:
    training = begin(cluster, corpus, make_recipe, tmp_path / "run", start, steps=100_000)
    os.kill(pid_of(cluster.head_node, part), signal.SIGKILL)
    assert training.end(400) == 1, training.log.read_text()
    said = [line for line in training.log.read_text().splitlines() if not line.startswith("{")]
    assert len(said) == 1
    assert said[0].startswith(f"tokenfree: {words}")
