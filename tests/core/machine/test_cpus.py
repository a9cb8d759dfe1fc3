"""CPUs to use, and threads that sleep while they wait."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tokenfree.core.machine import cores


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({}, 1000),
        ({"cpu.max": "max 100000"}, 1000),
        ({"cpu.max": "150000 100000"}, 1),
        ({"cpu.max": "20000 100000"}, 1),
        ({"cpu.max": "200000 100000"}, 2),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 1000),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
    ],
)
def test_a_container_has_its_share_of_the_machine(
    tmp_path: Path, files: Mapping[str, str], share: int
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert cores(tmp_path) == min(share, len(os.sched_getaffinity(0)))


def test_the_command_line_has_threads_sleep_before_openmp_starts(tmp_path: Path) -> None:
    """OpenMP prints its settings when it is loaded, with torch: any later setting would come to nothing."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    program = "from tokenfree.workflows.cli import main; main(['model', 'canine-s-tiny'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**environment, "OMP_DISPLAY_ENV": "true"},
    )
    assert done.returncode == 0, done.stderr
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr
