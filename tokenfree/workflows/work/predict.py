"""Do the work of `tokenfree predict`."""

import argparse
import itertools
import json
import os
import sys
from collections.abc import Iterator

from tokenfree.core.storage import check_is_stored
from tokenfree.train.inference.finetuned import load_finetuned
from tokenfree.train.inference.predictor import load_predictor
from tokenfree.train.runs.config import is_finetuned
from tokenfree.train.tasks.examples.files import read_lines
from tokenfree.workflows.terminal.results import prediction_lines

# Number of texts per batch if input is not typed in a terminal.
_AT_ONCE = 64


def run(args: argparse.Namespace) -> None:
    return _predict_labels(args) if is_finetuned(args.run_folder) else _predict_masks(args)


def _predict_labels(args: argparse.Namespace) -> None:
    model = load_finetuned(args.run_folder, step=args.step, trust_code=args.trust_code)
    # JSON contains the step.
    if not args.json:
        print(f"step {model.checkpoint.step:,}", file=sys.stderr)
    texts = _texts(args.texts)
    while chunk := list(itertools.islice(texts, 1 if sys.stdin.isatty() else _AT_ONCE)):
        for text, prediction in zip(chunk, model(chunk), strict=True):
            if args.json:
                print(
                    json.dumps({**model.checkpoint.record(), "text": text, **prediction}, ensure_ascii=False),
                    flush=True,
                )
            else:
                print(text, *(f"  {line}" for line in prediction_lines(prediction)), sep="\n", flush=True)


def _predict_masks(args: argparse.Namespace) -> None:
    predictor = load_predictor(args.run_folder, args.data, step=args.step, trust_code=args.trust_code)
    if not args.json:
        print(f"step {predictor.checkpoint.step:,} of {predictor.recipe.train.steps:,}", file=sys.stderr)
    for text in _texts(args.texts):
        masks = predictor(text, args.top)
        if args.json:
            records = [[guess._asdict() for guess in guesses] for guesses in masks]
            line = {**predictor.checkpoint.record(), "text": text, "masks": records}
            print(json.dumps(line, ensure_ascii=False), flush=True)
        else:
            print(text)
            for number, guesses in enumerate(masks, 1):
                ranking = ", ".join(f"{guess.text} {100 * guess.probability:.1f}%" for guess in guesses)
                print(f"  {number}  {ranking}", flush=True)


def _texts(arguments: list[str]) -> Iterator[str]:
    for text in arguments:
        if text == "-":
            yield from (line.rstrip("\n") for line in sys.stdin if line.strip())
        # A text may begin with ~ too.
        elif os.path.isfile(os.path.expanduser(text)):
            yield from (line for line in read_lines(text) if line.strip())
        else:
            check_is_stored(text)
            yield text
