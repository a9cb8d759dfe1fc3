"""Search over recipe keys for the settings that work best.

Runs trials of a pretraining recipe under Ray Tune, each with other values of the keys in the recipe's `space`, stops
the worse ones early, and leaves `sweep.csv`, `trials.jsonl` and `best.yaml`, a recipe ready to pretrain. The same
command goes on where a sweep was killed.

Example:
  tokenfree sweep three-knobs-tiny --data data/en --output sweeps/knobs --trials 24 --concurrent 4
"""

import argparse

from preprocess.settings import build, merge
from workflows import recipes


def recipe_keys() -> list[str]:
    """The keys of a sweep recipe, which are options too."""
    from train.sweep.config import SweepRecipe

    return recipes.keys(SweepRecipe)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`RECIPE --data DIR --output RUN [--trials N] [--concurrent N]`."""
    recipes.add_arguments(parser)
    parser.add_argument("--data", metavar="DIR", required=True, help="a data directory made by `tokenfree preprocess`")
    parser.add_argument("--output", metavar="RUN", required=True, help="the folder of the sweep")
    parser.add_argument("--trials", metavar="N", type=int, help="settings to try")
    parser.add_argument("--concurrent", metavar="N", type=int, help="trials at a time (default: one a CPU)")


def run(args: argparse.Namespace) -> int:
    """Run the sweep with one live line, then print the best setting and the files made."""
    from train.sweep.config import SweepRecipe
    from train.sweep.run import run_sweep
    from workflows.console import SweepLine

    mapping = recipes.resolve(args.recipe, args.config, args.overrides)
    if isinstance(mapping.get("base"), str):
        mapping["base"] = recipes.read_based(mapping["base"])
    options = {"trials": args.trials, "concurrent": args.concurrent}
    mapping = merge(mapping, {key: value for key, value in options.items() if value is not None})
    sweep = build(SweepRecipe, mapping, source=f"recipe {args.recipe}")
    with SweepLine(sweep.trials) as line:
        result = run_sweep(sweep, args.data, args.output, progress=line)
    if result.already_complete:
        print(f"{args.output}: already complete ({len(result.trials)} trials); nothing to do")
    if result.skipped:
        print(f"{sum(result.skipped.values())} settings were not tried, because they cannot work:")
        for reason, count in sorted(result.skipped.items()):
            print(f"  {count} x {reason}")
    if result.best is not None:
        values = ", ".join(f"{key} = {value}" for key, value in result.best.values.items())
        print(f"best: {result.best.name}: held-out loss {result.best.last['validation_loss']:.3f} with {values}")
    for path in result.files:
        print(f"  {path.name:<14}{path}")
    failed = [trial for trial in result.trials if trial.state == "failed"]
    for trial in failed:
        print(f"{trial.name} failed: {trial.error}")
    return 1 if failed else 0
