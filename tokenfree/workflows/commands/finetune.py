"""Fine-tune a model for a task, and evaluate it.

The recipe names the task: classification, pairs, ner, pos and others. Files have the format of their data
set; labels are those of --train. The checkpoint that scores best on --dev is kept, and evaluated on --test
once, at the end. Scores are in RUN/result.json, predictions in RUN/predictions. Run the same command, or
`tokenfree finetune --output RUN`, to resume a run that was stopped or killed.

--init-from starts from the weights and the model of a run or a transformers folder. Without it, the model of
the recipe is trained from scratch. Keys of the recipe are options too.

Examples:
  tokenfree finetune classification --train train.tsv --dev dev.tsv --output runs/labels
  tokenfree finetune ner --init-from runs/tiny --train train.txt --dev dev.txt --output runs/ner
  tokenfree finetune pairs --train train.tsv --dev dev.tsv --output runs/rte --task.glue rte
"""

import argparse
from typing import TYPE_CHECKING, Any

from tokenfree.workflows.commands.pretrain import parse_workers
from tokenfree.workflows.recipes import library, options
from tokenfree.workflows.terminal.results import counted, next_command, score_lines
from tokenfree.workflows.terminal.verbosity import show_settings

if TYPE_CHECKING:
    from tokenfree.train.config import FinetuneRecipe

KIND = library.FINETUNING  # kind of recipe that the command reads


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_recipe_arguments(parser, KIND, optional=True, help_text=options.RECORDED)
    parser.add_argument("--train", metavar="FILE", help="training examples")
    parser.add_argument("--dev", metavar="FILE", help="development set, which chooses the checkpoint")
    parser.add_argument("--test", metavar="FILE", help="test set, evaluated once, at the end")
    parser.add_argument("--output", metavar="RUN", required=True, help="the folder of the run")
    parser.add_argument(
        "--init-from", metavar="RUN|FOLDER", help="model and weights: a run, or a transformers folder"
    )
    parser.add_argument(
        "--vocabulary", metavar="FILE", help="SentencePiece model, for a subword model from scratch"
    )
    parser.add_argument(
        "--workers", metavar="N | MIN:MAX", default="1", help="number of training workers (default 1)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="check the recipe, the files and the weights, and exit"
    )


def run(args: argparse.Namespace) -> int:
    from tokenfree.core.settings import nest
    from tokenfree.train.config import FinetuneRecipe
    from tokenfree.train.finetune import finetune, prepare
    from tokenfree.train.runs.config import read_finetuned
    from tokenfree.workflows.terminal.progress import ProgressLine

    recipe = options.load_or_resume(FinetuneRecipe, args, read_finetuned)
    workers = parse_workers(args.workers)
    files = options.files_of(args)
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
        return 0
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
        print("  note        trained from random weights: no --init-from was arguments")
    trust = options.trust_of(recipe)
    if recipe.task.needs_files:
        text = "A text to label." if recipe.task.name in ("classification", "tagging") else "-"
        print(next_command("predict", args.output, text, *trust))
    else:
        print(next_command("evaluate", args.output, *trust))
    return 0


def _words(recipe: "FinetuneRecipe") -> str:
    labels = getattr(recipe.task, "labels", ())
    text = ", ".join(labels[:10]) + (f" and {len(labels) - 10} more" if len(labels) > 10 else "")
    return f"labels: {text}" if labels else f"task {recipe.task.name}"
