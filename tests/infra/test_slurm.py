"""The scripts of infra/slurm on a real Slurm: a controller and two node daemons on this machine, as root.

Debian has the programs: apt-get install slurmctld slurmd slurm-client munge
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

SCRIPTS = REPOSITORY / "infra" / "slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
_missing = [name for name in PROGRAMS if shutil.which(name) is None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="the node daemons of Slurm need root"),
    pytest.mark.skipif(
        bool(_missing), reason=f"{', '.join(_missing)}: not installed (Debian: slurmctld slurmd munge)"
    ),
]

CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
KillWait=60
NodeName=n[0-1] NodeHostname={host} NodeAddr=127.0.0.1 Port=[16818-16819] CPUs=2
PartitionName=all Nodes=ALL Default=YES State=UP
"""
ENDED = ("FAILED", "TIMEOUT", "NODE_FAIL", "CANCELLED", "COMPLETED")


class Slurm:
    """A Slurm of two nodes in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        bin_folder = Path(sys.executable).parent
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
        }

    def run(self, *words: str | Path) -> str:
        """Run a program of Slurm and return its output."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submit(self, *words: str | Path) -> str:
        """Submit a job and return its number."""
        return self.run("sbatch", "--parsable", f"--output={self.folder}/%j.out", *words)

    def state(self, job: str) -> dict[str, str]:
        """Return what Slurm reports of a job."""
        words = self.run("scontrol", "show", "job", "--oneliner", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: str, state: str, seconds: float = 400) -> None:
        """Wait until a job is in a state."""
        end = time.monotonic() + seconds
        while (now := self.state(job)["JobState"]) != state:
            assert now not in ENDED, f"{now}\n{self.output(job)}"
            assert time.monotonic() < end, f"{now}\n{self.output(job)}"
            time.sleep(1)

    def output(self, job: str) -> str:
        """Return what a job printed."""
        file = Path(self.state(job)["StdOut"])
        return file.read_text(errors="replace") if file.exists() else ""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "slurm.conf").write_text(CONFIG.format(folder=folder, host=socket.gethostname().split(".")[0]))
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    (folder / "state").mkdir()
    slurm = Slurm(folder)
    files = [
        f"--{name}={folder}/munge.{name.partition('-')[0]}"
        for name in ("key-file", "socket", "pid-file", "log-file", "seed-file")
    ]
    programs = [["munged", "--force", "--foreground", *files], ["slurmctld", "-D"]]
    programs += [["slurmd", "-D", "-N", f"n{number}"] for number in (0, 1)]
    processes = []
    try:
        for words in programs:
            processes.append(subprocess.Popen(words, env=slurm.environment, stderr=subprocess.DEVNULL))
            time.sleep(2)
        yield slurm
    finally:
        subprocess.run(["scancel", "--user=root"], env=slurm.environment, timeout=60, check=False)
        for process in reversed(processes):
            process.terminate()
            process.wait(60)


@pytest.fixture(scope="module")
def data(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data of two dumps, written by an array job."""
    from tokenfree.workflows.demo_corpus.corpus import write_demo_corpus

    folder = tmp_path_factory.mktemp("dumps")
    [dump] = write_demo_corpus(folder / "corpus").wikipedia
    for wiki in ("aawiki", "bbwiki"):
        shutil.copy(dump, folder / f"{wiki}-pages-articles.xml.bz2")
    job = slurm.submit(
        "--array=0-1", SCRIPTS / "preprocess.sbatch", folder, folder / "data", "wikipedia-tiny"
    )
    for task in (0, 1):
        slurm.wait(f"{job}_{task}", "COMPLETED")
    return folder / "data"


def test_an_array_preprocesses_each_dump(data: Path) -> None:
    assert sorted(path.parent.name for path in data.glob("*/manifest.json")) == ["aawiki", "bbwiki"]


def test_pretraining_on_two_nodes_resumes_after_a_requeue(slurm: Slurm, data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("--train.steps", "300", "--train.checkpoint_every_steps", "1000", "--train.global_batch", "8")
    command = (
        "pretrain",
        "canine-fast-tiny",
        "--data",
        data / "aawiki",
        "--output",
        run,
        "--workers",
        "2",
        *words,
    )
    job = slurm.submit("--nodes=2", "--cpus-per-task=1", SCRIPTS / "ray.sbatch", *command)
    end = time.monotonic() + 300
    while " loss " not in slurm.output(job):
        assert slurm.state(job)["JobState"] not in ENDED, slurm.output(job)
        assert time.monotonic() < end, slurm.output(job)
        time.sleep(1)
    # As `--signal=B:TERM@120` does before the time limit.
    slurm.run("scancel", "--batch", "--signal=TERM", job)
    while slurm.state(job)["Restarts"] != "1":
        assert time.monotonic() < end, slurm.output(job)
        time.sleep(1)
    stopped = [path.name for path in (run / "checkpoints").iterdir()]
    assert len(stopped) == 1, "it wrote a checkpoint at the signal"
    slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now")  # a requeued job waits for two minutes
    slurm.wait(job, "COMPLETED")
    step = int(stopped[0].removeprefix("step_"))
    assert f"step {step + 1}/300 " in slurm.output(job).partition("REQUEUE")[2], "it resumes at the next step"
    assert (run / "checkpoints" / "step_00000300").exists()


def test_a_command_that_fails_fails_the_job(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit(
        SCRIPTS / "ray.sbatch", "pretrain", "no-such-recipe", "--data", tmp_path, "--output", tmp_path / "r"
    )
    slurm.wait(job, "FAILED")
    assert slurm.state(job)["ExitCode"] == "2:0"
    assert "no-such-recipe" in slurm.output(job)
