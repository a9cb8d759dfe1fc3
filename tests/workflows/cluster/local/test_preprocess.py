"""Preprocessing with workers on a local cluster of three nodes: the bytes of the direct runner, whatever is lost."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.engines.conftest import contents
from tests.workflows.cluster.test_local import Machine, listening, wait_for
from tokenfree.preprocess.job.stages import STAGES
from tools.repeated_dump import write_repeated

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]
SIZE = 15_000_000  # of XML: long enough that there is a middle
DUMP = "enwiki-repeated-pages-articles-multistream.xml.bz2"
SETTINGS = ["--vocabulary.size", "4000", "--vocabulary.sample_characters", "300000", "--split_bytes", "60000",
            "--shard_characters", "200000"]  # fmt: skip


class Nodes(Machine):
    """With three nodes of a CPU each."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.words = ["preprocess", "--wikipedia", str(self.work / DUMP), *SETTINGS, "--output"]

    def submit(self, output: str) -> "subprocess.Popen[str]":
        """Have the nodes preprocess."""
        return self.start("cluster", "submit", "--", *self.words, str(self.work / output), "--runner", "ray")

    def workers(self) -> list[psutil.Process]:
        """Those that are at a task, on all nodes."""
        titles = {f"ray::{stage.name}" for stage in STAGES}
        return [each for each in self.processes() if titles & set(words_of(each)[:1])]

    def command(self) -> psutil.Process:
        """The process of the job's command."""
        (found,) = [
            each
            for each in self.processes()
            if "preprocess" in words_of(each) and "--runner" in words_of(each)
        ]
        return found

    def node(self, number: int) -> list[psutil.Process]:
        """All processes of a node."""
        (start,) = [
            each for each in self.processes() if f"--labels=tokenfree.node={number}" in words_of(each)
        ]
        return [start, *start.children(recursive=True)]

    def await_files(self, output: str, folder: str, number: int) -> None:
        """Wait until this number of sidecars is committed."""
        until = time.monotonic() + 300
        while len(self.committed(output, folder)) < number:
            assert time.monotonic() < until
            time.sleep(0.05)

    def committed(self, output: str, folder: str) -> dict[Path, int]:
        """The sidecars, with their times."""
        files = (self.work / output / "_work" / folder).rglob("*.json")
        return {path: path.stat().st_mtime_ns for path in files}


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture(scope="module")
def machine(test_data: Path) -> Iterator[Nodes]:
    with tempfile.TemporaryDirectory(prefix="tfp-", dir="/tmp") as folder:  # short, for the paths of sockets
        machine = Nodes(Path(folder))
        write_repeated(test_data / "wiki-dumps" / "enwiki-2016-shortened.xml.bz2", SIZE, machine.work / DUMP)
        command = machine.start("cluster", "local", "--nodes", "3", "--cpus", "1")
        try:
            wait_for(command, r"a local cluster of 3 nodes takes jobs at (\S+)")
            yield machine
        finally:
            machine.run("cluster", "down", "local")
            command.wait(60)


@pytest.fixture(scope="module")
def wanted(machine: Nodes) -> dict[str, bytes]:
    machine.run(*machine.words, "direct")
    return contents(machine.work / "direct")


def test_all_nodes_work(machine: Nodes, wanted: dict[str, bytes]) -> None:
    client = machine.submit("all")
    machine.await_files("all", "runs", 5)
    starts = [machine.node(number) for number in range(3)]
    until = time.monotonic() + 60
    while [len(set(node) & set(machine.workers())) for node in starts] != [1, 1, 1]:
        assert time.monotonic() < until
    assert {address.removeprefix("::ffff:") for address in listening(machine.command())} == {"127.0.0.1"}
    said, _ = client.communicate(timeout=600)
    assert client.returncode == 0, said
    assert contents(machine.work / "all") == wanted
    assert machine.workers() == []


@pytest.mark.parametrize("folder", ["runs", "shards"])
def test_the_command_is_killed_and_given_again(machine: Nodes, folder: str, wanted: dict[str, bytes]) -> None:
    output = f"killed-{folder}"
    client = machine.submit(output)
    machine.await_files(output, folder, 8)
    machine.command().kill()
    said, _ = client.communicate(timeout=120)
    assert client.returncode == 1, said
    until = time.monotonic() + 30
    while machine.workers():
        assert time.monotonic() < until
        time.sleep(0.1)
    committed = machine.committed(output, folder)
    client = machine.submit(output)
    machine.await_files(output, "shards", len(committed) + 1 if folder == "shards" else 1)
    assert committed.items() <= machine.committed(output, folder).items()
    said, _ = client.communicate(timeout=600)
    assert client.returncode == 0, said
    assert contents(machine.work / output) == wanted


# The last of this file: they are gone then.
@pytest.mark.parametrize(("folder", "node"), [("runs", 2), ("shards", 1)])
def test_a_lost_node_changes_no_byte(
    machine: Nodes, folder: str, node: int, wanted: dict[str, bytes]
) -> None:
    output = f"without-{folder}"
    client = machine.submit(output)
    machine.await_files(output, folder, 8)
    lost = machine.node(node)
    until = time.monotonic() + 60
    while not set(lost) & set(machine.workers()):
        assert time.monotonic() < until
    for process in lost:
        process.suspend()
    for process in lost:
        os.kill(process.pid, 9)
    said, _ = client.communicate(timeout=600)
    assert client.returncode == 0, said
    lines = [line for line in said.splitlines() if "lost" in line or "died" in line or "dead" in line]
    assert lines, said
    assert {line.partition("a worker on the Ray cluster died")[2] for line in lines} <= {
        " (its node was lost); its task is repeated",
        " (out of memory?); its task is repeated",
    }
    assert contents(machine.work / output) == wanted
