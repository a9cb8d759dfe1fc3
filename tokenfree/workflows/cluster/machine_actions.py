"""The actions of `tokenfree cluster` that start machines and take them down, of a profile or of the rehearsal."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from typing import NoReturn

from tokenfree.preprocess.common.errors import UserError
from tokenfree.workflows.cluster import profiles, ray_up, rehearsal, tokens
from tokenfree.workflows.terminal.stage_line import counted

LOCAL = "local"
_REACHED = "Ray runs the code of whoever reaches it"
_ADDRESS = "http://127.0.0.1:8265"  # of a tunnel, by default


def show_profiles(args: argparse.Namespace) -> int:
    """List the profiles that come with tokenfree, or print one.

    Examples:
      tokenfree cluster profiles
      tokenfree cluster profiles aws > aws.yaml
    """
    if args.profile:
        print(profiles.find(args.profile).read_text(encoding="utf-8"), end="")
    for name in () if args.profile else profiles.names():
        print(f"  {name:<12}{profiles.about(name)}")
    return 0


def up(args: argparse.Namespace) -> int:
    """Start the cluster of a profile, or bring it to what the profile says now.

    The profile is checked first, what costs money is named, and nothing is started without a yes.

    Examples:
      tokenfree cluster profiles aws > aws.yaml    and fill in what stands in <...>
      tokenfree cluster up aws.yaml
      tokenfree cluster up aws.yaml --yes

    Raises:
        UserError: the profile cannot be used, or the answer was no.
    """
    if args.profile == LOCAL:
        raise UserError("local is no profile; tokenfree cluster local starts a rehearsal on this machine")
    profile = profiles.read(args.profile)
    if not args.no_token and not profiles.asks_for_token(profile):
        raise UserError(
            f"profile {args.profile}: head_start_ray_commands: RAY_AUTH_MODE=token is missing, and {_REACHED}; add it, "
            "or give --no-token"
        )
    for line in [*profiles.costs(profile), *profiles.warnings(profile)]:
        print(f"  {line}")
    _agree("start it, at your cost?" if profile.is_paid else "start it?", args.yes)
    tokens.use(asked=not args.no_token)
    tokens.make()
    ray_up.up(profile)
    print(f"\nin a terminal of its own, a tunnel:  ray dashboard {profile.path}")
    print(f"then, in this one:  tokenfree cluster submit --address {_ADDRESS} -- COMMAND")
    if profile.is_paid:
        print(f"until it is taken down it costs money:  tokenfree cluster down {args.profile}")
    return 0


def status(args: argparse.Namespace) -> int:
    """Show the nodes of a cluster, and what is used of them.

    Examples:
      tokenfree cluster status aws.yaml
      tokenfree cluster status local
    """
    if args.profile != LOCAL:
        profile = profiles.read(args.profile)
        tokens.use_if_made()
        ray_up.status(profile)
        return 0
    found = rehearsal.running()
    if found is None:
        print("no rehearsal runs; tokenfree cluster local starts one")
        return 1
    print(f"a rehearsal of {counted(len(found.nodes), 'node')} takes jobs at {found.address}")
    print(f"  {len(found.processes())} processes; logs in {found.folder}")
    return 0


def down(args: argparse.Namespace) -> int:
    """Take a cluster down: its machines are deleted, and with them what lies on their disks.

    Examples:
      tokenfree cluster down aws.yaml
      tokenfree cluster down local
    """
    if args.profile == LOCAL:
        found = rehearsal.running()
        if found is None:
            print("no rehearsal runs; nothing to do")
        else:
            rehearsal.stop(found)
            print("the rehearsal has ended")
        return 0
    profile = profiles.read(args.profile)
    what = "delete its machines and their disks" if profile.is_paid else "end Ray, and all jobs, on its machines"
    _agree(f"{args.profile}: {what}?", args.yes)
    tokens.use_if_made()
    ray_up.down(profile)
    return 0


def local(args: argparse.Namespace) -> int:
    """Start a rehearsal: a cluster of several nodes on this machine, which ends with this command.

    Its nodes are processes of `ray start`, with temporary files of their own, without GPUs; they and their dashboard
    listen on 127.0.0.1 alone. Ctrl-C, or tokenfree cluster down local, ends all of it. With --hosts each node runs in
    a network namespace, at an address of its own.

    Examples:
      tokenfree cluster local --nodes 3
      tokenfree cluster local --nodes 2 --cpus 2

    Raises:
        UserError: a number is too small.
    """
    if args.nodes < 1 or (args.cpus is not None and args.cpus < 1):
        raise UserError("--nodes and --cpus must be at least 1")
    if args.dashboard_host not in profiles.LOOPBACK:
        print(
            f"tokenfree: warning: {_REACHED}, and its dashboard is to listen on {args.dashboard_host}", file=sys.stderr
        )
    tokens.use(asked=not args.no_token)
    tokens.make()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    print(f"starting {counted(len(args.hosts or ()) or args.nodes, 'node')}", flush=True)
    made = rehearsal.start(args.nodes, args.cpus, hosts=args.hosts or (), dashboard=args.dashboard_host)
    try:
        print(f"a rehearsal of {counted(len(made.nodes), 'node')} takes jobs at {made.address}")
        print("  submit      tokenfree cluster submit -- COMMAND")
        print("  end         Ctrl-C here, or tokenfree cluster down local", flush=True)
        while rehearsal.is_current(made):
            time.sleep(0.5)
        print("the rehearsal was taken down")
    except KeyboardInterrupt:
        print("\nending the rehearsal", flush=True)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # until nothing is left
        rehearsal.stop(made)
    return 0


def _agree(question: str, agreed: bool) -> None:
    """Ask, unless that was answered. Raises UserError for a no, and where there is nobody to ask."""
    if agreed:
        return
    if not sys.stdin.isatty():
        raise UserError(f"{question} give --yes, as nobody can be asked here")
    print(f"{question} [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("not done, as the answer was no")


def _interrupted(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
