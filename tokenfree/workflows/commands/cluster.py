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
import importlib
import inspect
import pkgutil

import tokenfree.workflows.commands
from tokenfree.core.errors import UserError
from tokenfree.workflows.cluster import actions as cluster_actions

PASSES_ON = True  # the command to submit follows `--`
_NOT_SENT = ("cluster", "completion")
_ACTIONS = {
    "profiles": cluster_actions.show_profiles,
    "up": cluster_actions.up,
    "status": cluster_actions.status,
    "down": cluster_actions.down,
    "local": cluster_actions.local,
    "submit": cluster_actions.submit,
    "logs": cluster_actions.logs,
    "stop": cluster_actions.stop,
    "jobs": cluster_actions.list_jobs,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    for name, function in _ACTIONS.items():
        text = inspect.cleandoc(function.__doc__ or "").partition("\n\nRaises:")[0]
        action = actions.add_parser(name, help=text.partition("\n")[0].rstrip("."), description=text)
        if name in ("up", "status", "down"):
            action.add_argument(
                "profile", metavar="PROFILE", help="a profile's name or YAML file; local: the local cluster"
            )
        if name in ("up", "down"):
            action.add_argument("--yes", action="store_true", help="do not ask")
        if name in ("submit", "logs", "stop", "jobs"):
            where = f"the cluster's dashboard (default: the local cluster's, or {cluster_actions.DEFAULT_ADDRESS})"
            action.add_argument("--address", metavar="URL", help=where)
        if name in ("logs", "stop"):
            action.add_argument("job", metavar="JOB", help="name of the job, as submit and jobs print it")
        if name in ("up", "local"):
            action.add_argument(
                "--no-token", action="store_true", help="let Ray accept commands without a token"
            )
    by_name = actions.choices
    by_name["profiles"].add_argument("profile", metavar="NAME", nargs="?", help="the profile to print")
    by_name["logs"].add_argument(
        "--now", action="store_true", help="print what exists without waiting for more"
    )
    by_name["jobs"].add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    local = by_name["local"]
    local.add_argument(
        "--nodes", metavar="N", type=int, default=3, help="number of nodes, including the head (default 3)"
    )
    local.add_argument(
        "--cpus", metavar="N", type=int, help="CPUs of each node (default: an even share of this machine's)"
    )
    local.add_argument(
        "--hosts", metavar="NAME", nargs="+", help="network namespaces (ip netns), one per node"
    )
    submit = by_name["submit"]
    submit.add_argument(
        "--send",
        metavar="PATH",
        action="append",
        default=[],
        help="a file or folder that the job needs; repeatable",
    )
    submit.add_argument(
        "--cpus", metavar="N", type=int, help="CPUs of the command's own process (default: as it needs)"
    )
    submit.add_argument(
        "--gpus", metavar="N", type=int, default=0, help="GPUs of the command's own process (default 0)"
    )
    submit.add_argument("--no-wait", action="store_true", help="do not follow the job")


def run(args: argparse.Namespace) -> int:
    """Run the action. Raises UserError if the words after `--` are not a command for it, or are missing."""
    name = next(iter(args.passed_on), None)
    if args.action == "submit":
        if name not in _sent_commands():
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
    if args.action != "profiles":
        importlib.import_module("ray")  # if it is missing, the error names the extra
    return _ACTIONS[args.action](args)


def _sent_commands() -> set[str]:
    return {module.name for module in pkgutil.iter_modules(tokenfree.workflows.commands.__path__)} - set(
        _NOT_SENT
    )
