"""Process the failed pages of a data directory again, after a fix.

Pages that succeed are written to `failures/replayed.jsonl`, which `tokenfree preprocess --books` reads. The
data directory itself does not change.

Example:
  tokenfree replay data/en
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="a data directory made by `tokenfree preprocess`")
