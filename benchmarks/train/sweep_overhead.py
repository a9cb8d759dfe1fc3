"""Seconds that a trial of a sweep costs in addition to its training, compared with plain use of Ray Tune.

On one local cluster of two CPUs, both train the same settings for the same steps with the same reports, two
trials at a time. The plain way is a function that imports what it needs, builds the loop, trains and reports,
in one process per trial. A trial's overhead is (wall time of the sweep x 2 - seconds of training steps) /
trials. It includes the start of the processes, the validations and our checkpoints, but not the start of Ray.

    python -m benchmarks.train.sweep_overhead --data demo/data                # eight trials of twelve steps
    python -m benchmarks.train.sweep_overhead --data demo/data --trials 24

With `--plan`, measure instead the CPU seconds that a sweep takes before its first trial, for each searcher
that plans ahead: choose the settings of `three-knobs-tiny`, check them against the data, and place them.

    python -m benchmarks.train.sweep_overhead --data demo/data --plan 100 1000 10000
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from ray import tune

from tokenfree.core.settings import build
from tokenfree.core.settings_values import to_mapping
from tokenfree.train.ray.cluster import ray_session
from tokenfree.train.sweep.recipe import SweepRecipe
from tokenfree.train.sweep.run import prepare, run_sweep
from tokenfree.train.sweep.tune import find_placement
from tokenfree.workflows.recipes import library
from tokenfree.workflows.recipes.training import build_sweep

SIDE_BY_SIDE, STEPS, REPORTS = 2, 12, 3


def ours(sweep: SweepRecipe, data: str, folder: Path) -> tuple[float, float]:
    """Return the wall seconds of a sweep, and the training seconds of its trials."""
    began = time.perf_counter()
    result = run_sweep(sweep, data, str(folder / "sweep"))
    return time.perf_counter() - began, sum(trial.last["train_seconds"] for trial in result.trials)


def plain(sweep: SweepRecipe, data: str, folder: Path) -> tuple[float, float]:
    """Return the same for Ray Tune with a function."""
    settings = prepare(sweep, data, str(folder))[1].proposed
    configs = [{"recipe": to_mapping(sweep.recipe(values)), "data": data} for values in settings]
    began = time.perf_counter()
    results = tune.Tuner(
        tune.with_resources(train_plainly, {"CPU": 1}),
        param_space={"setting": tune.grid_search(configs)},
        tune_config=tune.TuneConfig(trial_dirname_creator=lambda trial: trial.trial_id),
        run_config=tune.RunConfig(name="plain", storage_path=str(folder), verbose=0),
    ).fit()
    wall = time.perf_counter() - began
    return wall, sum((result.metrics or {})["train_seconds"] for result in results)


def planning_seconds(searcher: str, data: str, trials: int) -> float:
    """Return the CPU seconds of planning and placing this number of trials."""
    mapping = library.resolve("three-knobs-tiny", None)
    # A grid takes no range.
    alphas = {
        "model.trunk.attention.alpha": {"choice": [round(number / 250, 3) for number in range(-250, 251)]}
    }
    space = {**mapping["space"], **(alphas if searcher == "grid" else {})}
    mapping = {**mapping, "space": space, "searcher": searcher, "trials": trials}
    sweep = build_sweep(mapping, {}, "benchmark")
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        proposer, planned = prepare(sweep, data, folder)
    assert len(planned.proposed) == trials
    find_placement(proposer.sweep, planned.proposed, [{"CPU": 1.0}])
    return time.process_time() - began


def train_plainly(config: dict[str, Any]) -> None:
    """Run a trial of the plain way."""
    from tokenfree.train.config import PretrainRecipe
    from tokenfree.train.loop.pretraining import Loop

    recipe = build(PretrainRecipe, config["setting"]["recipe"], source="trial")
    loop = Loop(recipe, config["setting"]["data"])
    seconds = 0.0
    for number in range(1, REPORTS + 1):
        began = time.perf_counter()
        list(loop.steps(STEPS * number // REPORTS))
        seconds += time.perf_counter() - began
        tune.report({**loop.validate(), "train_seconds": seconds})


def main() -> None:
    """Run both and print their results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", metavar="DIR", required=True, help="a data directory made by `tokenfree preprocess`"
    )
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--plan", type=int, nargs="+", metavar="TRIALS", default=())
    arguments = parser.parse_args()
    trials, data = arguments.trials, os.path.abspath(arguments.data)
    if arguments.plan:
        for searcher in ("even", "grid", "random"):
            for number in arguments.plan:
                seconds = planning_seconds(searcher, data, number)
                print(f"{searcher:<8}{number:>7} trials: {seconds:6.2f} CPU s", flush=True)
        return
    mapping = {
        "base": library.read_based("canine-s-tiny"),
        "overrides": {"train": {"global_batch": 8, "validation_windows": 16, "threads": 1}},
        "space": {"train.learning_rate": {"log_uniform": [0.0005, 0.01]}},
        "scheduler": "none",
        "trials": trials,
        "budget": {"steps": STEPS},
        "reports": REPORTS,
    }
    sweep = build(SweepRecipe, mapping, source="benchmark")
    overheads = {}
    with tempfile.TemporaryDirectory() as folder, ray_session(SIDE_BY_SIDE):
        for name, way in (("ours", ours), ("plain Tune", plain)):
            wall, training = way(sweep, data, Path(folder))
            overheads[name] = (wall * SIDE_BY_SIDE - training) / trials
            print(
                f"{name:<12}{trials} trials: {wall:6.1f} s, of which {training:6.1f} s of training; overhead "
                f"{overheads[name]:5.2f} s a trial",
                flush=True,
            )
    print(json.dumps({name: round(seconds, 2) for name, seconds in overheads.items()}))


if __name__ == "__main__":
    main()
