"""Pretrain a model on a data directory.

Run the same command, or `tokenfree pretrain --output RUN`, to resume a run that was stopped or killed. One
worker trains in this process, several train under Ray Train. Batches do not depend on the number of workers.
Keys of the recipe are options too.

Several data directories are mixed: `--data A:0.7 B:0.3` takes seven of ten samples from A, in a fixed order.
Without weights, samples are in proportion to characters. The directories must share one subword vocabulary.
Validation windows are divided in the same proportions; the losses are `validation_loss_data_1` and so on. A
number after the last colon is a weight, unless a folder has that name.

--init-from starts a new run from the weights of another run or of a transformers folder, such as the official
CANINE. Tensors that match by name and shape are loaded; the others are listed. Optimizer and step start from
zero.

--extend-to makes an existing run longer, finished or not. The remaining steps have the learning rates of a
run of that length, so the rate of a finished run jumps up; the printed line shows both rates.

Examples:
  tokenfree pretrain canine-s-tiny --data data/en --output runs/tiny --workers 2
  tokenfree pretrain canine-s-base --data data/en --output runs/base --workers 2:8 --train.learning_rate 0.002
  tokenfree pretrain canine-s-tiny --data data/de --output runs/de --init-from runs/tiny
  tokenfree pretrain canine-s-tiny --data data/en:0.7 data/de:0.3 --output runs/both
  tokenfree pretrain --output runs/tiny --extend-to 2000
"""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes import library, options
from tokenfree.workflows.terminal.results import counted, loss_lines, loss_of_each, next_command, time_of
from tokenfree.workflows.terminal.verbosity import show_settings

if TYPE_CHECKING:
    from tokenfree.train.config import PretrainRecipe
    from tokenfree.train.data.mixture import Data

KIND = library.PRETRAINING  # kind of recipe that the command reads


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_recipe_arguments(parser, KIND, optional=True, help_text=options.RECORDED)
    options.add_data_argument(parser)
    parser.add_argument("--output", metavar="RUN", required=True, help="the folder of the run")
    parser.add_argument(
        "--workers", metavar="N | MIN:MAX", default="1", help="number of training workers (default 1)"
    )
    parser.add_argument(
        "--init-from", metavar="RUN|FOLDER", help="initial weights: a run, or a transformers folder"
    )
    parser.add_argument(
        "--extend-to", metavar="STEPS", type=int, help="new total number of steps of this run"
    )
    parser.add_argument("--dry-run", action="store_true", help="check all inputs, time a few steps, and exit")


def run(args: argparse.Namespace) -> int:
    from tokenfree.train.data.mixture import paths_of
    from tokenfree.train.pretrain import pretrain
    from tokenfree.workflows.terminal.progress import ProgressLine

    recipe, data, workers = _checked(args)
    show_settings(args.verbosity, recipe)
    if args.dry_run:
        workers_text = counted(workers[0], "worker") if len({*workers}) == 1 else f"{args.workers} workers"
        print(f"recipe {args.recipe or args.output}: fits the data {' '.join(args.data)} and {workers_text}")
        print("".join(f"{line}\n" for line in _dry_run_lines(recipe, data, args)), end="")
        return 0
    steps = args.extend_to or recipe.train.steps
    with ProgressLine(steps=steps, verbosity=args.verbosity) as line:
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
    print(next_command("evaluate", args.output, "--data", *args.data, *options.trust_of(recipe)))
    return 0


def _dry_run_lines(recipe: "PretrainRecipe", data: "Data", args: argparse.Namespace) -> Iterator[str]:
    from tokenfree.train.jobs.run_to_end import Extension, GivenStart
    from tokenfree.train.loop.pretraining import Loop
    from tokenfree.train.planning import measured_seconds
    from tokenfree.train.runs.run import Run

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


def _notes(recipe: "PretrainRecipe", data: "Data") -> Iterator[str]:
    from tokenfree.train.data.mixture import load_data_manifest

    longest, length = load_data_manifest(data).config["window"]["max_characters"], recipe.train.length
    if recipe.model.embedder.symbols == "characters" and longest > length:
        yield (
            f"  note        windows have up to {longest:,} characters and examples {length:,}: an example is a "
            f"random part of its window. For shorter windows, preprocess with --window.max_characters {length - 2}"
        )


def _checked(args: argparse.Namespace) -> "tuple[PretrainRecipe, Data, tuple[int, int]]":
    from tokenfree.train.config import PretrainRecipe, check, with_rows_for
    from tokenfree.train.data.mixture import load_data_manifest, load_data_vocabulary, parse
    from tokenfree.train.runs.config import read_config

    recipe = options.load_or_resume(PretrainRecipe, args, read_config, "data")
    workers, data = parse_workers(args.workers), parse(args.data)
    vocabulary = load_data_vocabulary(data)
    # A size that was asked for is checked, not replaced.
    if "model.embedder.size" not in dict(args.overrides):
        recipe = with_rows_for(recipe, vocabulary)
    problems = check(recipe, load_data_manifest(data), workers=workers, vocabulary=vocabulary)
    if problems:
        raise UserError(options.source(args), problems)
    return recipe, data, workers


def parse_workers(text: str) -> tuple[int, int]:
    """Return minimum and maximum: (4, 4) for `"4"`, (2, 8) for `"2:8"`. Raises UserError for other texts."""
    low, colon, high = text.partition(":")
    try:
        workers = (int(low), int(high) if colon else int(low))
    except ValueError:
        workers = (0, 0)
    if not 1 <= workers[0] <= workers[1]:
        raise UserError(f"--workers {text}: give a number such as 4, or the fewest and the most, such as 2:8")
    return workers
