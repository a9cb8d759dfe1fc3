"""Evaluate a run on a data directory's held-out windows.

The windows and the masks are the same in every evaluation, so the losses of different runs can be compared.

Example:
  tokenfree evaluate runs/tiny --data data/en
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN --data DIR`."""
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    parser.add_argument("--data", metavar="DIR", required=True, help="a data directory made by `tokenfree preprocess`")


def run(args: argparse.Namespace) -> int:
    """Print the held-out metrics, one a line."""
    from tokenfree.train.evaluate import evaluate

    for name, value in evaluate(args.run_folder, args.data).items():
        print(f"{name:<36}{value:,.4f}" if isinstance(value, float) else f"{name:<36}{value:,}")
    return 0
