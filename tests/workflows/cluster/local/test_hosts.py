"""Three hosts with addresses of their own, a store served on one of them, and hosts that are cut off in the middle."""

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import IO, Any

import pytest
import yaml

from tests.conftest import read_json_lines
from tests.engines.conftest import contents
from tests.namespaces import permitted
from tests.test_end_to_end import MODEL, TINY
from tests.workflows.cluster.hosts import Hosts
from tokenfree.workflows.demo_corpus.corpus import bundled_pages, write_dump
from tools.repeated_dump import write_repeated

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
PORT = 5055
EXACT = ("step", "num_targets", "characters")
# Without dropout, whose masks are drawn for each worker's share of a batch, and long enough to lose a host
# meanwhile
LONG: dict[str, Any] = {
    "base": MODEL["base"],
    "model": {**MODEL["model"], "trunk": {**MODEL["model"]["trunk"], "dropout": 0.0}},
    "train": {**MODEL["train"], "steps": 3000, "checkpoint_every_steps": 100, "validate_every_steps": 1000,
              "learning_rate": 0.0001},
}  # fmt: skip


class Cluster:
    """Commands on the first of three hosts, whose Ray is a local cluster that was started from outside of them."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts, self.work = hosts, hosts.home(1)
        store = {"AWS_ENDPOINT_URL": f"http://{hosts.address(1)}:{PORT}", "AWS_ACCESS_KEY_ID": "key",
                 "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip
        self.env = {**hosts.environment(1), **store}

    def start(
        self, *command: str, on_host: bool = True, log: int | IO[str] = PIPE
    ) -> "subprocess.Popen[str]":
        where = ["ip", "netns", "exec", self.hosts.name(1)] if on_host else []
        return subprocess.Popen([*where, sys.executable, "-P", *command], cwd=self.work, env=self.env, text=True,
                                stdin=DEVNULL, stdout=log, stderr=STDOUT)  # fmt: skip

    def run(self, *words: str) -> str:
        process = self.start("-m", "tokenfree", *words)
        said, _ = process.communicate(timeout=1200)
        assert process.returncode == 0, said
        return said

    def read(self, process: "subprocess.Popen[str]", words: str) -> None:
        """Read what a command writes until these words come."""
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if words in line:
                return
        raise AssertionError("".join(said))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("moto.server")
    if shutil.which("ssh-keygen") is None or not permitted():
        pytest.skip("hosts need root and the programs ip and ssh-keygen")
    with tempfile.TemporaryDirectory(prefix="tfh-", dir="/tmp") as folder, contextlib.ExitStack() as stack:
        hosts = Hosts(Path(folder))
        stack.callback(hosts.close)
        for number in (1, 2, 3):
            hosts.add(number)
        made = Cluster(hosts)
        log = made.work / "store.log"  # no pipe: a line for each request fills one that nobody reads
        with log.open("w") as file:
            store = made.start("-m", "moto.server", "-H", hosts.address(1), "-p", str(PORT), log=file)
        stack.callback(store.kill)
        while "Running on" not in log.read_text():
            assert store.poll() is None, log.read_text()
            time.sleep(0.1)
        names = [hosts.name(number) for number in (1, 2, 3)]
        command = made.start(
            "-m", "tokenfree", "cluster", "local", "--cpus", "1", "--hosts", *names, on_host=False
        )
        stack.callback(end, command)
        made.read(command, "a local cluster of 3 nodes takes jobs")
        yield made


def end(command: "subprocess.Popen[str]") -> None:
    command.send_signal(signal.SIGINT)
    command.wait(120)


def test_a_run_and_a_sweep_outlive_the_hosts_they_began_on(cluster: Cluster, tmp_path: Path) -> None:
    assert stored(cluster, "mkdir('bucket')").wait(60) == 0
    write_dump(cluster.work / "enwiki-test-pages-articles.xml.bz2", bundled_pages())
    (cluster.work / "long.yaml").write_text(yaml.safe_dump(LONG))
    dump = str(cluster.work / "enwiki-test-pages-articles.xml.bz2")
    cluster.run(
        "cluster", "submit", "--", "preprocess", "--wikipedia", dump, "--output", "s3://bucket/data", *TINY
    )
    words = ("pretrain", "long.yaml", "--data", "s3://bucket/data", "--output")
    client = cluster.start("-m", "tokenfree", "cluster", "submit", "--send", "long.yaml", "--", *words, "s3://bucket/run",
                           "--workers", "2:3")  # fmt: skip
    cluster.read(client, "step 1")
    cluster.hosts.unplug(3)
    said, _ = client.communicate(timeout=1500)
    assert client.returncode == 0, said
    assert "worker_lost" in fetched(cluster, "run", "events.jsonl").read_text()
    cluster.run(*words, "s3://bucket/undisturbed")
    lines, expected = (losses(cluster, run) for run in ("run", "undisturbed"))
    assert len(lines) == 3000
    assert [[line[key] for key in EXACT] for line in lines] == [
        [line[key] for key in EXACT] for line in expected
    ]
    assert [line["loss"] for line in lines] == pytest.approx([line["loss"] for line in expected], rel=1e-3)

    (cluster.work / "base.yaml").write_text(yaml.safe_dump(MODEL))
    space = {"model.downsampler.rate": {"choice": [2, 4]}, "train.learning_rate": {"choice": [0.001, 0.002]}}
    sweep = {"base": "base.yaml", "space": space, "trials": 4, "budget": {"steps": 60}, "reports": 3,
             "scheduler": "none"}  # fmt: skip
    (cluster.work / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    client = cluster.start("-m", "tokenfree", "cluster", "submit", "--send", "sweep.yaml", "--send", "base.yaml", "--",
                           "sweep", "sweep.yaml", "--data", "s3://bucket/data", "--output",
                           str(cluster.work / "sweep"))  # fmt: skip
    until = time.monotonic() + 300
    while not list((cluster.work / "sweep").rglob("COMMIT")):
        assert client.poll() is None
        assert time.monotonic() < until
        time.sleep(0.5)
    cluster.hosts.unplug(2)
    said, _ = client.communicate(timeout=1200)
    assert client.returncode == 0, said
    assert "4 trials: 4 finished" in said


def losses(cluster: Cluster, run: str) -> list[dict[str, Any]]:
    """The lines of the steps of a run in the store."""
    return [line for line in read_json_lines(fetched(cluster, run, "metrics.jsonl")) if "loss" in line]


def fetched(cluster: Cluster, run: str, name: str) -> Path:
    """A file of a run in the store."""
    target = cluster.work / f"{run}_{name}"
    assert stored(cluster, f"get('bucket/{run}/{name}', {str(target)!r})").wait(60) == 0
    return target


def stored(cluster: Cluster, call: str) -> "subprocess.Popen[str]":
    """A call of the store's file system, on the first host."""
    return cluster.start("-c", f"import fsspec; fsspec.filesystem('s3').{call}", log=DEVNULL)


def test_preprocessing_on_all_hosts_outlives_one_of_them(cluster: Cluster, test_data: Path) -> None:
    assert stored(cluster, "mkdir('bucket')").wait(60) == 0
    dump = "enwiki-repeated-pages-articles-multistream.xml.bz2"
    write_repeated(
        test_data / "wiki-dumps" / "enwiki-2016-shortened.xml.bz2", 15_000_000, cluster.work / dump
    )
    words = ["preprocess", "--wikipedia", str(cluster.work / dump), "--vocabulary.size", "4000",
             "--vocabulary.sample_characters", "300000", "--split_bytes", "60000", "--shard_characters", "400000",
             "--output"]  # fmt: skip
    cluster.run(*words, "direct")
    client = cluster.start(
        "-m", "tokenfree", "cluster", "submit", "--", *words, "s3://bucket/ray", "--runner", "ray"
    )
    until = time.monotonic() + 600
    while stored(cluster, "glob('bucket/ray/_work/runs/*.json')[7]").wait(60):  # there are fewer yet
        assert time.monotonic() < until
        assert client.poll() is None
    cluster.hosts.unplug(3)
    said, _ = client.communicate(timeout=1200)
    assert client.returncode == 0, said
    (lost,) = [line for line in said.splitlines() if "lost" in line]
    assert (
        f"the Ray node {cluster.hosts.address(3)} was lost with a worker; starting again on the others"
        in lost
    )
    assert (
        stored(cluster, f"get('bucket/ray', {str(cluster.work / 'fetched')!r}, recursive=True)").wait(60) == 0
    )
    found = contents(cluster.work / "fetched")
    assert {name: data for name, data in found.items() if not name.startswith("_lock")} == contents(
        cluster.work / "direct"
    )
