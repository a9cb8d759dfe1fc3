"""Make one self-contained HTML page about runs, sweeps and data directories.

Pictures of loss, throughput, corpus counts and of a sweep's trade between quality and speed; several runs are compared.

Example:
  tokenfree report data/en runs/tiny sweeps/knobs --output report.html
"""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN [RUN ...] --output FILE.html`."""
    parser.add_argument("folders", metavar="RUN", nargs="+", help="folders of runs, sweeps or data directories")
    parser.add_argument("--output", metavar="FILE.html", required=True, help="the page to write")


def run(args: argparse.Namespace) -> int:
    """Write the page and name it."""
    from workflows.report import write_report

    print(f"report written to {write_report(args.folders, args.output)}")
    return 0
