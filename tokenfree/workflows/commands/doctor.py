"""Report what is missing on this machine, and how to get it.

Checks Python, packages, cores, GPUs, memory, limits, Java and storage. With a pretraining RECIPE, also
reports whether a step fits the machine's memory, and which precision is faster.

With --cluster, also checks each node of the Ray cluster at RAY_ADDRESS: versions, memory, limits, GPUs, and
access to the places of --storage.

Examples:
  tokenfree doctor --storage runs s3://bucket/runs
  tokenfree cluster submit -- doctor --cluster --storage s3://bucket/runs
"""

import argparse
import dataclasses
import importlib.util
import json

from tokenfree.core.machine import install_command
from tokenfree.workflows.recipes.options import add_trust_argument
from tokenfree.workflows.terminal.results import next_command

COLOURS = {"ok": "green", "note": "yellow", "missing": "red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", metavar="RECIPE", nargs="?", help="pretraining recipe whose memory and precision to check"
    )
    parser.add_argument(
        "--storage", metavar="URL", nargs="+", default=["."], help="folders or URLs to write to"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="check each node of the Ray cluster at RAY_ADDRESS"
    )
    add_trust_argument(parser, "RECIPE")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def run(args: argparse.Namespace) -> int:
    from rich.table import Column, Table
    from rich.text import Text

    from tokenfree.workflows.doctor import CHECKS, cluster_findings, storage, training_step
    from tokenfree.workflows.terminal.progress import console

    findings = [finding for check in CHECKS for finding in check()]
    findings += [finding for url in args.storage for finding in storage(url)]
    if args.recipe:
        findings += training_step(args.recipe)
    if args.cluster:
        findings += cluster_findings(args.storage)
    missing = [finding.what for finding in findings if finding.state == "missing"]
    if args.json:
        print(
            json.dumps(
                {"findings": [dataclasses.asdict(finding) for finding in findings], "missing": missing}
            )
        )
        return 1 if missing else 0
    headers = (Column(name, overflow="fold") for name in ("", "what", "found", "remedy"))
    table = Table(*headers, box=None, pad_edge=False, header_style="bold")
    for finding in findings:
        mark = Text(finding.state, style=COLOURS[finding.state])
        table.add_row(mark, finding.what, finding.value, finding.remedy)
    console().print(table)
    print(f"missing: {', '.join(missing)}" if missing else "nothing that tokenfree needs is missing")
    if not all(importlib.util.find_spec(package) for package in ("apache_beam", "ray", "torch")):
        print(f"  next        {install_command('all')}")
    elif not missing:
        print(next_command("demo", "--output", "demo"))
    return 1 if missing else 0
