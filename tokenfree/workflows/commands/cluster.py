"""Start Ray clusters, and run commands on them.

`up` starts machines from a profile for `ray up` (AWS, GCP, Azure, or your own hosts). `local` starts several
nodes on this machine. `submit` runs any other command on a cluster and follows it. The job continues if this
machine is closed. Anyone who reaches Ray's ports can run code. By default they are on 127.0.0.1, and Ray
requires a token.

Examples:
  tokenfree cluster local --nodes 3
  tokenfree cluster submit -- pretrain canine-s-tiny --data $PWD/data/en --output $PWD/runs/tiny --workers 2
  tokenfree cluster up aws.yaml
  tokenfree cluster submit --help
"""

import argparse
import inspect
import pkgutil

import tokenfree.workflows.commands
from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes import options

PASSES_ON = True  # the command to submit follows `--`
DEFAULT_ADDRESS = "http://127.0.0.1:8265"  # of a tunnel
# Help of the actions.
_ACTIONS = {
    "profiles": """List the profiles that come with tokenfree, or print one.

    Examples:
      tokenfree cluster profiles
      tokenfree cluster profiles aws > aws.yaml
    """,
    "up": """Start the cluster of a profile, or update it to the current profile.

    The profile is checked first, and everything that costs money is listed. Nothing starts without
    confirmation.

    Examples:
      tokenfree cluster profiles aws > aws.yaml    # then fill in each <...>
      tokenfree cluster up aws.yaml
      tokenfree cluster up aws.yaml --yes
    """,
    "status": """Show the nodes of a cluster, and how much of them is in use.

    Examples:
      tokenfree cluster status aws.yaml
      tokenfree cluster status local
    """,
    "down": """Take a cluster down: delete its machines and everything on their disks.

    Examples:
      tokenfree cluster down aws.yaml
      tokenfree cluster down local
    """,
    "local": """Start a local cluster: several nodes on this machine, which end with this command.

    Its nodes are processes of `ray start`, each with its own temporary files and without GPUs. They and the
    dashboard listen only on 127.0.0.1. Ctrl-C, or tokenfree cluster down local, ends all of it. With --hosts
    each node runs in its own network namespace, at its own address.

    Examples:
      tokenfree cluster local --nodes 3
      tokenfree cluster local --nodes 2 --cpus 2
    """,
    "submit": """Run a command of tokenfree on a cluster, and follow it.

    The command runs there unchanged, so its paths are those of the nodes: addresses such as s3://bucket/en,
    or folders that all nodes share. --send copies recipe files and custom modules from here into the job's
    working directory, under the same relative paths. A command that leads workers runs on the head, any other
    on a node with a free CPU. The job continues if this command ends. The exit status is the job's.

    Examples:
      tokenfree cluster submit -- pretrain canine-s-tiny --data s3://bucket/en --output s3://bucket/a --workers 2
      tokenfree cluster submit -- sweep three-knobs-tiny --data s3://bucket/en --output /mnt/shared/sweep
      tokenfree cluster submit --send mine.yaml --gpus 1 -- pretrain mine.yaml --data s3://bucket/en
    """,
    "logs": """Show the output of a job, from its beginning to its end; the exit status is the job's.

    Examples:
      tokenfree cluster logs pretrain-0312-104512-9f3a
      tokenfree cluster logs pretrain-0312-104512-9f3a --now
    """,
    "stop": """Stop a job: ask it to end, as SIGTERM does, and give it two minutes to write its checkpoint.

    Example:
      tokenfree cluster stop pretrain-0312-104512-9f3a
    """,
    "jobs": """List the jobs of a cluster, the oldest first.

    Examples:
      tokenfree cluster jobs
      tokenfree cluster jobs --json
    """,
}


_PROFILE: options.Arguments = {
    "profile": {"metavar": "PROFILE", "help": "a profile's name or YAML file; local: the local cluster"},
}
_YES: options.Arguments = {"--yes": {"action": "store_true", "help": "do not ask"}}
_NO_TOKEN: options.Arguments = {
    "--no-token": {"action": "store_true", "help": "let Ray accept commands without a token"},
}
_ADDRESS: options.Arguments = {
    "--address": {
        "metavar": "URL",
        "help": f"the cluster's dashboard (default: the local cluster's, or {DEFAULT_ADDRESS})",
    },
}
_JOB: options.Arguments = {
    "job": {"metavar": "JOB", "help": "name of the job, as submit and jobs print it"},
}
_ARGUMENTS: dict[str, options.Arguments] = {
    "profiles": {"profile": {"metavar": "NAME", "nargs": "?", "help": "the profile to print"}},
    "up": {**_PROFILE, **_YES, **_NO_TOKEN},
    "status": _PROFILE,
    "down": {**_PROFILE, **_YES},
    "local": {
        **_NO_TOKEN,
        "--nodes": {
            "metavar": "N",
            "type": options.at_least(1),
            "default": 3,
            "help": "number of nodes, including the head (default 3)",
        },
        "--cpus": {
            "metavar": "N",
            "type": options.at_least(1),
            "help": "CPUs of each node (default: an even share of this machine's)",
        },
        "--hosts": {"metavar": "NAME", "nargs": "+", "help": "network namespaces (ip netns), one per node"},
    },
    "submit": {
        **_ADDRESS,
        "--send": {
            "metavar": "PATH",
            "action": "append",
            "default": [],
            "help": "a file or folder that the job needs; repeatable",
        },
        "--cpus": {
            "metavar": "N",
            "type": int,
            "help": "CPUs of the command's own process (default: as it needs)",
        },
        "--gpus": {
            "metavar": "N",
            "type": int,
            "default": 0,
            "help": "GPUs of the command's own process (default 0)",
        },
        "--no-wait": {"action": "store_true", "help": "do not follow the job"},
    },
    "logs": {
        **_ADDRESS,
        **_JOB,
        "--now": {"action": "store_true", "help": "print what exists without waiting for more"},
    },
    "stop": {**_ADDRESS, **_JOB},
    "jobs": {**_ADDRESS, **options.JSON},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    for name, text in _ACTIONS.items():
        text = inspect.cleandoc(text)
        action = actions.add_parser(name, help=text.partition("\n")[0].rstrip("."), description=text)
        options.add(action, _ARGUMENTS[name])


def check(args: argparse.Namespace) -> None:
    """Raise UserError if the words after `--` are not a command for the action, or are missing."""
    name = next(iter(args.passed_on), None)
    if args.action == "submit":
        modules = pkgutil.iter_modules(tokenfree.workflows.commands.__path__)
        if name not in {module.name for module in modules} - {"cluster", "completion"}:
            problem = (
                "there is no command after --"
                if name is None
                else f"{name} is not a command to run on a cluster"
            )
            raise UserError(
                f"{problem}; give one, such as: tokenfree cluster submit -- pretrain RECIPE ... --workers 2"
            )
    elif name is not None:
        raise UserError(f"tokenfree cluster {args.action} takes nothing after '--', but got {name!r}")
