"""Evaluate a run on held-out windows of a data directory, or a fine-tuned one on a file of examples.

Windows and masks are the same in every evaluation, so losses of different runs can be compared. The command
also prints context-free baselines on the same targets, and the model's own loss without context: with all
text except white space hidden (probe_blank), and with the text of another window (probe_other). Hidden
targets are also listed by language and by script if there are several.

For a fine-tuned run, --data is a file of the task with the right answers, and the scores are printed. A task
that makes its own examples, such as mirrored_summation, needs no file.

Examples:
  tokenfree evaluate runs/tiny --data data/en
  tokenfree evaluate runs/both --data data/en:0.7 data/de:0.3
  tokenfree evaluate runs/sst --data sst/stsa.binary.dev
  tokenfree evaluate runs/tiny --data data/en --windows 2000 --json
"""

import argparse
import json
from typing import TYPE_CHECKING

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes.options import (
    SHOWN,
    add_data_argument,
    add_step_argument,
    add_trust_argument,
    data_of,
)
from tokenfree.workflows.terminal.results import breakdown_lines, context_line, metric_lines, next_command

if TYPE_CHECKING:
    from tokenfree.train.data.mixture import Data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    help_text = f"{SHOWN}; for a fine-tuned run, a file of examples"
    add_data_argument(parser, help_text, metavar="PATH")
    parser.add_argument(
        "--windows",
        metavar="N",
        type=int,
        help="number of evenly spaced windows (default: train.validation_windows)",
    )
    add_step_argument(parser)
    add_trust_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    """Print the metrics, and what they say about the use of context.

    Raises UserError if an argument is invalid.
    """
    from tokenfree.train.runs.config import is_finetuned

    if args.windows is not None and args.windows < 1:
        raise UserError(f"--windows {args.windows}. Give at least 1.")
    if is_finetuned(args.run_folder):
        return _evaluate_task(args)
    data = data_of(args)
    if data is None:
        raise UserError("--data is missing. Give a data directory made by `tokenfree preprocess`.")
    return _evaluate_windows(args, data)


def _evaluate_task(args: argparse.Namespace) -> int:
    from tokenfree.train.inference.finetuned import load_finetuned

    if args.windows is not None:
        raise UserError(
            f"--windows {args.windows}: of a fine-tuned run all examples are evaluated. Leave it out."
        )
    if args.data is not None and len(args.data) > 1:
        raise UserError(f"--data: a fine-tuned run is evaluated on one file, not {len(args.data)}. Give one.")
    file = None if args.data is None else args.data[0]
    model = load_finetuned(args.run_folder, step=args.step, trust_code=args.trust_code)
    result = model.evaluate(file)
    if result.metrics is None:
        raise UserError(
            f"{file}: the examples have no labels to be compared with. Label texts with tokenfree predict."
        )
    values = {**model.checkpoint.record(), "loss": result.loss, **result.metrics.values}
    if args.json:
        print(json.dumps(values))
        return 0
    values.pop("damaged", None)  # already reported as a warning
    print("\n".join(metric_lines(values)))
    return 0


def _evaluate_windows(args: argparse.Namespace, data: "Data") -> int:
    from tokenfree.train.data.mixture import paths_of
    from tokenfree.train.evaluate import evaluate

    metrics = evaluate(
        args.run_folder, data, num_windows=args.windows, step=args.step, trust_code=args.trust_code
    )
    if args.json:
        print(json.dumps(metrics))
        return 0
    metrics.pop("damaged", None)  # already reported as a warning
    by_group = {kind: metrics.pop(kind) for kind in ("languages", "scripts") if kind in metrics}
    print("\n".join(metric_lines(metrics)))
    line = context_line(metrics)
    if line is not None:
        print(line)
    for line in breakdown_lines(**by_group) if by_group else ():
        print(line)
    print(next_command("report", *paths_of(data), args.run_folder, "--output", "report.html"))
    return 0
