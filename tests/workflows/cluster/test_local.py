"""A local cluster of three nodes: commands run on it as jobs with the same results as here, and all of it ends."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import yaml

from tests.conftest import REPOSITORY, read_json_lines
from tests.test_end_to_end import MODEL, TINY
from tokenfree.train.ray import loopback_node
from tokenfree.workflows.demo_corpus.corpus import bundled_pages, write_dump

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]
CLOCK = ("seconds", "data_wait", "utilisation", "time")
Tokenfree = Callable[..., "subprocess.Popen[str]"]


class Machine:
    """A home, a working directory and a cache of their own; commands that are started there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "HOME": str(folder / "home"),
            "TOKENFREE_CACHE": str(folder / "cache"),
            "PYTHONPATH": str(REPOSITORY),
            "RAY_TMPDIR": str(folder),
        }
        self.token = folder / "home" / ".ray" / "auth_token"

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start a command; it writes to a pipe."""
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "tokenfree", *words],
            cwd=self.work,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, status: int = 0) -> str:
        """Run a command to its end; what it wrote."""
        process = self.start(*words)
        said, _ = process.communicate(timeout=600)
        assert process.returncode == status, said
        return said

    def processes(self) -> list[psutil.Process]:
        """All that has the mark of a local cluster, and this cache."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                own = process.environ()
                if (
                    "TOKENFREE_LOCAL_CLUSTER" in own
                    and own.get("TOKENFREE_CACHE") == self.env["TOKENFREE_CACHE"]
                ):
                    found.append(process)
        return found


def wait_for(process: "subprocess.Popen[str]", pattern: str) -> str:
    """Read what a command writes until a line matches; its first group."""
    assert process.stdout is not None
    read = []
    for line in process.stdout:
        read.append(line)
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError("".join(read))


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="tfc-", dir="/tmp") as folder:  # short, for the paths of sockets
        yield Machine(Path(folder))


@pytest.fixture(scope="module")
def address(machine: Machine) -> Iterator[str]:
    """Of a local cluster, whose command is killed at the end; what is left of it is taken down from outside."""
    command = machine.start("cluster", "local", "--nodes", "3", "--cpus", "1")
    try:
        yield wait_for(command, r"a local cluster of 3 nodes takes jobs at (\S+)")
    finally:
        command.kill()
        command.wait()
        left = len(machine.processes())
        said = machine.run("cluster", "down", "local")
    assert left > 10
    assert said == "the local cluster has ended\n"
    assert machine.processes() == []
    assert [path.name for path in machine.folder.iterdir() if path.name.startswith("tf-")] == []
    assert machine.run("cluster", "status", "local", status=1).startswith("no local cluster runs")


@pytest.fixture(scope="module")
def data(machine: Machine, address: str) -> str:
    """A data directory made by a job, and another one made here: the same bytes."""
    dump = "enwiki-test-pages-articles.xml.bz2"
    write_dump(machine.work / dump, bundled_pages())
    words = ["preprocess", "--wikipedia", str(machine.work / dump), "--output"]
    data = str(machine.work / "data")
    said = machine.run("cluster", "submit", "--", *words, data, *TINY)
    assert "runs        on a node with 1 free CPU\n" in said
    machine.run(*words, "here", *TINY)
    for path in (machine.work / "here").rglob("*.arrow"):
        assert (Path(data) / path.relative_to(machine.work / "here")).read_bytes() == path.read_bytes()
    return data


def history(run: Path) -> list[dict[str, Any]]:
    lines = read_json_lines(run / "metrics.jsonl")
    return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]


def test_pretraining_goes_on_when_its_client_is_killed(machine: Machine, data: str) -> None:
    (machine.work / "own_parts.py").write_text(
        "from tokenfree.train.model.downsamplers.strided_conv import Config as Base\n"
        "from tokenfree.core.settings import settings\n"
        "@settings\nclass Down(Base):\n    name: str = 'own_parts.Down'\n"
    )
    recipe = {**MODEL, "model": {**MODEL["model"], "downsampler": {"name": "own_parts.Down", "block": 16}}}
    (machine.work / "small.yaml").write_text(yaml.safe_dump(recipe))
    words = [
        "pretrain",
        "small.yaml",
        "--trust-code",
        "--data",
        data,
        "--workers",
        "2",
        "--train.steps",
        "60",
        "--output",
    ]
    send = ["--send", "small.yaml", "--send", "own_parts.py"]
    client = machine.start("cluster", "submit", *send, "--", *words, str(machine.work / "run"))
    job = wait_for(client, r"job         (\S+)")
    wait_for(client, r"(starting 2 workers)")
    client.kill()
    client.wait()
    said = machine.run("cluster", "logs", job)
    assert "starting 2 workers under Ray" in said
    assert "held-out loss" in said
    machine.run(*words, "undisturbed")
    assert history(machine.work / "run") == history(machine.work / "undisturbed")

    (listed,) = [
        each for each in json.loads(machine.run("cluster", "jobs", "--json"))["jobs"] if each["name"] == job
    ]
    assert (listed["status"], listed["exit_status"]) == ("SUCCEEDED", 0)
    assert machine.token.read_text() not in json.dumps(listed)


def test_a_sweep(machine: Machine, data: str) -> None:
    (machine.work / "base.yaml").write_text(yaml.safe_dump(MODEL))
    sweep = {"base": "base.yaml", "space": {"model.downsampler.rate": {"choice": [2, 4]}}, "trials": 2,
             "budget": {"steps": 4}, "reports": 2}  # fmt: skip
    (machine.work / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    words = ["sweep", "sweep.yaml", "--data", data, "--output", str(machine.work / "sweep")]
    said = machine.run("cluster", "submit", "--send", "sweep.yaml", "--send", "base.yaml", "--", *words)
    assert "2 trials: " in said
    assert "failed" not in said
    assert (machine.work / "sweep" / "best.yaml").is_file()


def test_the_demo(machine: Machine, address: str) -> None:
    machine.run("cluster", "submit", "--", "demo", "--output", str(machine.work / "demo"))
    for made in ("data", "run", "sweep"):
        assert ": good" in machine.run("verify", f"demo/{made}")


def test_a_job_that_is_stopped_writes_a_checkpoint(machine: Machine, data: str) -> None:
    (machine.work / "base.yaml").write_text(yaml.safe_dump(MODEL))
    words = ["pretrain", "base.yaml", "--data", data, "--output", str(machine.work / "long"), "--train.steps", "100000",
             "--train.checkpoint_every_steps", "50000", "--train.validate_every_steps", "50000"]  # fmt: skip
    client = machine.start("cluster", "submit", "--send", "base.yaml", "--", *words)
    job = wait_for(client, r"job         (\S+)")
    wait_for(client, r"(step [\d,]+/100)")
    assert machine.run("cluster", "stop", job) == f"job {job}: STOPPED\n"
    said, _ = client.communicate(timeout=60)
    assert client.returncode == 143
    assert "stopped by SIGTERM after step" in said
    assert f"job {job} was stopped; the same command resumes from its newest checkpoint" in said
    assert len(list((machine.work / "long" / "checkpoints").glob("step_*/COMMIT"))) == 1


def test_a_mistake_is_the_users_on_a_cluster_too(machine: Machine, address: str) -> None:
    words = ["pretrain", "canine-s-tiny", "--data", "nowhere", "--output", "/tmp/none", "--workers", "2"]
    said = machine.run("cluster", "submit", "--", *words, status=2)
    assert "nowhere" in said.splitlines()[-1]
    assert machine.run("cluster", "logs", "no-such-job", status=2) == (
        f"tokenfree: there is no job no-such-job at {address}; tokenfree cluster jobs lists them\n"
    )
    assert "a local cluster runs already, at" in machine.run("cluster", "local", status=2)


def test_ctrl_c_leaves_the_job(machine: Machine, address: str) -> None:
    client = machine.start("cluster", "submit", "--", "doctor", "--storage", "s3://nowhere")
    job = wait_for(client, r"job         (\S+)")
    time.sleep(1)
    client.send_signal(signal.SIGINT)
    said, _ = client.communicate(timeout=60)
    assert client.returncode == 130
    assert f"the job continues; tokenfree cluster logs {job} shows it" in said
    assert machine.run("cluster", "stop", job).startswith(f"job {job}: ")


def test_it_asks_for_its_token_and_listens_on_loopback_alone(machine: Machine, address: str) -> None:
    assert requests.get(f"{address}/api/jobs/", timeout=10).status_code == 401
    token = machine.token.read_text()
    assert requests.get(f"{address}/api/jobs/", headers={"Authorization": f"Bearer {token}"}, timeout=10).ok
    found = [each for process in machine.processes() for each in listening(process)]
    assert len(found) > 10
    assert {address for address in found if address not in ("127.0.0.1", "::1", "::ffff:127.0.0.1")} == set()
    machine.token.rename(machine.folder / "other")
    machine.token.write_text("0" * 64)
    assert "requires another token than the one of this machine" in machine.run("cluster", "jobs", status=2)
    (machine.folder / "other").rename(machine.token)
    written = [path for path in machine.folder.glob("tf-*/**/*") if path.is_file() and not path.is_socket()]
    assert any("raylet" in path.name for path in written)
    assert [path for path in written if token.encode() in path.read_bytes()] == []


def listening(process: psutil.Process) -> list[str]:
    """The addresses at which a process takes connections."""
    try:
        found = process.net_connections("inet")
    except psutil.Error:
        return []
    return [connection.laddr.ip for connection in found if connection.status == psutil.CONN_LISTEN]


def test_ctrl_c_ends_a_local_cluster(tmp_path_factory: pytest.TempPathFactory) -> None:
    with tempfile.TemporaryDirectory(prefix="tfc-", dir="/tmp") as folder:
        machine = Machine(Path(folder))
        command = machine.start("cluster", "local", "--nodes", "1", "--no-token")
        address = wait_for(command, r"a local cluster of 1 node takes jobs at (\S+)")
        assert requests.get(f"{address}/api/jobs/", timeout=10).ok  # as --no-token asks
        command.send_signal(signal.SIGINT)
        said, _ = command.communicate(timeout=120)
        assert command.returncode == 0, said
        assert machine.processes() == []
        assert not machine.token.exists()


def test_ray_still_has_what_keeps_nodes_to_loopback() -> None:
    assert isinstance(loopback_node.ray_constants.ENABLE_RAY_CLUSTER, bool)
    assert callable(loopback_node.services.get_node_ip_address)
    assert callable(loopback_node.scripts.main)
