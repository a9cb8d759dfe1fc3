"""What doctor says of the nodes of a cluster, one of which has each of the faults that it looks for."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import files
from pathlib import Path
from typing import Any

import pytest

from tests.train.recovery.network import Network, network_in
from tokenfree.core.machine import GIB
from tokenfree.workflows.doctor.cluster import Node, judged
from tokenfree.workflows.doctor.machine import Gpus, NodeFacts, storage_trouble, versions

HERE = {"python": "3.11.7", "tokenfree": "0.1.0", "torch": "2.13.0"}
WELL = NodeFacts(
    versions=HERE,
    free_disk=9 * GIB,
    shared_memory=GIB,
    open_files=65536,
    gpus=Gpus(8, "13.0", "580.1"),
    storage={"s3://bucket/.doctor-1": ""},
)
FOLDERS = {"s3://bucket/.doctor-1": "s3://bucket"}


def found(node: Node) -> list[tuple[str, str, str]]:
    """What is not well of a node beside one that is."""
    nodes = [Node("10.0.0.1", facts=WELL), node]
    return [(one.state, one.what, one.value) for one in judged(nodes, FOLDERS, HERE) if one.state != "ok"]


def test_nodes_that_are_well_are_a_line_for_each_check() -> None:
    lines = list(judged([Node("10.0.0.1", 8, facts=WELL), Node("10.0.0.2", facts=WELL)], FOLDERS, HERE))
    assert {line.state for line in lines} == {"ok"}
    checks = ["versions", "clock", "free disk", "/dev/shm", "open files", "gpu", "storage s3://bucket"]
    assert [line.what for line in lines] == checks
    assert all("2 nodes" in line.value for line in lines[:-1])


@pytest.mark.parametrize(
    ("changed", "state", "what", "words"),
    [
        ({"versions": {**HERE, "torch": "2.12.0"}}, "missing", "versions", "torch 2.12.0 (here 2.13.0)"),
        ({"free_disk": GIB}, "note", "free disk", "1.0 GiB"),
        ({"shared_memory": GIB // 4}, "note", "/dev/shm", "0.2 GiB"),
        ({"open_files": 1024}, "note", "open files", "1024"),
        (
            {"gpus": Gpus(0, "", "580.1")},
            "missing",
            "gpu",
            "Ray counts 8, torch can use 0 (built without CUDA, driver 580.1)",
        ),
        ({"storage": {"s3://bucket/.doctor-1": "cannot be read: x"}}, "missing", "storage s3://bucket", "cannot be"),
    ],
)
def test_a_fault_is_told_of_its_node(changed: dict[str, Any], state: str, what: str, words: str) -> None:
    ((its_state, its_what, value),) = found(Node("10.0.0.2", 8, facts=replace(WELL, **changed)))
    assert (its_state, its_what) == (state, what)
    assert value.startswith("10.0.0.2: ")
    assert words in value


@pytest.mark.parametrize(("skew", "words"), [(90.0, "90.0 s ahead"), (-3.0, "3.0 s behind")])
def test_a_clock_that_is_off_is_told(skew: float, words: str) -> None:
    assert found(Node("10.0.0.2", skew=skew, facts=WELL)) == [("note", "clock", f"10.0.0.2: {words}")]


def test_a_node_that_does_not_answer_is_told() -> None:
    (told,) = found(Node("10.0.0.2", error="does not answer"))
    assert told == ("missing", "node 10.0.0.2", "does not answer")


def test_a_folder_of_the_nodes_own_is_not_the_one_of_the_head(tmp_path: Path) -> None:
    assert storage_trouble(str(tmp_path), "2", b"x") == "is not the folder that the head sees"
    (tmp_path / "head").write_bytes(b"y")
    assert storage_trouble(str(tmp_path), "2", b"x") == "reads other bytes than the head wrote"
    (tmp_path / "head").write_bytes(b"x")
    assert storage_trouble(str(tmp_path), "2", b"x") == ""
    assert (tmp_path / "2").read_bytes() == b"x"


def test_versions_are_of_what_is_declared() -> None:
    assert {"python", "tokenfree", "torch", "ray", "pyarrow", "apache-beam"} <= set(versions())
    assert "not installed" not in versions().values()


FAULTS = """
ulimit -n 3000 && mount -t tmpfs -o size=1g tmpfs {temp} && mount -t tmpfs -o size=100m tmpfs /dev/shm &&
mount --bind {fixed} {fixed} && mount -o remount,bind,ro {fixed} && mount -t tmpfs tmpfs {own} &&
mount --bind {old} {package} && export PYTHONPATH={broken}:$PYTHONPATH
"""
LATE = "import time\nreal = time.time\ntime.time = lambda: real() - 90\n"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with network_in(tmp_path) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_fault_of_a_real_node_is_found(network: Network, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("shared", "fixed", "own", "broken", "old")}
    for path in folders.values():
        path.mkdir()
    (folders["broken"] / "sitecustomize.py").write_text(LATE)
    (folders["old"] / "METADATA").write_text("Name: safetensors\nVersion: 0.0.1\n")
    for number in (1, 2, 3):
        network.add(number)
    network.start_node(1, 0)
    network.start_node(2, 1)
    package = Path(str(next(path for path in files("safetensors") or [] if path.name == "METADATA").locate())).parent
    first = " ".join(FAULTS.format(temp=network.temp, package=package, **folders).split())
    network.start_node(3, 1, "--num-gpus=1", first=first)
    network.wait_for_nodes(3)
    storage = [str(folders[name]) for name in ("shared", "fixed", "own")]
    command = [sys.executable, "-P", "-m", "tokenfree", "doctor", "--cluster", "--json", "--storage", *storage]
    env = {**network.env, "RAY_ADDRESS": network.head}
    said = subprocess.run(network.inside(1, command), env=env, capture_output=True, text=True)
    findings = json.loads(said.stdout)["findings"]
    nodes = findings[next(number for number, one in enumerate(findings) if one["what"] == "nodes") :]
    bad = {one["what"]: one["value"].removeprefix("10.99.0.3: ") for one in nodes if one["state"] != "ok"}
    assert all(one["value"].startswith("10.99.0.3: ") for one in nodes if one["state"] != "ok"), bad
    assert bad.pop("versions").startswith("safetensors 0.0.1 (here ")
    assert bad.pop("clock").startswith(("89.", "90."))
    assert bad.pop("gpu").startswith("Ray counts 1, torch can use 0 (")
    assert bad.pop("free disk") in ("0.9 GiB", "1.0 GiB")
    assert bad == {
        "/dev/shm": "0.1 GiB",
        "open files": "3000",
        f"storage {folders['fixed']}": "cannot be written: Read-only file system",
        f"storage {folders['own']}": "is not the folder that the head sees",
    }
    assert said.returncode == 1
    assert [list(folders[name].iterdir()) for name in ("shared", "fixed", "own")] == [[], [], []]
