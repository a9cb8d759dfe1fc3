"""Do the work of `tokenfree evaluate`."""

import argparse
import json

from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.shards import paths_of
from tokenfree.train.evaluate import evaluate
from tokenfree.train.inference.finetuned import load_finetuned
from tokenfree.train.runs.config import is_finetuned
from tokenfree.train.runs.formats import RESULT_NAME
from tokenfree.workflows.recipes.training import data_of
from tokenfree.workflows.terminal.results import breakdown_lines, context_line, metric_lines, next_command


def run(args: argparse.Namespace) -> None:
    """Print the metrics, and what they say about the use of context.

    Raises UserError if --data is missing.
    """
    if is_finetuned(args.run_folder):
        return _evaluate_task(args)
    data = data_of(args)
    if data is None:
        raise UserError("--data is missing. Give a data directory made by `tokenfree preprocess`.")
    _evaluate_windows(args, data)


def _evaluate_task(args: argparse.Namespace) -> None:
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
        return
    # Already reported as a warning.
    values.pop("damaged", None)
    print("\n".join(metric_lines(values)))


def _evaluate_windows(args: argparse.Namespace, data: Data) -> None:
    metrics = evaluate(
        args.run_folder, data, num_windows=args.windows, step=args.step, trust_code=args.trust_code
    )
    if args.json:
        print(json.dumps(metrics))
        return
    # Already reported as a warning.
    metrics.pop("damaged", None)
    by_group = {kind: metrics.pop(kind) for kind in ("languages", "scripts") if kind in metrics}
    breakdown = breakdown_lines(**by_group) if by_group else ()
    lines = [*metric_lines(metrics), context_line(metrics), *breakdown]
    print("\n".join(line for line in lines if line is not None))
    command = ["report", *paths_of(data), args.run_folder, "--output", "report.html"]
    if args.step is None and RESULT_NAME not in Storage.at(args.run_folder).names():
        command = ["pretrain", "--output", args.run_folder, *["--trust-code"] * args.trust_code]
    print(next_command(*command))
