"""A small dump on Flink in about a minute, where `make test-engines` was run once."""

from pathlib import Path

import pytest

from tests.engines.conftest import Command, contents, fetched
from tools.engines import fetch
from tools.engines.flink import flink_cluster


@pytest.mark.timeout(900)
def test_flink_writes_the_bytes_of_the_direct_runner(test_data: Path, tmp_path: Path) -> None:
    flink, job_server = fetched(fetch.flink()), fetched(fetch.job_server("flink"))
    dump = test_data / "wiki-dumps" / "simplewiki-excerpt.xml"
    with flink_cluster(flink, job_server, tmp_path, task_managers=1) as cluster:
        direct = Command(dump, tmp_path / "direct", (), tmp_path / "direct.log")  # while Flink starts its own
        command = Command(dump, tmp_path / "out", cluster.options(), tmp_path / "command.log")
        try:
            command.succeed()
            direct.succeed()
        finally:
            command.kill()
            direct.kill()
    assert contents(command.output) == contents(tmp_path / "direct")
