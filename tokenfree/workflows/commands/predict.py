"""Predict labels of texts with a fine-tuned run, or the text behind [MASK] with a pretraining run.

A fine-tuned run prints labels with probabilities, tags, or spans with their character offsets. A tab
separates the two texts of a pair, and a question from the text that answers it. TEXT can be a file or `-`
(standard input) with one text per line.

CANINE-S and a subword BERT predict subwords, Byte2Word predicts words, CANINE-C and a character BERT predict
the characters of a word. Character models see how many characters are hidden: [MASK:5] hides five. For [MASK]
alone, several lengths are tried with equal weight.

Examples:
  tokenfree predict runs/sst "A film to see twice."
  tokenfree predict runs/tiny "The capital of [MASK] is a large [MASK:4]."
  tokenfree predict runs/tiny --top 3 --json - < lines.txt
"""

import argparse
import itertools
import json
import os
import sys
from collections.abc import Iterator

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes.options import add_step_argument, add_trust_argument
from tokenfree.workflows.terminal.results import prediction_lines

_AT_ONCE = 64  # number of texts per batch if input is not typed in a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    parser.add_argument(
        "texts", metavar="TEXT", nargs="+", help="a text, a file of them, or - for standard input"
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="data directory with the vocabulary (default: that of the training data)",
    )
    parser.add_argument("--top", metavar="N", type=int, default=5, help="number of predictions (default 5)")
    add_step_argument(parser)
    add_trust_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object for each text")


def run(args: argparse.Namespace) -> int:
    """Print each text with its predictions as soon as they are ready.

    Raises UserError if `--top` is less than 1.
    """
    from tokenfree.train.runs.config import is_finetuned

    if args.top < 1:
        raise UserError(f"--top {args.top}: give at least 1")
    return _predict_labels(args) if is_finetuned(args.run_folder) else _predict_masks(args)


def _predict_labels(args: argparse.Namespace) -> int:
    from tokenfree.train.inference.finetuned import load_finetuned

    model = load_finetuned(args.run_folder, step=args.step, trust_code=args.trust_code)
    if not args.json:  # JSON contains the step
        print(f"step {model.checkpoint.step:,}", file=sys.stderr)
    texts = _texts(args.texts)
    while chunk := list(itertools.islice(texts, 1 if sys.stdin.isatty() else _AT_ONCE)):
        for text, prediction in zip(chunk, model(chunk), strict=True):
            if args.json:
                print(
                    json.dumps({**model.checkpoint.record(), "text": text, **prediction}, ensure_ascii=False),
                    flush=True,
                )
                continue
            print(text)
            for line in prediction_lines(prediction):
                print(f"  {line}", flush=True)
    return 0


def _predict_masks(args: argparse.Namespace) -> int:
    from tokenfree.train.inference.predictor import load_predictor

    predictor = load_predictor(args.run_folder, args.data, step=args.step, trust_code=args.trust_code)
    assert predictor.checkpoint is not None, "it is of a run"
    if not args.json:
        print(f"step {predictor.checkpoint.step:,}", file=sys.stderr)
    for text in _texts(args.texts):
        masks = predictor(text, args.top)
        if args.json:
            records = [[guess._asdict() for guess in guesses] for guesses in masks]
            line = {**predictor.checkpoint.record(), "text": text, "masks": records}
            print(json.dumps(line, ensure_ascii=False), flush=True)
            continue
        print(text)
        for number, guesses in enumerate(masks, 1):
            ranking = ", ".join(f"{guess.text} {100 * guess.probability:.1f}%" for guess in guesses)
            print(f"  {number}  {ranking}", flush=True)
    return 0


def _texts(arguments: list[str]) -> Iterator[str]:
    from tokenfree.core.storage import check_is_stored
    from tokenfree.train.tasks.examples.files import read_lines

    for text in arguments:
        if text == "-":
            yield from (line.rstrip("\n") for line in sys.stdin if line.strip())
        elif os.path.isfile(os.path.expanduser(text)):  # a text may begin with ~ too
            yield from (line for line in read_lines(text) if line.strip())
        else:
            check_is_stored(text)
            yield text
