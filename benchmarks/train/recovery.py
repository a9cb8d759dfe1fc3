"""How long a run of two workers takes from the loss of one to its next step, by part.

    python -m benchmarks.train.recovery --data data/en --output /tmp/recovery --kills 3

One of the workers is killed with SIGKILL some steps after the start and after each recovery. Each part ends
when:

    noticed     the controller knows
    processes   new ones are ready: placement, Python, imports, torch.distributed
    model       data opened, model and optimizer built, checkpoint read and loaded
    first step  the step after it is done

First it prints the CPU seconds of each task of a new worker, one after the other in one thread. They show
what an idle machine needs, even if this one is busy. `--kills 0` measures only these.
"""

import argparse
import contextlib
import datetime
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from tokenfree.core.errors import JobError
from tokenfree.core.settings import build, merge
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.pretrain import pretrain
from tokenfree.train.ray.child import ray_processes
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoints import checkpoint_name
from tokenfree.train.runs.run import Run
from tokenfree.workflows.recipes import library

IMPORTS = {  # each includes the imports of the previous one
    "Ray": "ray",
    "Ray Train": "ray.train.v2._internal.execution.worker_group.worker",
    "torch": "ray.train.v2._internal.execution.worker_group.worker, torch",
    "tokenfree": "tokenfree.train.ray.driver",
}
PARTS = ("noticed", "processes", "model", "first step")


class Killer:
    """A progress callback that kills a worker at random steps and records the times of what follows."""

    def __init__(self, kills: int, seed: int) -> None:
        self.times: list[dict[str, float]] = []
        self._kills, self._random = kills, random.Random(seed)
        self._at, self._open = self._random.randint(5, 40), False

    def __call__(self, line: Mapping[str, Any]) -> None:
        """Take a line of metrics or events."""
        if line.get("event") == "worker_lost":
            self.times[-1]["noticed"] = line["time"]
        # It is "start" if there was no checkpoint yet.
        elif line.get("event") in ("start", "resume") and self._open:
            self.times[-1]["model"] = line["time"]
        elif "loss" in line and self._open and "model" in self.times[-1]:
            self.times[-1]["first step"] = time.time()
            self._at, self._open = line["step"] + self._random.randint(5, 40), False
            if len(self.times) == self._kills:
                os.kill(os.getpid(), signal.SIGTERM)  # training ends with a checkpoint
        elif "loss" in line and not self._open and line["step"] >= self._at and len(self.times) < self._kills:
            workers = ray_processes(title="ray::RayTrainWorker")
            os.kill(self._random.choice(workers).pid, signal.SIGKILL)
            self.times.append({"killed": time.time()})
            self._open = True


def main() -> None:
    """Print a line for each kill and the median of each part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", nargs="?", default="canine-s-tiny")
    parser.add_argument("--data", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    mapping = {"steps": 1_000_000, "checkpoint_every_steps": 10, "validate_every_steps": 1_000_000}
    recipe = build(
        PretrainRecipe, merge(library.read_based(args.recipe), {"train": mapping}), source=args.recipe
    )
    print(
        "CPU seconds of a new worker: "
        + ", ".join(f"{name} {value:.2f}" for name, value in cpu(recipe, args.data))
    )
    if not args.kills:
        return
    killer = Killer(args.kills, args.seed)
    with contextlib.suppress(JobError):
        pretrain(recipe, args.data, args.output, workers=(2, 2), progress=killer)
    started = sorted(starts(Path(args.output)))
    rows = []
    for times in killer.times:
        marks = [times["killed"], times["noticed"], next(at for at in started if at > times["noticed"])]
        marks += [times["model"], times["first step"]]
        rows.append([later - earlier for earlier, later in itertools.pairwise(marks)])
    print(f"{'':12}" + "".join(f"{part:>12}" for part in (*PARTS, "together")) + "   seconds")
    for number, row in enumerate(rows, 1):
        print(f"{f'kill {number}':12}" + "".join(f"{seconds:12.1f}" for seconds in (*row, sum(row))))
    medians = [statistics.median(column) for column in zip(*rows, strict=True)]
    together = statistics.median(sum(row) for row in rows)
    load, cores = os.getloadavg()[0], os.cpu_count()
    print(f"{'median':12}" + "".join(f"{seconds:12.1f}" for seconds in (*medians, together)))
    print(f"load of the machine {load:.0f} on {cores} cores")


def cpu(recipe: PretrainRecipe, data: str) -> Iterator[tuple[str, float]]:
    """Yield the CPU seconds of each part."""
    timed = "import time; began = time.process_time(); import {}; print(time.process_time() - began)"
    before = 0.0
    for name, modules in IMPORTS.items():
        said = subprocess.run(
            [sys.executable, "-c", timed.format(modules)], capture_output=True, text=True, check=True
        )
        yield f"import of {name}", float(said.stdout) - before
        before = float(said.stdout)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as run:
        first = Loop(recipe, data)
        list(first.steps(1))
        checkpoints.write(Path(run) / "checkpoints" / checkpoint_name(1), *first.snapshot())
        marks = [time.process_time()]
        loop = Loop(recipe, data)
        marks.append(time.process_time())
        checkpoint = Run(run).newest(print)
        assert checkpoint is not None
        loop.load(checkpoint)
        marks.append(time.process_time())
        list(loop.steps(2))
        marks.append(time.process_time())
    parts = ("data, model, optimizer", "checkpoint", "first step")
    yield from zip(parts, (later - earlier for earlier, later in itertools.pairwise(marks)), strict=True)


def starts(run: Path) -> Iterator[float]:
    """Yield the times when the processes of a worker group were ready, in seconds since 1970, from Ray's logs."""
    for log in run.glob("ray/attempt_*/logs/ray-train-sys-controller-*.log"):
        for line in log.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if entry["message"].startswith("Started training worker group"):
                yield datetime.datetime.strptime(entry["asctime"], "%Y-%m-%d %H:%M:%S,%f").timestamp()


if __name__ == "__main__":
    main()
