"""Do the work of `tokenfree sweep`."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenfree.core.errors import JobError, SettingsError, UserError
from tokenfree.core.settings import merge, nest
from tokenfree.core.storage import Storage
from tokenfree.train.data.mixture import Data
from tokenfree.train.sweep.history import SCORES, SCORES_FILE, TABLE
from tokenfree.train.sweep.recipe import LOSS, TASK, SweepRecipe, space_problems
from tokenfree.train.sweep.results import BEST, ONE_SEED, STATES, Ranked, is_by_chance, rank
from tokenfree.train.sweep.run import SWEEP, SweepResult, read_sweep, run_sweep
from tokenfree.train.sweep.subjects import TaskInput
from tokenfree.workflows.recipes import kinds, library
from tokenfree.workflows.recipes.training import build_sweep, data_of, files_of, fill_in, is_resumed
from tokenfree.workflows.report.page import write_report
from tokenfree.workflows.terminal.results import counted, next_command, score_lines, show_settings
from tokenfree.workflows.terminal.sweep import SweepTable, describe

REPORT = "report.html"


def run(args: argparse.Namespace) -> None:
    sweep = _sweep(args)
    data = _data(args, sweep)
    show_settings(args.verbosity, sweep)
    if args.dry_run:
        for line in describe(sweep, data, args.output):
            print(line)
        return
    try:
        with SweepTable(verbosity=args.verbosity) as table:
            result = run_sweep(sweep, data, args.output, progress=table, trust_code=args.trust_code)
    except JobError:
        # Every trial failed; the page has their errors.
        if (Path(args.output) / TABLE).is_file():
            print(f"report written to {write_report([args.output], str(Path(args.output) / REPORT))}")
        raise
    report = Path(args.output) / REPORT
    if not (result.already_complete and report.is_file()):
        write_report([args.output], str(report))
    if result.already_complete:
        print(f"{args.output}: already complete ({counted(len(result.trials), 'trial')}); nothing to do")
    ranked = rank(result.trials, target=sweep.target, unit=sweep.budget.unit)
    for line in _results(sweep, result, ranked):
        print(line)
    for path in (*result.files, report):
        print(f"  {path.name:<14}{Path(args.output) / path.name}")
    names, trust = {path.name for path in result.files}, ["--trust-code"] * args.trust_code
    if SCORES in names:
        scores = SCORES_FILE.json(Storage.at(args.output), SCORES)
        for line in score_lines(scores):
            print(line)
        print(
            next_command(
                "predict", str(Path(args.output) / "trials" / scores["best"]["trials"][0]), "-", *trust
            )
        )
    elif BEST in names:
        print(
            next_command(
                "pretrain",
                str(Path(args.output) / BEST),
                "--data",
                *args.data,
                "--output",
                "runs/best",
                *trust,
            )
        )
    if is_by_chance(result.trials, ranked):
        print(f"  note          {ONE_SEED}. Run it with --seeds 3 in another --output.")


def _sweep(args: argparse.Namespace) -> SweepRecipe:
    recorded = dict[str, Any]()
    if is_resumed(args, SWEEP):
        recorded, inputs = read_sweep(args.output)
        fill_in(args, inputs)
    for recipe in filter(None, (args.recipe, args.config)):
        library.check_kind(kinds.SWEEP, recipe)
    numbers = {name: value for name in ("trials", "concurrent") if (value := getattr(args, name)) is not None}
    mapping = merge(recorded, library.resolve(args.recipe, args.config))
    source = library.source(args)
    sweep = build_sweep(mapping, nest(args.overrides) | numbers, source)
    problems = space_problems(sweep)
    if problems:
        raise SettingsError(source, problems)
    return sweep


def _data(args: argparse.Namespace, sweep: SweepRecipe) -> Data | TaskInput:
    files = files_of(args)
    others = {"init-from": args.init_from, "vocabulary": args.vocabulary}
    of_task = [*files, *(name for name, value in others.items() if value is not None)]
    if args.data is not None and of_task:
        raise UserError(
            f"--data and --{of_task[0]}: give one; data are for pretraining, the other is for a task"
        )
    data = data_of(args)
    if data is not None:
        return data
    if TASK not in sweep.base and not of_task:
        raise UserError("--data is missing. Give a data directory made by `tokenfree preprocess`.")
    return TaskInput(files, args.init_from, args.vocabulary, args.trust_code)


def _results(sweep: SweepRecipe, result: SweepResult, ranked: Sequence[Ranked]) -> Iterator[str]:
    states = [trial.state for trial in result.trials]
    counts = [f"{states.count(state)} {state}" for state in STATES if state in states]
    yield f"{counted(len(states), 'trial')}: {', '.join(counts)}"
    yield from (f"{trial.name} failed: {trial.error}" for trial in result.trials if trial.state == "failed")
    if result.skipped:
        yield f"{counted(sum(result.skipped.values()), 'setting')} not tried, because they cannot work:"
        yield from (f"  {count} x {reason}" for reason, count in sorted(result.skipped.items()))
    if not ranked:
        return
    setting = ranked[0].setting
    interval = setting.interval(sweep.quality.metric, ranked[0].amount, ranked[0].unit)
    if interval is not None:
        is_loss = sweep.quality == LOSS
        what = "held-out loss" if is_loss else sweep.quality.metric.replace("_", " ")
        one = "" if is_loss else " (one seed)"
        sure = (
            one
            if interval.half is None
            else f" (mean of {interval.count} seeds, 95% interval ± {interval.half:.3f})"
        )
        values = ", ".join(f"{key} = {value}" for key, value in setting.values.items())
        yield f"best: {setting.name}: {what} {interval.mean:.3f}{' nats' * is_loss}{sure} with {values}"
