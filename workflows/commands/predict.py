"""Guess what stands behind [MASK] in a text, by a trained run.

CANINE-S and a subword BERT guess subwords, Byte2Word words, CANINE-C and character BERT the characters of a word.
Models of characters see how many are hidden: [MASK:5] says five; after [MASK] alone several lengths are tried and count
alike. A `-` in the place of TEXT reads lines of standard input.

Examples:
  tokenfree predict runs/tiny "The capital of [MASK] is a large [MASK:4]."
  tokenfree predict runs/tiny --top 3 --json - < lines.txt
"""

import argparse
import json
import sys
from collections.abc import Iterator

from tokenfree.preprocess.common.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN TEXT...`."""
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    parser.add_argument("texts", metavar="TEXT", nargs="+", help="a text with [MASK], or - for standard input")
    parser.add_argument("--data", metavar="DIR", help="the data with its vocabulary (default: what it was trained on)")
    parser.add_argument("--top", metavar="N", type=int, default=5, help="guesses for each (default 5)")
    parser.add_argument("--trust-code", action="store_true", help="run the code outside tokenfree that RUN names")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each text")


def run(args: argparse.Namespace) -> int:
    """Print each text with its guesses, as they are found.

    Raises:
        UserError: `--top` is less than 1, or see `tokenfree.train.inference.predictor`.
    """
    from tokenfree.train.inference.predictor import load_predictor

    if args.top < 1:
        raise UserError(f"--top {args.top}: give at least 1")
    predictor = load_predictor(args.run_folder, args.data, trust_code=args.trust_code)
    for text in _texts(args.texts):
        masks = predictor(text, args.top)
        if args.json:
            found = [[guess._asdict() for guess in guesses] for guesses in masks]
            print(json.dumps({"text": text, "masks": found}, ensure_ascii=False), flush=True)
            continue
        print(text)
        for number, guesses in enumerate(masks, 1):
            told = ", ".join(f"{guess.text} {100 * guess.probability:.1f}%" for guess in guesses)
            print(f"  {number}  {told}", flush=True)
    return 0


def _texts(given: list[str]) -> Iterator[str]:
    for text in given:
        if text == "-":
            yield from (line.rstrip("\n") for line in sys.stdin if line.strip())
        else:
            yield text
