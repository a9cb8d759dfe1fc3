"""Do the work of `tokenfree doctor`."""

import argparse
import dataclasses
import importlib.util
import json

from rich.table import Column, Table
from rich.text import Text

from tokenfree.core.machine import install_command
from tokenfree.workflows.doctor import CHECKS, storage, training_step
from tokenfree.workflows.terminal.progress import console
from tokenfree.workflows.terminal.results import next_command

COLOURS = {"ok": "green", "note": "yellow", "missing": "red"}


def run(args: argparse.Namespace) -> int:
    findings = [finding for check in CHECKS for finding in check()]
    findings += [finding for url in args.storage for finding in storage(url)]
    if args.recipe:
        findings += training_step(args.recipe)
    if args.cluster:
        from tokenfree.workflows.cluster.nodes import cluster_findings  # imports Ray

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
        table.add_row(
            Text(finding.state, style=COLOURS[finding.state]), finding.what, finding.value, finding.remedy
        )
    console().print(table)
    print(f"missing: {', '.join(missing)}" if missing else "nothing that tokenfree needs is missing")
    if not all(importlib.util.find_spec(package) for package in ("apache_beam", "ray", "torch")):
        print(f"  next        {install_command('all')}")
    elif not missing:
        print(next_command("demo", "--output", "demo"))
    return 1 if missing else 0
