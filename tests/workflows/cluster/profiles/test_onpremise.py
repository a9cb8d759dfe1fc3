"""The on-premise profile, executed over SSH on three hosts of their own: up, a job on all of them, down."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.namespaces import permitted
from tests.test_end_to_end import MODEL, TINY
from tests.workflows.cluster.hosts import SHARED, Hosts
from tokenfree.core.machine import cores
from tokenfree.workflows.cluster import profiles
from tokenfree.workflows.demo_corpus.corpus import bundled_pages, write_dump

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
LAPTOP, HEAD, WORKERS = 9, 1, (2, 3)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    missing = [name for name in ("sshd", "ssh", "rsync", "ip") if shutil.which(name) is None]
    if missing or not permitted():
        pytest.skip(
            f"hosts over SSH need root and the programs sshd, ssh, rsync, ip; not here: {', '.join(missing)}"
        )
    with tempfile.TemporaryDirectory(prefix="tfh-", dir="/tmp") as folder:
        made = Hosts(Path(folder))
        try:
            for number in (LAPTOP, HEAD, *WORKERS):
                made.add(number)
            for number in (HEAD, *WORKERS):
                made.serve_ssh(number)
            yield made
        finally:
            made.close()


@pytest.fixture
def profile(hosts: Hosts) -> str:
    text = profiles.find("onpremise").read_text(encoding="utf-8")
    workers = ", ".join(hosts.address(number) for number in WORKERS)
    for place, value in (("<head-address>", hosts.address(HEAD)), ("<worker-address>", workers), ("<user>", "root"),
                         ("~/.ssh/id_ed25519", str(hosts.folder / "key"))):  # fmt: skip
        text = text.replace(place, value)
    path = hosts.folder / "ours.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def start(hosts: Hosts, *words: str) -> "subprocess.Popen[str]":
    """A command on the laptop."""
    return subprocess.Popen(
        hosts.inside(LAPTOP, list(words)),
        env=hosts.environment(LAPTOP),
        cwd=hosts.home(LAPTOP),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def tokenfree(hosts: Hosts, *words: str, status: int = 0) -> str:
    process = start(hosts, sys.executable, "-P", "-m", "tokenfree", *words)
    said, _ = process.communicate(timeout=900)
    assert process.returncode == status, said
    return said


def test_up_a_job_and_down(hosts: Hosts, profile: str) -> None:
    said = tokenfree(hosts, "cluster", "up", profile, "--yes")
    assert "Ray on 3 machines of your own: 10.98.0.1, 10.98.0.2, 10.98.0.3" in said
    token = (hosts.home(LAPTOP) / ".ray" / "auth_token").read_text()
    until = time.monotonic() + 400
    while num_cpus(said := tokenfree(hosts, "cluster", "status", profile)) < 3 * cores():
        assert time.monotonic() < until, said
        time.sleep(3)
    assert all(
        (hosts.home(number) / ".ray" / "auth_token").read_text() == token for number in (HEAD, *WORKERS)
    )

    tunnel = start(hosts, sys.executable, "-P", "-m", "ray.scripts.scripts", "dashboard", profile)
    try:
        shared, home = hosts.folder / "shared", hosts.home(LAPTOP)
        write_dump(shared / "enwiki-test-pages-articles.xml.bz2", bundled_pages())
        (home / "small.yaml").write_text(yaml.safe_dump(MODEL))
        dump = f"{SHARED}/enwiki-test-pages-articles.xml.bz2"
        until = time.monotonic() + 60
        while "no Ray cluster answers" in subprocess.run(
            hosts.inside(LAPTOP, [sys.executable, "-P", "-m", "tokenfree", "cluster", "jobs"]),
            env=hosts.environment(LAPTOP), capture_output=True, text=True).stderr:  # fmt: skip
            assert time.monotonic() < until
        tokenfree(
            hosts,
            "cluster",
            "submit",
            "--",
            "preprocess",
            "--wikipedia",
            dump,
            "--output",
            f"{SHARED}/data",
            *TINY,
        )
        said = tokenfree(hosts, "cluster", "submit", "--send", "small.yaml", "--", "pretrain", "small.yaml",
                         "--data", f"{SHARED}/data", "--output", f"{SHARED}/run", "--workers", "2")  # fmt: skip
        assert "held-out loss" in said
        assert (shared / "run" / "result.json").is_file()
        assert token not in said
    finally:
        tunnel.kill()
        tunnel.wait()
    tokenfree(hosts, "cluster", "down", profile, "--yes")


def num_cpus(status: str) -> float:
    """The CPUs of all nodes, as `ray status` says."""
    found = re.search(r"[\d.]+/([\d.]+) CPU", status)
    return float(found[1]) if found else 0.0
