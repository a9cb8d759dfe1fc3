"""What doctor says of the nodes of a cluster, one of which has each of the faults that it looks for."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import files
from pathlib import Path

import pytest

from tests.train.recovery.network import Network, network_in
from tokenfree.workflows.cluster.nodes import HEAD, node_findings, storage_trouble, versions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / HEAD).write_bytes(b"x")
    return tmp_path


def test_a_node_that_is_well_reports_nothing_missing(folder: Path) -> None:
    found = node_findings("10.0.0.2", 0, versions(), {str(folder): "s3://bucket"}, b"x")
    assert [one for one in found if one.state == "missing"] == []


def test_each_fault_names_the_node(folder: Path) -> None:
    expected = {**versions(), "torch": "0.0.1"}
    (folder / "other").mkdir()
    folders = {str(folder): "s3://bucket", str(folder / "other"): "other"}
    found = {
        one.what: one
        for one in node_findings("10.0.0.2", 1000, expected, folders, b"x")
        if one.state == "missing"
    }
    assert set(found) == {"versions", "gpu", "storage other"}
    assert all(one.value.startswith("10.0.0.2: ") and one.remedy for one in found.values())
    assert "(here 0.0.1)" in found["versions"].value
    assert "Ray counts 1000, torch can use " in found["gpu"].value


def test_a_folder_of_the_nodes_own_is_not_the_one_of_the_head(tmp_path: Path) -> None:
    assert storage_trouble(str(tmp_path), b"x") == "is not the folder that the head sees"
    (tmp_path / HEAD).write_bytes(b"y")
    assert storage_trouble(str(tmp_path), b"x") == "is not the folder that the head sees"
    (tmp_path / HEAD).write_bytes(b"x")
    assert storage_trouble(str(tmp_path), b"x") == ""
    assert len(list(tmp_path.iterdir())) == 2


def test_versions_are_of_what_is_declared() -> None:
    assert {"python", "tokenfree", "torch", "ray", "pyarrow", "apache-beam"} <= set(versions())
    assert "not installed" not in versions().values()


FAULTS = """
ulimit -n 3000 && mount -t tmpfs -o size=100m tmpfs /dev/shm && mount --bind {fixed} {fixed} &&
mount -o remount,bind,ro {fixed} && mount -t tmpfs tmpfs {own} && mount --bind {old} {package}
"""


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with network_in(tmp_path) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_fault_of_a_real_node_is_found(network: Network, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("shared", "fixed", "own", "old")}
    for path in folders.values():
        path.mkdir()
    (folders["old"] / "METADATA").write_text("Name: safetensors\nVersion: 0.0.1\n")
    for number in (1, 2, 3):
        network.add(number)
    network.start_node(1, 0)
    network.start_node(2, 1)
    package = Path(
        str(next(path for path in files("safetensors") or [] if path.name == "METADATA").locate())
    ).parent
    first = " ".join(FAULTS.format(package=package, **folders).split())
    network.start_node(3, 1, "--num-gpus=1", first=first)
    network.wait_for_nodes(3)
    storage = [str(folders[name]) for name in ("shared", "fixed", "own")]
    command = [
        sys.executable,
        "-P",
        "-m",
        "tokenfree",
        "doctor",
        "--cluster",
        "--json",
        "--storage",
        *storage,
    ]
    env = {**network.env, "RAY_ADDRESS": network.head}
    said = subprocess.run(network.inside(1, command), env=env, capture_output=True, text=True)
    findings = json.loads(said.stdout)["findings"]
    nodes = findings[next(number for number, one in enumerate(findings) if one["what"] == "nodes") :]
    bad = {one["what"]: one["value"].removeprefix("10.99.0.3: ") for one in nodes if one["state"] != "ok"}
    assert all(one["value"].startswith("10.99.0.3: ") for one in nodes if one["state"] != "ok"), bad
    assert bad.pop("versions").startswith("safetensors 0.0.1 (here ")
    assert bad.pop("gpu") == "Ray counts 1, torch can use 0"
    assert bad == {
        "/dev/shm": "0.1 GiB",
        "open files": "3000",
        f"storage {folders['fixed']}": "Read-only file system",
        f"storage {folders['own']}": "is not the folder that the head sees",
    }
    assert said.returncode == 1
    assert [list(folders[name].iterdir()) for name in ("shared", "fixed", "own")] == [[], [], []]
