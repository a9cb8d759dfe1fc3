"""Train small models on a GPU with other hash buckets, downsampling rates and alphas, each for the same FLOPs.

    python -m benchmarks.gpu.sweep --data DIR --output FOLDER    # about nine minutes
    python -m benchmarks.gpu.sweep --data DIR --check            # two steps of tiny models, on a CPU

The models are `canine-fast-small` with multi-scale attention, trained by the loop of `tokenfree pretrain`. The whole
grid has one seed; its corners have three. FOLDER/results.jsonl gets the loss on the same held-out targets for each.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.parts import Child, Part, Result, Runner, run_child
from tokenfree.core.settings import build, merge
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.shards import load_data_vocabulary
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.model.costs import costs
from tokenfree.train.torch_state import default_settings
from tokenfree.workflows.recipes import library

BUCKETS, RATES, ALPHAS = (2000, 8000, 32000), (2, 3, 4, 6), (-1.0, 0.0, 0.5, 1.0)
SEEDS = (0, 1, 2)
BASE: dict[str, Any] = {
    "model": {"trunk": {"attention": {"name": "multi_scale", "scales": [1, 3, "N/8", "N/4"]}}},
    "train": {"global_batch": 64, "precision": "auto", "validation_windows": 1024},
}
TINY: dict[str, Any] = {
    "model": {"width": 32, "trunk": {"layers": 1}},
    "train": {"length": 64, "global_batch": 8, "validation_windows": 8},
}
# 28 million characters at the rate of 4.
FLOPS = 6e14


def main() -> None:
    if run_child(measure):
        return
    options = parse()
    if not options.check and not torch.cuda.is_available():
        print("benchmarks.gpu.sweep: no CUDA device here; --check runs on a CPU", file=sys.stderr)
        raise SystemExit(2)
    until = time.monotonic() + options.seconds
    # Eight models train at once, because their FLOPs are compared and not their times.
    runner = Runner("benchmarks.gpu.sweep", options.output, until=until, gigabytes=40, at_once=8)
    runner.run(parts(options.data, options.flops, check=options.check))
    raise SystemExit(any("failed" in result for result in runner.results.values()))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="a data directory with subwords")
    parser.add_argument("--output", type=Path, default=Path("gpu-sweep"), metavar="FOLDER")
    parser.add_argument("--flops", type=float, default=FLOPS, help="floating-point operations of a model")
    parser.add_argument("--seconds", type=float, default=520, help="end after this time")
    parser.add_argument("--check", action="store_true", help="tiny models, two steps, on a CPU")
    return parser.parse_args()


def parts(data: str, flops: float, *, check: bool) -> list[Part]:
    """Return all settings with the first seed, the corners of the grid first, then the corners with other seeds."""
    ends = set(itertools.product(*((values[0], values[-1]) for values in (BUCKETS, RATES, ALPHAS))))
    grid = sorted(itertools.product(BUCKETS, RATES, ALPHAS), key=lambda setting: setting not in ends)
    settings = [(*setting, SEEDS[0]) for setting in grid]
    settings += [(*setting, seed) for seed in SEEDS[1:] for setting in sorted(ends)]
    return [
        Part(
            f"buckets {buckets}, rate {rate}, alpha {alpha:g}, seed {seed}",
            {"data": data, "flops": flops, "check": check}
            | {"buckets": buckets, "rate": rate, "alpha": alpha, "seed": seed},
            gigabytes=5,
        )
        for buckets, rate, alpha, seed in settings
    ]


def recipe_of(options: dict[str, Any]) -> PretrainRecipe:
    searched = {
        "model": {
            "embedder": {"buckets": options["buckets"]},
            "downsampler": {"rate": options["rate"]},
            "trunk": {"attention": {"alpha": options["alpha"]}},
        },
        "train": {"seed": options["seed"]},
    }
    mapping = merge(merge(library.read_based("canine-fast-small"), BASE), searched)
    mapping = merge(mapping, TINY if options["check"] else {})
    recipe = build(PretrainRecipe, mapping, source="canine-fast-small")
    train, num_targets = recipe.train, recipe.objective.max_predictions
    forward = sum(cost.multiply_accumulates for cost in costs(recipe.model, train.length, num_targets))
    steps = 2 if options["check"] else max(1, round(options["flops"] / (6 * forward * train.global_batch)))
    return build(PretrainRecipe, merge(mapping, {"train": {"steps": steps}}), source="canine-fast-small")


def measure(child: Child) -> Result:
    """Train one setting to the end of its schedule, and return its loss on held-out targets."""
    options = child.options
    recipe = recipe_of(options)
    with default_settings():
        loop = Loop(recipe, options["data"], device="cpu" if options["check"] else "cuda")
        began = time.perf_counter()
        characters = sum(line["characters"] for line in loop.steps(recipe.train.steps))
        seconds = time.perf_counter() - began
        validation = loop.validate()
    loss = validation["validation_loss"]
    vocabulary = load_data_vocabulary(options["data"])
    return {
        "line": f"{loss:.4f} nats after {recipe.train.steps:,} steps, {characters / seconds:,.0f} characters/s",
        **{name: options[name] for name in ("buckets", "rate", "alpha", "seed", "flops")},
        **validation,
        "steps": recipe.train.steps,
        "characters": characters,
        "seconds": seconds,
        "subwords": None if vocabulary is None else vocabulary.size,
        "torch": torch.__version__,
        "device": "CPU" if options["check"] else torch.cuda.get_device_name(),
    }


if __name__ == "__main__":
    main()
