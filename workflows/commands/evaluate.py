"""Evaluate a run on held-out windows of a data directory, or a fine-tuned one on a file of examples.

The windows and the masks are the same in every evaluation, so the losses of different runs can be compared. Beside the
loss stand baselines that need no context, on the same targets, and the loss of the model itself without its context:
with all text but white space hidden (probe_blank), and with the text of another window (probe_other). The hidden
targets are also counted by the language of their window and by their own script, where there are several.

Of a fine-tuned run, --data is a file of its task with the right answers, and the scores are printed; a task that makes
its own examples, such as mirrored_summation, needs none.

Examples:
  tokenfree evaluate runs/tiny --data data/en
  tokenfree evaluate runs/sst --data sst/stsa.binary.dev
  tokenfree evaluate runs/tiny --data data/en --windows 2000 --json
"""

import argparse
import json

from tokenfree.preprocess.common.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN [--data DIR|FILE]`."""
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    shown = "a data directory made by `tokenfree preprocess`; of a fine-tuned run, a file of examples"
    parser.add_argument("--data", metavar="PATH", help=shown)
    parser.add_argument(
        "--windows", metavar="N", type=int, help="windows, spaced evenly (default: train.validation_windows)"
    )
    parser.add_argument("--trust-code", action="store_true", help="run the code outside tokenfree that RUN names")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    """Print the metrics, one a line, and of pretraining in words what they say of reading.

    Raises:
        UserError: `--windows` is less than 1, data are needed, or see `tokenfree.train.evaluate.evaluate`.
    """
    from tokenfree.train.runs.run_config import is_finetuned

    if args.windows is not None and args.windows < 1:
        raise UserError(f"--windows {args.windows}: give at least 1")
    if is_finetuned(args.run_folder):
        return _evaluate_task(args)
    if args.data is None:
        raise UserError("--data is missing; give a data directory made by `tokenfree preprocess`")
    return _evaluate_windows(args)


def _evaluate_task(args: argparse.Namespace) -> int:
    """Print the scores of a fine-tuned run.

    Raises:
        UserError: see `tokenfree.train.finetuning.finetuned`; or the examples have no labels.
    """
    from tokenfree.train.finetuning.finetuned import load_finetuned

    if args.windows is not None:
        raise UserError(f"--windows {args.windows}: of a fine-tuned run all examples are evaluated; leave it out")
    model = load_finetuned(args.run_folder, trust_code=args.trust_code)
    found = model.evaluate(args.data)
    if found.metrics is None:
        raise UserError(f"{args.data}: the examples have no labels to be compared with; tokenfree predict labels texts")
    values = {"step": model.step, "loss": found.loss, **found.metrics.values}
    if args.json:
        print(json.dumps(values))
        return 0
    for name, value in values.items():
        print(f"{name:<36}{value:,.4f}" if isinstance(value, float) else f"{name:<36}{value:,}")
    return 0


def _evaluate_windows(args: argparse.Namespace) -> int:
    """Print what `tokenfree.train.evaluate.evaluate` finds of a pretraining run."""
    from tokenfree.train.evaluate import evaluate
    from tokenfree.workflows.terminal.breakdown import breakdown_lines
    from tokenfree.workflows.terminal.next_command import next_command
    from tokenfree.workflows.terminal.run_result import reading_line

    found = evaluate(args.run_folder, args.data, num_windows=args.windows, trust_code=args.trust_code)
    if args.json:
        print(json.dumps(found))
        return 0
    by_group = {kind: found.pop(kind) for kind in ("languages", "scripts") if kind in found}
    for name, value in found.items():
        print(f"{name:<36}{value:,.4f}" if isinstance(value, float) else f"{name:<36}{value:,}")
    line = reading_line(found)
    if line is not None:
        print(line)
    for line in breakdown_lines(**by_group) if by_group else ():
        print(line)
    print(next_command("report", args.data, args.run_folder, "--output", "report.html"))
    return 0
