"""The option `--step` of commands that use a checkpoint of a run."""

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenfree.train.runs.checkpoints import Checkpoint


def add_argument(parser: argparse.ArgumentParser) -> None:
    """`--step N`."""
    shown = "use the checkpoint of this step (default: the last one of a run, the best one of a fine-tuned run)"
    parser.add_argument("--step", metavar="N", type=int, help=shown)


def show(checkpoint: "Checkpoint", as_json: bool) -> None:
    """Print the step on standard error, for a command whose output is all results; JSON has it."""
    if not as_json:
        print(f"step {checkpoint.step:,}", file=sys.stderr)
