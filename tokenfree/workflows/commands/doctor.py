"""Say what is missing on this machine, and how to get it.

Looks at Python, packages, cores, GPUs, memory, limits, Java and storage. With a RECIPE of pretraining it also says
whether a step of it fits this machine's memory, and in which precision it is faster.

With --cluster each node of the Ray cluster of RAY_ADDRESS is asked too: whether it has the same versions, the same
clock, room on its disk and in shared memory, enough open files, the GPUs that Ray counts on it, and whether it reads
and writes what --storage names.

Examples:
  tokenfree doctor --storage runs s3://bucket/runs
  tokenfree cluster submit -- doctor --cluster --storage s3://bucket/runs
"""

import argparse
import dataclasses
import json

from tokenfree.workflows.doctor.machine import CHECKS, storage, training_step

COLOURS = {"ok": "green", "note": "yellow", "missing": "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`[RECIPE] [--storage URL ...]`."""
    parser.add_argument(
        "recipe", metavar="RECIPE", nargs="?", help="a pretraining recipe, to check its memory and precision"
    )
    parser.add_argument("--storage", metavar="URL", nargs="+", default=["."], help="folders or URLs to be written to")
    parser.add_argument("--cluster", action="store_true", help="look at each node of the Ray cluster of RAY_ADDRESS")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    """Print the findings; 1 if something that is needed is missing."""
    from rich.table import Table
    from rich.text import Text

    from tokenfree.workflows.terminal.progress import console
    from tokenfree.workflows.terminal.results import next_command

    findings = [finding for check in CHECKS for finding in check()]
    findings += [finding for url in args.storage for finding in storage(url)]
    if args.recipe:
        findings += training_step(args.recipe)
    if args.cluster:
        from tokenfree.workflows.doctor.cluster import cluster_findings

        findings += cluster_findings(args.storage)
    missing = [finding.what for finding in findings if finding.state == "missing"]
    if args.json:
        print(json.dumps({"findings": [dataclasses.asdict(finding) for finding in findings], "missing": missing}))
        return 1 if missing else 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("", "what", "found", "remedy"):
        table.add_column(header, overflow="fold")
    for finding in findings:
        mark = Text(finding.state, style=COLOURS[finding.state])
        table.add_row(mark, finding.what, finding.value, finding.remedy)
    console().print(table)
    print(f"missing: {', '.join(missing)}" if missing else "nothing that tokenfree needs is missing")
    if not missing:
        print(next_command("demo", "--output", "demo"))
    return 1 if missing else 0
