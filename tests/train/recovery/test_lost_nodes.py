"""A cluster of three nodes that loses one and gets it back, while a run continues with the remaining workers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.cluster_utils import Cluster

from tests.conftest import read_json_lines
from tests.train.recovery.clusters import cluster_of
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.pretrain import pretrain
from tokenfree.train.ray.child import ray_processes

MakeRecipe = Callable[..., PretrainRecipe]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A head without CPUs, where the command is, and three nodes with one CPU each."""
    with cluster_of(3, monkeypatch) as made:
        yield made


def lose(node: Any) -> None:
    """What the end of a machine does: all processes of the node are gone at once."""
    raylet = node.all_processes["raylet"][0].process.pid
    for process in [raylet, *(process.pid for process in psutil.Process(raylet).children(recursive=True))]:
        os.kill(process, signal.SIGKILL)


def worker_pids(node: Any) -> list[int]:
    raylet = node.all_processes["raylet"][0].process.pid
    return [process.pid for process in ray_processes(raylet, "ray::RayTrainWorker")]


def resumes(lines: list[dict[str, Any]], workers: int) -> list[int]:
    """Return the numbers of the lines that say that training continues with this number of workers."""
    return [
        number
        for number, line in enumerate(lines)
        if line.get("event") == "resume" and line["workers"] == workers
    ]


def next_step_with(workers: int) -> Callable[[list[dict[str, Any]]], bool]:
    def seen(lines: list[dict[str, Any]]) -> bool:
        found = resumes(lines, workers)
        return bool(found) and any("loss" in line for line in lines[found[-1] :])

    return seen


def test_a_lost_node_is_done_without_and_used_again(
    cluster: Cluster, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, start: Any
) -> None:
    recipe = make_recipe(  # no dropout, whose masks are drawn for each worker's share of a batch
        model={"trunk": {"dropout": 0.0}},
        steps=100_000,
        checkpoint_every_steps=25,
        validate_every_steps=50_000,
        learning_rate=1e-4,
        keep_checkpoints=2,
    )
    run = tmp_path / "run"
    training = start(recipe, corpus, str(run), workers=(1, 3), RAY_ADDRESS=cluster.address)
    training.wait_for(
        lambda lines: any(line.get("event") == "start" and line["workers"] == 3 for line in lines)
    )
    training.wait_for_step(30)

    lost = next(node for node in cluster.worker_nodes if worker_pids(node))
    lose(lost)
    began = time.monotonic()
    training.wait_for(next_step_with(2))
    print(f"from the loss of a node to the next step: {time.monotonic() - began:.1f} s")
    cluster.remove_node(lost, allow_graceful=False)

    cluster.add_node(num_cpus=1)
    began = time.monotonic()
    training.wait_for(next_step_with(3))
    print(f"from the return of a node to the next step with it: {time.monotonic() - began:.1f} s")

    os.kill(training.process.pid, signal.SIGTERM)
    assert training.end() == 1
    lines = read_json_lines(run / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    assert f"stopped by SIGTERM after step {len(lines)}" in training.log.read_text()
    log = training.lines()
    back = next(
        line
        for line in log[resumes(log, 2)[0] :]
        if "a change from 2 to 3 workers" in line.get("message", "")
    )
    resumed = log[resumes(log, 3)[-1]]["step"]
    assert f"after step {resumed} by" in back["message"]  # no step was done twice for the node that came back

    alone = tmp_path / "alone"
    with pytest.raises(KeyboardInterrupt):
        pretrain(recipe, corpus, str(alone), progress=interrupt_at(len(lines)))
    expected = read_json_lines(alone / "metrics.jsonl")
    exact = ("step", "num_targets", "characters")
    assert [[line[key] for key in exact] for line in lines] == [
        [line[key] for key in exact] for line in expected
    ]
    assert [line["loss"] for line in lines] == pytest.approx([line["loss"] for line in expected], rel=1e-3)


def interrupt_at(step: int) -> Callable[[Any], None]:
    def progress(line: Any) -> None:
        if line.get("step") == step and "loss" in line:
            raise KeyboardInterrupt

    return progress


def test_a_fixed_number_of_workers_waits_for_a_node(
    cluster: Cluster, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, start: Any
) -> None:
    recipe = make_recipe(steps=100_000, checkpoint_every_steps=25, validate_every_steps=50_000)
    run = tmp_path / "run"
    training = start(recipe, corpus, str(run), workers=(3, 3), RAY_ADDRESS=cluster.address)
    training.wait_for_step(30)
    lost = next(node for node in cluster.worker_nodes if worker_pids(node))
    lose(lost)
    cluster.remove_node(lost, allow_graceful=False)
    time.sleep(45)  # as long as continuing with two would have taken
    assert training.process.poll() is None
    assert not resumes(training.lines(), 2)
    assert not resumes(training.lines(), 3)
    cluster.add_node(num_cpus=1)
    training.wait_for(next_step_with(3))
    os.kill(training.process.pid, signal.SIGTERM)
    assert training.end() == 1
    steps = [line["step"] for line in read_json_lines(run / "metrics.jsonl")]
    assert steps == list(range(1, len(steps) + 1))
    print(*(line["message"] for line in training.lines() if "message" in line), sep="\n")


def test_a_drained_node_costs_no_step(
    cluster: Cluster, corpus: str, make_recipe: MakeRecipe, tmp_path: Path, start: Any
) -> None:
    recipe = make_recipe(steps=100_000, checkpoint_every_steps=90_000, validate_every_steps=90_000)
    training = start(recipe, corpus, str(tmp_path / "run"), workers=(1, 3), RAY_ADDRESS=cluster.address)
    training.wait_for(
        lambda lines: any(line.get("event") == "start" and line["workers"] == 3 for line in lines)
    )
    training.wait_for_step(10)
    drained = next(node for node in cluster.worker_nodes if worker_pids(node))
    command = ["--address", cluster.address, "--node-id", drained.node_id, "--reason", "DRAIN_NODE_REASON_PREEMPTION",
               "--reason-message", "spot", "--deadline-remaining-seconds", "300"]  # fmt: skip
    subprocess.run([Path(sys.executable).with_name("ray"), "drain-node", *command], check=True)
    training.wait_for(next_step_with(2))
    messages = [line.get("message", "") for line in training.lines()]
    assert any(f"by the coming end of node {drained.node_id}" in message for message in messages)
    os.kill(training.process.pid, signal.SIGTERM)
    assert training.end() == 1
    steps = training.steps()
    assert steps == list(range(1, len(steps) + 1))
