"""Search over recipe keys for the settings that work best.

Runs trials of a pretraining recipe under Ray Tune, each with other values of the keys in the recipe's `space`, stops
the worse ones early, and leaves `sweep.csv`, `trials.jsonl`, `report.html` and `best.yaml`, a recipe ready to pretrain.
The same command goes on where a sweep was killed.

Example:
  tokenfree sweep three-knobs-tiny --data data/en --output sweeps/knobs --trials 24 --concurrent 4
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.common.refused import problems_of
from tokenfree.preprocess.common.settings import draft, merge, nest
from tokenfree.workflows.recipes import command_line, library
from tokenfree.workflows.recipes.kinds import SWEEP
from tokenfree.workflows.terminal.stage_line import counted

if TYPE_CHECKING:
    from tokenfree.train.sweep.run import SweepResult
    from tokenfree.train.sweep.space.recipe import SweepRecipe

KIND = SWEEP  # of recipe that the command reads
REPORT = "report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`RECIPE --data DIR --output RUN [--trials N] [--concurrent N]`."""
    command_line.add_arguments(parser, KIND)
    parser.add_argument("--data", metavar="DIR", required=True, help="a data directory made by `tokenfree preprocess`")
    parser.add_argument("--output", metavar="RUN", required=True, help="the folder of the sweep")
    parser.add_argument("--dry-run", action="store_true", help="only show settings, placement, budget and hours")
    parser.add_argument("--trials", metavar="N", type=int, help="settings to try")
    room = "most trials side by side (default: as many as the CPUs and GPUs have room for)"
    parser.add_argument("--concurrent", metavar="N", type=int, help=room)


def run(args: argparse.Namespace) -> int:
    """Run the sweep with a live table, then print the best setting and the files made."""
    from tokenfree.train.sweep.results.tables import BEST, TABLE
    from tokenfree.train.sweep.run import run_sweep
    from tokenfree.workflows.report.write import write_report
    from tokenfree.workflows.terminal.next_command import next_command
    from tokenfree.workflows.terminal.sweep.plan import describe
    from tokenfree.workflows.terminal.sweep.table import SweepTable
    from tokenfree.workflows.terminal.verbosity import show_settings

    sweep = _sweep(args)
    show_settings(args.verbosity, sweep)
    if args.dry_run:
        for line in describe(sweep, args.data, args.output):
            print(line)
        return 0
    try:
        with SweepTable(verbosity=args.verbosity) as table:
            result = run_sweep(sweep, args.data, args.output, progress=table)
    except JobError:
        if (Path(args.output) / TABLE).is_file():  # every trial failed: what each of them said is on the page
            print(f"report written to {write_report([args.output], str(Path(args.output) / REPORT))}")
        raise
    report = write_report([args.output], str(Path(args.output) / REPORT))
    if result.already_complete:
        print(f"{args.output}: already complete ({len(result.trials)} trials); nothing to do")
    for line in _results(sweep, result):
        print(line)
    for path in (*result.files, report):
        print(f"  {path.name:<14}{path}")
    best = Path(args.output) / BEST
    if best in result.files:
        print(next_command("pretrain", str(best), "--data", args.data, "--output", "RUN"))
    return 1 if any(trial.state == "failed" for trial in result.trials) else 0


def _sweep(args: argparse.Namespace) -> "SweepRecipe":
    """The sweep that the recipe and the options ask for.

    Raises:
        UserError: a file is no sweep recipe, or keys, values and knobs do not fit together; all of them are named.
    """
    from tokenfree.train.sweep.space.recipe import SweepRecipe, space_problems

    for given in filter(None, (args.recipe, args.config)):
        library.check_kind(KIND, given)
    mapping = command_line.resolve(args.recipe, args.config, [])
    if any(key.split(".")[0] == "budget" for key, _ in args.overrides):
        mapping.pop("budget", None)  # a budget in another unit takes the place of the recipe's
    mapping = library.resolve_sweep(merge(mapping, nest(args.overrides)))
    options = {"trials": args.trials, "concurrent": args.concurrent}
    made = draft(SweepRecipe, merge(mapping, {key: value for key, value in options.items() if value is not None}))
    sweep, problems = made.settings, list(made.problems)
    if sweep is not None:
        problems += problems_of(lambda: space_problems(sweep))
    if sweep is None or problems:
        raise UserError(command_line.source(args), problems)
    return sweep


def _results(sweep: "SweepRecipe", result: "SweepResult") -> Iterator[str]:
    """What is said at the end: what became of the trials, and the best setting."""
    from tokenfree.train.sweep.results.compare import full_amount, rank
    from tokenfree.train.sweep.results.trial_result import STATES
    from tokenfree.train.sweep.run import targets
    from tokenfree.train.sweep.space.targets import LOSS

    states = [trial.state for trial in result.trials]
    told = [f"{states.count(state)} {state}" for state in STATES if state in states]
    yield f"{counted(len(states), 'trial')}: {', '.join(told)}"
    yield from (f"{trial.name} failed: {trial.error}" for trial in result.trials if trial.state == "failed")
    if result.skipped:
        yield f"{counted(sum(result.skipped.values()), 'setting')} not tried, because they cannot work:"
        yield from (f"  {count} x {reason}" for reason, count in sorted(result.skipped.items()))
    unit = sweep.budget.unit
    amount = full_amount(result.trials, unit)
    ranked = rank(result.trials, target=targets(sweep)[0], unit=unit, amount=amount)
    if not ranked or amount is None:
        return
    setting = ranked[0].setting
    loss = setting.interval(LOSS.metric, amount, unit)
    if loss is not None:
        sure = "" if loss.half is None else f" (mean of {loss.count} seeds, 95% interval ± {loss.half:.3f})"
        values = ", ".join(f"{key} = {value}" for key, value in setting.values.items())
        yield f"best: {setting.name}: held-out loss {loss.mean:.3f}{sure} with {values}"
