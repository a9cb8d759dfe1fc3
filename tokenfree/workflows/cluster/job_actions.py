"""The actions of `tokenfree cluster` on a cluster that runs: jobs submitted, followed, stopped and listed."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tokenfree.preprocess.common.errors import UserError
from tokenfree.workflows.cluster import rehearsal, tokens
from tokenfree.workflows.cluster.profiles import LOOPBACK
from tokenfree.workflows.cluster.submission import submission
from tokenfree.workflows.terminal.console import console
from tokenfree.workflows.terminal.stage_line import counted

if TYPE_CHECKING:
    from rich.table import Table

    from tokenfree.workflows.cluster.jobs import Job, Jobs  # which imports Ray, after the token is set

DEFAULT_ADDRESS = "http://127.0.0.1:8265"


def submit(args: argparse.Namespace) -> int:
    """Run a command of tokenfree on a cluster, and follow it.

    Sent along are recipe files, and the modules of your own that they name; data goes by its address, or as a path in a
    folder that all nodes have mounted (--shared). A command that computes by itself (preprocess, or pretrain with one
    worker) runs on a node with as many free CPUs, one that leads workers on the head. The job goes on when this command
    is ended or its machine closed; its exit status is the job's.

    Examples:
      tokenfree cluster submit -- pretrain canine-s-tiny --data data/en --output runs/tiny --workers 2
      tokenfree cluster submit --shared /mnt/shared -- sweep three-knobs-tiny --data s3://bucket/en \\
          --output /mnt/shared/sweep
      tokenfree cluster submit --gpus 1 -- pretrain mine.yaml --data s3://bucket/en --output s3://bucket/run
    """
    local = rehearsal.running()
    address = _address(args)
    is_here = local is not None and local.address == address
    sent = submission(args.passed_on, args.sent_module, shared=args.shared, is_here=is_here)
    jobs = _jobs(address)
    size = sum(path.stat().st_size for path in sent.files.values())
    files = (
        f"{counted(len(sent.files), 'file')}, {size / 1e3:,.1f} kB: {', '.join(sent.files)}"
        if sent.files
        else "no files"
    )
    cpus = sent.cpus if args.cpus is None else args.cpus
    where = f"on a node with {counted(cpus, 'free CPU')}" if cpus else "on the head"
    if args.gpus:
        where = f"on a node with {counted(cpus, 'CPU')} and {counted(args.gpus, 'GPU')} free"
    if args.verbosity != "quiet":
        print(f"sent along  {files}")
        print(f"runs        {where}")
    name = jobs.submit(sent.words, sent.files, cpus=cpus, gpus=args.gpus)
    print(f"job         {name}", flush=True)
    return 0 if args.no_wait else _follow(jobs, name)


def logs(args: argparse.Namespace) -> int:
    """Show what a job writes, from its beginning to its end; the exit status is the job's.

    Examples:
      tokenfree cluster logs pretrain-0312-104512-9f3a
      tokenfree cluster logs pretrain-0312-104512-9f3a --now
    """
    jobs = _jobs(_address(args))
    if not args.now:
        return _follow(jobs, args.job)
    print(jobs.logs(args.job), end="")
    return 0


def stop(args: argparse.Namespace) -> int:
    """Stop a job: it is asked to end, as by SIGTERM, and has two minutes to write its checkpoint.

    Example:
      tokenfree cluster stop pretrain-0312-104512-9f3a
    """
    jobs = _jobs(_address(args))
    running = jobs.stop(args.job)
    while running and not (job := jobs.get(args.job)).has_ended:
        time.sleep(0.5)
    print(f"job {args.job}: {jobs.get(args.job).status if not running else job.status}")
    return 0


def list_jobs(args: argparse.Namespace) -> int:
    """List the jobs of a cluster, the oldest first.

    Examples:
      tokenfree cluster jobs
      tokenfree cluster jobs --json
    """
    jobs = _jobs(_address(args)).list()
    from tokenfree.workflows.cluster.jobs import as_json

    if args.json:
        print(as_json(jobs))
    elif not jobs:
        print("no jobs yet; tokenfree cluster submit -- COMMAND begins one")
    else:
        console().print(_table(jobs))
    return 0


def _follow(jobs: Jobs, name: str) -> int:
    """Write the log of a job to its end; its exit status. Ctrl-C leaves the job alone."""
    from tokenfree.workflows.cluster.jobs import exit_status, last_line

    def write(text: str) -> None:
        print(text, end="", flush=True)

    def notice(text: str) -> None:
        print(f"tokenfree: {text}", file=sys.stderr)

    try:
        job = jobs.follow(name, write, notice)
    except KeyboardInterrupt:
        print(f"\nthe job goes on; tokenfree cluster logs {name} shows it, tokenfree cluster stop {name} ends it")
        return 128 + signal.SIGINT
    if last_line(job):
        notice(last_line(job))
    return exit_status(job)


def _jobs(address: str) -> Jobs:
    """The jobs of the cluster at an address, with Ray's token where there is one."""
    tokens.use_if_made()
    from tokenfree.workflows.cluster.jobs import Jobs

    parts = urlsplit(address)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        print(
            f"tokenfree: warning: what goes to {address} is not encrypted, Ray's token neither; use a tunnel to the "
            "head, "
            "such as ray dashboard PROFILE makes",
            file=sys.stderr,
        )
    return Jobs(address)


def _address(args: argparse.Namespace) -> str:
    """The address that is meant, with its protocol. Raises UserError where it is none."""
    local = rehearsal.running()
    own = None if local is None else local.address
    address = args.address or own or os.environ.get("RAY_API_SERVER_ADDRESS") or DEFAULT_ADDRESS
    address = (address if "://" in address else f"http://{address}").rstrip("/")
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise UserError(
            f"--address {address}: give the dashboard of a cluster as http://HOST:PORT, such as {DEFAULT_ADDRESS}"
        )
    return address


def _table(jobs: list[Job]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("job", "status", "minutes", "exit", "command"):
        table.add_column(header, overflow="fold")
    for job in jobs:
        minutes = "" if job.started is None else f"{((job.ended or time.time()) - job.started) / 60:.1f}"
        table.add_row(
            job.name, job.status, minutes, "" if job.exit_status is None else str(job.exit_status), job.command
        )
    return table
