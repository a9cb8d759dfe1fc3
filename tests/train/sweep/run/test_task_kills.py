"""A sweep of a task that is killed again and again ends as one that never was: to the byte."""

import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.train.finetune.conftest import splits
from tests.train.sweep.conftest import MakeTaskSweep
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.run import run_sweep
from tokenfree.train.sweep.subjects import TaskInput

PROGRAM = """
import pickle, sys
from tokenfree.train.sweep.run import run_sweep
sweep, given, output = pickle.loads(bytes.fromhex(sys.argv[1]))
run_sweep(sweep, given, output, progress=lambda event, history: print(event["event"], flush=True))
"""


def killed_after(reports: int, seconds: float, sweep: SweepRecipe, given: TaskInput, output: Path) -> int:
    """Run the sweep in a child process, kill it after these reports and seconds, and return its exit status."""
    argument = pickle.dumps((sweep, given, str(output))).hex()
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, argument],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        heard = 0
        for line in process.stdout:
            heard += line == "report\n"
            if heard >= reports:
                break
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    return process.returncode


def results(output: Path) -> dict[str, bytes]:
    """What the scores of a sweep and the predictions of its chosen runs are, by their files."""
    found = [output / "result.json", output / "best.yaml", *output.glob("trials/*/result.json")]
    found += output.glob("trials/*/predictions/*.jsonl")
    return {str(path.relative_to(output)): path.read_bytes() for path in sorted(found)}


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize(("task", "prefix", "kills"), [("classification", "", 20), ("tagging", "tags_", 3)])
def test_killed_at_several_moments(
    task: str, prefix: str, kills: int, make_task_sweep: MakeTaskSweep, files: dict[str, str], tmp_path: Path
) -> None:
    sweep, given = make_task_sweep(task, train={"steps": 48}), TaskInput(splits(files, prefix))
    run_sweep(sweep, given, str(tmp_path / "undisturbed"))
    draws = random.Random(14)
    statuses = list[int]()
    for _ in range(kills):  # 4 trials make 96 reports
        reports, seconds = draws.randrange(4), draws.random() / 2
        statuses.append(killed_after(reports, seconds, sweep, given, tmp_path / "killed"))
    assert set(statuses) <= {-signal.SIGKILL, 0}
    assert statuses.count(-signal.SIGKILL) > kills // 2
    run_sweep(sweep, given, str(tmp_path / "killed"))
    undisturbed, killed = results(tmp_path / "undisturbed"), results(tmp_path / "killed")
    # Two seeds of the best setting, each with a result and two predictions.
    assert len(undisturbed) == 2 + 2 * 3
    assert undisturbed == killed
