"""Do the work of `tokenfree finetune`."""

import argparse
from typing import Any

from tokenfree.core.settings import nest
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.finetune import finetune, prepare
from tokenfree.train.runs.config import read_finetuned
from tokenfree.workflows.recipes import library
from tokenfree.workflows.recipes.training import files_of, load_or_resume, parse_workers
from tokenfree.workflows.terminal.progress import ProgressLine
from tokenfree.workflows.terminal.results import counted, next_command, score_lines, show_settings


def run(args: argparse.Namespace) -> None:
    recipe = load_or_resume(FinetuneRecipe, args, read_finetuned)
    workers = parse_workers(args.workers)
    files = files_of(args)
    arguments: dict[str, Any] = {
        "init_from": args.init_from,
        "model": nest(override for override in args.overrides if override[0].startswith("model.")).get(
            "model"
        ),
        "vocabulary": args.vocabulary,
        "trust_code": args.trust_code,
    }
    show_settings(args.verbosity, recipe)
    if args.dry_run:
        prepared = prepare(recipe, files, args.output, workers=workers, **arguments)
        workers_text = counted(workers[0], "worker") if len({*workers}) == 1 else f"{args.workers} workers"
        print(
            f"recipe {args.recipe or args.output}: fits the files; {workers_text}; {_words(prepared.recipe)}"
        )
        start = prepared.start(trust_code=args.trust_code)
        print("".join(f"{line}\n" for line in ([] if start is None else start.lines())), end="")
        return
    with ProgressLine(steps=recipe.train.steps, verbosity=args.verbosity) as line:
        result = finetune(recipe, files, args.output, workers=workers, progress=line, **arguments)
    if result.already_complete:
        print(f"{args.output}: already complete ({counted(result.steps, 'step')}); nothing to do")
    print("\n".join(score_lines(vars(result))))
    print(f"  {'checkpoint':<12}{args.output}/{result.checkpoint}")
    if result.dev or result.test:
        print(f"  {'predictions':<12}{args.output}/predictions")
    for split, label in result.only_label.items():
        print(f"  note        on {split}, the model predicts one label only: {label}")
    if args.init_from is None and recipe.task.needs_files:
        print("  note        trained from random weights: no --init-from was given")
    trust = library.trust_of(recipe)
    if recipe.task.needs_files:
        text = "A text to label." if recipe.task.name in ("classification", "tagging") else "-"
        print(next_command("predict", args.output, text, *trust))
    else:
        print(next_command("evaluate", args.output, *trust))


def _words(recipe: FinetuneRecipe) -> str:
    labels = getattr(recipe.task, "labels", ())
    text = ", ".join(labels[:10]) + (f" and {len(labels) - 10} more" if len(labels) > 10 else "")
    return f"labels: {text}" if labels else f"task {recipe.task.name}"
