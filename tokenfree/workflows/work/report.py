"""Do the work of `tokenfree report`."""

import argparse

from tokenfree.workflows.report.page import write_report
from tokenfree.workflows.terminal.results import next_command


def run(args: argparse.Namespace) -> None:
    page = write_report(args.folders, args.output, step=args.step)
    print(f"report written to {page}")
    print(next_command("-m", "webbrowser", str(page), program="python"))
