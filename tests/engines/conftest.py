"""Engines of Beam that `make test-engines` fetched, a dump for them, and what the direct runner makes of it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tools.engines import fetch
from tools.engines.flink import FlinkCluster, flink_cluster
from tools.engines.spark import SparkCluster, spark_cluster
from tools.repeated_dump import parse_size, write_repeated

SIZE = os.environ.get("TOKENFREE_ENGINES_DUMP", "100MB")  # of XML
# Some dozens of splits and shards: at any moment each slot is in the middle of one, and some are done.
SETTINGS = ("--vocabulary.size", "4000", "--vocabulary.sample_characters", "1000000")
JOB_SECONDS = 3000


class Command:
    """`tokenfree preprocess` as a process that leads a group, which the job server that it starts belongs to."""

    def __init__(self, dump: Path, output: Path, options: Sequence[str], log: Path) -> None:
        self.output, self.log = output, log
        command = [sys.executable, "-P", "-m", "tokenfree", "preprocess", "--wikipedia", str(dump)]
        split_bytes = str(max(dump.stat().st_size // 12, 50_000))
        shard_characters = str(max(parse_size(SIZE) // 50, 1000))
        command += [
            "--output",
            str(output),
            "--split_bytes",
            split_bytes,
            "--shard_characters",
            shard_characters,
        ]
        command += [*SETTINGS, *options]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def succeed(self) -> None:
        """Wait for its end, which must be a good one."""
        assert self.process.wait(JOB_SECONDS) == 0, self.log.read_text()[-3000:]

    def await_files(self, folder: str, number: int) -> None:
        """Wait until it has committed this number of sidecars."""
        while len(list((self.output / "_work" / folder).rglob("*.json"))) < number:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.1)

    def kill(self) -> None:
        """End it and its job server at once, as when their machine is lost."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


@pytest.fixture
def preprocess(dump: Path, tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts the command on the dump; kills what a failed test leaves."""
    started: list[Command] = []

    def start(*options: str) -> Command:
        started.append(Command(dump, tmp_path / "out", options, tmp_path / "command.log"))
        return started[-1]

    yield start
    for command in started:
        command.kill()


@pytest.fixture(scope="session")
def dump(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of the English excerpt again and again, in many streams."""
    path = tmp_path_factory.mktemp("dump") / "enwiki-repeated-pages-articles-multistream.xml.bz2"
    write_repeated(test_data / "wiki-dumps" / "enwiki-2016-shortened.xml.bz2", parse_size(SIZE), path)
    return path


@pytest.fixture(scope="session")
def wanted(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the direct runner makes of the dump, by name."""
    folder = tmp_path_factory.mktemp("direct")
    Command(dump, folder / "out", ("--workers", "2"), folder / "command.log").succeed()
    return contents(folder / "out")


def contents(output: Path) -> dict[str, bytes]:
    """All files but the mark, which tells times."""
    files = [path for path in output.rglob("*") if path.is_file() and path.name != "_SUCCESS"]
    return {str(path.relative_to(output)): path.read_bytes() for path in files}


def fetched(path: Path) -> Path:
    """What `make test-engines` fetched, else the test is skipped."""
    if not path.exists():
        pytest.skip(f"{path} is not here; make test-engines fetches it")
    return path


@pytest.fixture
def flink(tmp_path: Path) -> Iterator[FlinkCluster]:
    """A job manager, two task managers with a slot each, two pools."""
    folder = tmp_path / "flink-files"
    folder.mkdir()
    with flink_cluster(fetched(fetch.flink()), fetched(fetch.job_server("flink")), folder) as cluster:
        yield cluster


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkCluster]:
    """A master, two workers with a core each, two pools."""
    folder = tmp_path / "spark-files"
    folder.mkdir()
    with spark_cluster(fetched(fetch.spark()), fetched(fetch.job_server("spark")), folder) as cluster:
        yield cluster
