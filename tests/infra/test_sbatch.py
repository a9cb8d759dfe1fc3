"""The decisions of infra/slurm/ray.sbatch, with stand-ins for Slurm, Ray and the command."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PROGRAMS = {
    "python": "echo word",
    "srun": "exit 0",
    "ray": "exit 0",
    "scontrol": 'if [ "$1" = requeue ]; then touch "$FOLDER/requeued"; else echo node; fi',
    "tokenfree": 'for name in TERM USR1; do trap "sleep 0.5; exit $STATUS" $name; done; touch "$FOLDER/begun"; '
    'if [ "$1" = wait ]; then while true; do sleep 0.05; done; fi; exit $STATUS',
}


@pytest.mark.parametrize(
    ("kind", "status", "requeued"),
    [
        (None, 0, False),
        (None, 1, False),
        (None, 2, False),
        (None, 137, False),
        (None, 143, True),
        (signal.SIGTERM, 143, True),
        (signal.SIGUSR1, 138, True),
        (signal.SIGTERM, 0, False),
        (signal.SIGTERM, 1, False),
    ],
)
def test_ray_sbatch_requeues_by_the_exit_status(
    kind: signal.Signals | None, status: int, requeued: bool, tmp_path: Path
) -> None:
    for name, lines in PROGRAMS.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/bash\n{lines}\n")
        program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "FOLDER": str(tmp_path),
        "STATUS": str(status),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_NODELIST": "node",
    }
    words = [
        "bash",
        str(REPOSITORY / "infra" / "slurm" / "ray.sbatch"),
        "pretrain" if kind is None else "wait",
    ]
    with subprocess.Popen(words, env=environment) as job:
        while kind is not None and not (tmp_path / "begun").exists():
            time.sleep(0.05)
        if kind is not None:
            job.send_signal(kind)
        assert job.wait(20) == status
    assert (tmp_path / "requeued").exists() == requeued
