"""Do the work of `tokenfree pretrain`."""

import argparse
from collections.abc import Iterator

from tokenfree.core.errors import SettingsError
from tokenfree.train.checks import check, with_rows_for
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.mixture import Data, parse
from tokenfree.train.data.shards import load_data_manifest, load_data_vocabulary, paths_of
from tokenfree.train.jobs.init_from import GivenStart
from tokenfree.train.jobs.run_to_end import Extension
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.planning import measured_seconds
from tokenfree.train.pretrain import pretrain
from tokenfree.train.runs.config import read_config
from tokenfree.train.runs.run import Run
from tokenfree.workflows.recipes import library
from tokenfree.workflows.recipes.training import load_or_resume, parse_workers
from tokenfree.workflows.terminal.progress import ProgressLine
from tokenfree.workflows.terminal.results import (
    counted,
    loss_lines,
    loss_of_each,
    next_command,
    show_settings,
    time_of,
)


def run(args: argparse.Namespace) -> None:
    recipe, data, workers = _checked(args)
    show_settings(args.verbosity, recipe)
    if args.dry_run:
        workers_text = counted(workers[0], "worker") if len({*workers}) == 1 else f"{args.workers} workers"
        print(f"recipe {args.recipe or args.output}: fits the data {' '.join(args.data)} and {workers_text}")
        print("".join(f"{line}\n" for line in _dry_run_lines(recipe, data, args)), end="")
        return
    with ProgressLine(steps=args.extend_to or recipe.train.steps, verbosity=args.verbosity) as line:
        for note in _notes(recipe, data):
            line.message(note)
        result = pretrain(
            recipe,
            data,
            args.output,
            workers=workers,
            progress=line,
            init_from=args.init_from,
            extend_to=args.extend_to,
            trust_code=args.trust_code,
        )
    if result.already_complete:
        print(f"{args.output}: already complete ({counted(result.steps, 'step')}); nothing to do")
    print("\n".join([*loss_lines(result), *loss_of_each(result.validation_means, paths_of(data))]))
    print(f"  {'checkpoint':<12}{args.output}/checkpoints/{result.checkpoint.rpartition('/')[2]}")
    print(f"  {'metrics':<12}{args.output}/metrics.jsonl")
    print(next_command("evaluate", args.output, "--data", *args.data, *library.trust_of(recipe)))


def _dry_run_lines(recipe: PretrainRecipe, data: Data, args: argparse.Namespace) -> Iterator[str]:
    run = Run(args.output)
    if args.extend_to is not None:
        extension = Extension(run, recipe, args.extend_to)
        recipe = extension.before
        if not extension.is_done:
            yield extension.line()
    if args.init_from is not None:
        start = GivenStart(
            run, recipe, lambda run_recipe: Loop(run_recipe, data), args.init_from, trust_code=args.trust_code
        )
        yield from start.lines()
    yield from _notes(recipe, data)
    yield f"  time        about {time_of(measured_seconds(recipe, data))} on this machine, by a few steps timed here"


def _notes(recipe: PretrainRecipe, data: Data) -> Iterator[str]:
    longest, length = load_data_manifest(data).config["window"]["max_characters"], recipe.train.length
    if recipe.model.embedder.symbols == "characters" and longest > length:
        yield (
            f"  note        windows have up to {longest:,} characters and examples {length:,}: an example is a "
            f"random part of its window. For shorter windows, preprocess with --window.max_characters {length - 2}"
        )


def _checked(args: argparse.Namespace) -> tuple[PretrainRecipe, Data, tuple[int, int]]:
    recipe = load_or_resume(PretrainRecipe, args, read_config, "data")
    workers, data = parse_workers(args.workers), parse(args.data)
    vocabulary = load_data_vocabulary(data)
    # A size that was asked for is checked, not replaced.
    if "model.embedder.size" not in dict(args.overrides):
        recipe = with_rows_for(recipe, vocabulary)
    problems = check(recipe, load_data_manifest(data), workers=workers, vocabulary=vocabulary)
    if problems:
        raise SettingsError(library.source(args), problems)
    return recipe, data, workers
