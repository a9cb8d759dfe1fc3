"""Make one self-contained HTML page about runs, sweeps and data directories.

Of a pretraining run it first shows whether the model uses its context: how far its loss on hidden targets is below the
best guess without context, with a 95% interval, and how much the loss rises when the context is hidden. Then come five
predictions of hidden words, losses, throughput, restarts and settings. The data must be where the run was trained on
them, or among the folders. Several runs are compared by the characters that they read.

Of a sweep, also of one that still runs: the best setting, what each hyperparameter does, loss against cost, ranks at
equal steps and at equal time, and every trial. Of a fine-tuned run: its scores as it learned, the scores of each label,
which labels it confuses, and some of its predictions next to the right answers.

With --format it is the table of sweeps of fine-tuning recipes instead, ready for a paper: a row a setting, mean and 95%
interval over its seeds, the best one marked. It is printed, or written to --output.

Examples:
  tokenfree report data/en runs/tiny sweeps/knobs --output report.html
  tokenfree report sweeps/rates --format latex --output table.tex
"""

import argparse
import sys
from pathlib import Path

from tokenfree.core.errors import UserError
from tokenfree.core.files import write_atomically
from tokenfree.workflows.recipes.options import add_step_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN [RUN ...] --output FILE.html`, or `SWEEP [SWEEP ...] --format FORMAT [--output FILE]`."""
    parser.add_argument("folders", metavar="RUN", nargs="+", help="folders of runs, sweeps or data directories")
    parser.add_argument("--output", metavar="FILE", help="the page to write; of a table, by default it is printed")
    add_step_argument(parser)
    shown = "print the table of sweeps of tasks: markdown, latex or csv"
    parser.add_argument("--format", choices=("markdown", "latex", "csv"), help=shown)


def run(args: argparse.Namespace) -> int:
    """Write the page or the table and name it.

    Raises:
        UserError: the folders cannot be read, or there is no name for the page.
    """
    if args.format is not None:
        if args.step is not None:
            raise UserError(f"--step {args.step}: is for the page, not for a table; leave it out")
        return _table(args)
    if args.output is None:
        raise UserError("--output is missing: the page to write, such as report.html")
    from tokenfree.workflows.report.page import write_report
    from tokenfree.workflows.terminal.results import next_command

    page = write_report(args.folders, args.output, step=args.step)
    print(f"report written to {page}")
    print(next_command("-m", "webbrowser", str(page), program="python"))
    return 0


def _table(args: argparse.Namespace) -> int:
    from tokenfree.workflows.report.paper_table import paper_table

    text = paper_table(args.folders, args.format)
    if args.output is None:
        sys.stdout.write(text)
        return 0
    try:
        write_atomically(Path(args.output), text)
    except OSError as error:
        raise UserError(f"--output {args.output}: cannot be written ({error.strerror}); give another") from None
    print(f"table written to {args.output}")
    return 0
