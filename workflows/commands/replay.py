"""Try the failed pages of a data directory again, after a fix.

Pages that now succeed are written to `failures/replayed.jsonl`, which `tokenfree preprocess --books` reads.

Example:
  tokenfree replay data/en
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`DIR`."""
    parser.add_argument("directory", metavar="DIR", help="a data directory made by `tokenfree preprocess`")


def run(args: argparse.Namespace) -> int:
    """Replay, and say how many pages succeed now."""
    from preprocess.failures import replay

    print(replay(args.directory))
    return 0
