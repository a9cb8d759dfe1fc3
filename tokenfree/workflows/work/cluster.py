"""The actions of `tokenfree cluster`: start and stop machines; submit, follow and stop jobs."""

import argparse
import dataclasses
import importlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from rich.table import Column, Table

from tokenfree.core import ray_access
from tokenfree.core.errors import JobError, UserError
from tokenfree.workflows.cluster import local as local_cluster
from tokenfree.workflows.cluster import profiles
from tokenfree.workflows.cluster.profiles import LOOPBACK
from tokenfree.workflows.commands.cluster import DEFAULT_ADDRESS
from tokenfree.workflows.terminal.progress import console
from tokenfree.workflows.terminal.results import counted

if TYPE_CHECKING:
    from tokenfree.workflows.cluster.jobs import Job, Jobs

LOCAL = "local"
NEWER_AUTOSCALER = "RAY_UP_enable_autoscaler_v2"
_REACHED = "Ray runs the code of anyone who reaches it"
_SECRET = re.compile(r"://[^/@\s]*:[^/@\s]*@")  # a password in an address
# Commands that lead workers when they are given this option.
_LEADING = {"preprocess": "--runner", "pretrain": "--workers", "finetune": "--workers"}


def run(args: argparse.Namespace) -> int | None:
    if args.action != "profiles":
        # If it is missing, the error names the extra.
        importlib.import_module("ray")
    return _ACTIONS[args.action](args)


def _show_profiles(args: argparse.Namespace) -> None:
    if args.profile:
        print(profiles.find(args.profile).read_text(encoding="utf-8"), end="")
    for name in () if args.profile else profiles.names():
        print(f"  {name:<12}{profiles.about(name)}")


def _up(args: argparse.Namespace) -> None:
    if args.profile == LOCAL:
        raise UserError("local is not a profile. tokenfree cluster local starts a local cluster")
    profile = profiles.read(args.profile)
    if not args.no_token and not profiles.asks_for_token(profile):
        raise UserError(
            f"profile {args.profile}: head_start_ray_commands: RAY_AUTH_MODE=token is missing, and {_REACHED}. Add it, "
            "or give --no-token"
        )
    for line in [*profiles.costs(profile), *profiles.warnings(profile)]:
        print(f"  {line}")
    _agree("start it, at your cost?" if profile.is_paid else "start it?", args.yes)
    _set_token(args.no_token)
    if not profile.is_paid:
        # Ray's newer autoscaler (2.60) mistakes the head of an on-premise cluster for a lost worker, and
        # starts only the first of two workers.
        os.environ.setdefault(NEWER_AUTOSCALER, "0")
    _ray("up", str(profile.path), "--yes", "--no-config-cache", "--disable-usage-stats")
    print(f"\nin a terminal of its own, a tunnel:  ray dashboard {profile.path}")
    print(f"then, in this one:  tokenfree cluster submit --address {DEFAULT_ADDRESS} -- COMMAND")
    if profile.is_paid:
        print(f"until it is taken down it costs money:  tokenfree cluster down {args.profile}")


def _status(args: argparse.Namespace) -> int:
    if args.profile != LOCAL:
        profile = profiles.read(args.profile)
        ray_access.send_token()
        # The shell on the head does not set this variable.
        mode = "RAY_AUTH_MODE=token " if profiles.asks_for_token(profile) else ""
        _ray("exec", str(profile.path), f"{mode}ray status", "--no-config-cache")
        return 0
    cluster = local_cluster.running()
    if cluster is None:
        print("no local cluster runs; tokenfree cluster local starts one")
        return 1
    print(f"a local cluster of {counted(len(cluster.nodes), 'node')} takes jobs at {cluster.address}")
    print(f"  {len(cluster.processes())} processes; logs in {cluster.folder}")
    return 0


def _down(args: argparse.Namespace) -> None:
    if args.profile == LOCAL:
        cluster = local_cluster.running()
        if cluster is None:
            print("no local cluster runs; nothing to do")
        else:
            local_cluster.stop(cluster)
            print("the local cluster has ended")
        return
    profile = profiles.read(args.profile)
    what = (
        "delete its machines and their disks" if profile.is_paid else "end Ray, and all jobs, on its machines"
    )
    _agree(f"{args.profile}: {what}?", args.yes)
    ray_access.send_token()
    _ray("down", str(profile.path), "--yes")


def _local(args: argparse.Namespace) -> None:
    _set_token(args.no_token)
    print(f"starting {counted(len(args.hosts or ()) or args.nodes, 'node')}", flush=True)
    cluster = local_cluster.start(args.nodes, args.cpus, hosts=args.hosts or ())
    try:
        print(f"a local cluster of {counted(len(cluster.nodes), 'node')} takes jobs at {cluster.address}")
        print("  submit      tokenfree cluster submit -- COMMAND")
        print("  end         Ctrl-C here, or tokenfree cluster down local", flush=True)
        while local_cluster.is_current(cluster):
            time.sleep(0.5)
        print("the local cluster was taken down")
    except KeyboardInterrupt:
        print("\nending the local cluster", flush=True)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Until nothing is left.
            signal.signal(number, signal.SIG_IGN)
        local_cluster.stop(cluster)


def _submit(args: argparse.Namespace) -> int:
    words = args.passed_on
    if any(map(_SECRET.search, words)):
        raise UserError(
            "an address holds a password, which anyone who sees the job can read. Give it to the nodes"
        )
    metadata = {"recipe": words[1]} if len(words) > 1 and not words[1].startswith("-") else {}
    for word, following in itertools.pairwise([*words, ""]):
        option, equals, value = word.partition("=")
        place = value if equals else following
        if option == "--output":
            metadata["output"] = place
        if option == "--output" and "://" not in place and not os.path.isabs(place):
            raise UserError(
                f"--output {place}: a relative path lies in the job's working directory, which is deleted with the "
                "job. Give an address such as s3://bucket/run, or the whole path of a folder that all nodes share"
            )
    jobs = _jobs(args)
    cpus = entrypoint_cpus(words) if args.cpus is None else args.cpus
    where = f"on a node with {counted(cpus, 'free CPU')}" if cpus else "on the head"
    if args.gpus:
        where = f"on a node with {counted(cpus, 'CPU')} and {counted(args.gpus, 'GPU')} free"
    name = jobs.submit(words, args.send, cpus=cpus, gpus=args.gpus, metadata=metadata)
    if args.verbosity != "quiet":
        print(f"runs        {where}")
    print(f"job         {name}", flush=True)
    return 0 if args.no_wait else _follow(jobs, name)


def entrypoint_cpus(words: Sequence[str]) -> int:
    """Return the CPUs of a command's own process: 0 if it leads workers, so that it may run on the head."""
    option = _LEADING.get(words[0])
    leads = words[0] == "sweep" or any(word.partition("=")[0] == option for word in words)
    return 0 if leads else 1


def _logs(args: argparse.Namespace) -> int:
    jobs = _jobs(args)
    if not args.now:
        return _follow(jobs, args.job)
    print(jobs.logs(args.job), end="")
    return 0


def _stop(args: argparse.Namespace) -> None:
    jobs = _jobs(args)
    jobs.stop(args.job)
    while not (job := jobs.get(args.job)).has_ended:
        time.sleep(0.5)
    print(f"job {args.job}: {job.status}")


def _list_jobs(args: argparse.Namespace) -> None:
    jobs = _jobs(args).list()
    if args.json:
        print(json.dumps({"jobs": [dataclasses.asdict(job) for job in jobs]}))
    elif not jobs:
        print("no jobs yet; tokenfree cluster submit -- COMMAND begins one")
    else:
        console().print(_table(jobs))


def _set_token(is_disabled: bool) -> None:
    if is_disabled:
        os.environ[ray_access.MODE] = "disabled"
    else:
        ray_access.require_token()


def _ray(*arguments: str) -> None:
    sys.stdout.flush()
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run([sys.executable, "-P", "-m", "ray.scripts.scripts", *arguments], env=environment)
    if done.returncode:
        raise JobError(f"ray {arguments[0]} failed with status {done.returncode}. Its output above says why")


def _agree(question: str, agreed: bool) -> None:
    if agreed:
        return
    if not sys.stdin.isatty():
        raise UserError(f"{question} give --yes, as nobody can be asked here")
    print(f"{question} [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("not done, as the answer was no")


def _follow(jobs: "Jobs", name: str) -> int:
    """Write the log of a job to its end, and return its exit status. Ctrl-C leaves the job alone."""
    try:
        job = jobs.follow(name, lambda text: print(text, end="", flush=True))
    except KeyboardInterrupt as interrupt:
        print(
            f"\nthe job continues; tokenfree cluster logs {name} shows it, tokenfree cluster stop {name} ends it"
        )
        return 128 + next(iter(interrupt.args), signal.SIGINT)
    status, line = job.outcome()
    if line:
        print(f"tokenfree: {line}", file=sys.stderr)
    return status


def _jobs(args: argparse.Namespace) -> "Jobs":
    cluster = local_cluster.running()
    local_address = None if cluster is None else cluster.address
    address = args.address or local_address or os.environ.get("RAY_API_SERVER_ADDRESS") or DEFAULT_ADDRESS
    address = (address if "://" in address else f"http://{address}").rstrip("/")
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise UserError(
            f"--address {address}: give the dashboard of a cluster as http://HOST:PORT, such as {DEFAULT_ADDRESS}"
        )
    ray_access.send_token()
    from tokenfree.workflows.cluster.jobs import Jobs

    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        print(
            f"tokenfree: warning: what goes to {address} is not encrypted, Ray's token neither. Use a tunnel to the "
            "head, such as ray dashboard PROFILE makes",
            file=sys.stderr,
        )
    return Jobs(address)


def _table(jobs: "list[Job]") -> Table:
    headers = (Column(name, overflow="fold") for name in ("job", "status", "minutes", "exit", "command"))
    table = Table(*headers, box=None, pad_edge=False, header_style="bold")
    for job in jobs:
        minutes = "" if job.started is None else f"{((job.ended or time.time()) - job.started) / 60:.1f}"
        exit_code = "" if job.exit_status is None else str(job.exit_status)
        table.add_row(job.name, job.status, minutes, exit_code, job.command)
    return table


_ACTIONS = {
    "profiles": _show_profiles,
    "up": _up,
    "status": _status,
    "down": _down,
    "local": _local,
    "submit": _submit,
    "logs": _logs,
    "stop": _stop,
    "jobs": _list_jobs,
}
