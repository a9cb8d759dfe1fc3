"""The actions of `tokenfree cluster`: start and stop machines; submit, follow and stop jobs."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.settings import nest, value_at
from tokenfree.workflows.cluster import local as local_cluster
from tokenfree.workflows.cluster import profiles, tokens
from tokenfree.workflows.cluster.profiles import LOOPBACK, Profile, asks_for_token, is_under
from tokenfree.workflows.recipes import library
from tokenfree.workflows.recipes.options import parted
from tokenfree.workflows.terminal.progress import console, counted
from tokenfree.workflows.terminal.verbosity import add_arguments

if TYPE_CHECKING:
    from rich.table import Table

    from tokenfree.workflows.cluster.jobs import Job, Jobs

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")  # MODULE.CLASS
_LEFT_OUT = {"__pycache__", "node_modules", "venv"}  # and whatever begins with a dot: .git, .env, .venv, .ssh
MOST_BYTES = 10_000_000  # of a file; code has less


def modules_of(recipes: Any, folder: Path) -> set[str]:
    """The modules of `folder` that texts anywhere in recipes name a class of, and those that they import."""
    found: set[str] = set()
    waiting = [text.split(".")[0] for text in _texts(recipes) if _NAME.fullmatch(text)]
    while waiting:
        name = waiting.pop()
        if name in found or not any(map(Path.exists, _places(name, folder))):
            continue
        found.add(name)
        waiting += [top for file in files_of(name, folder) if file.suffix == ".py" for top in _imports(file)]
    return found


def files_of(module: str, folder: Path) -> list[Path]:
    """The file of a module of `folder`, or all files of a package, but for caches and what is hidden.

    Raises:
        UserError: one of them is too large for code.
    """
    file, package = _places(module, folder)
    found = [file] if file.is_file() else sorted(path for path in package.rglob("*") if path.is_file())
    kept = [path for path in found if not any(_is_left_out(part) for part in path.relative_to(folder).parts)]
    for path in kept:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(
                f"{path.relative_to(folder)} has {path.stat().st_size / 1e6:,.1f} MB, and would be sent with the code "
                f"of {module}; data belongs where all nodes reach it, so move it out of the package"
            )
    return kept


def _texts(value: Any) -> Iterator[str]:
    """All texts in nested mappings and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _places(module: str, folder: Path) -> tuple[Path, Path]:
    return folder / f"{module}.py", folder / module


def _imports(file: Path) -> Iterable[str]:
    """The first names of all modules that a file imports; none where it is no Python, which the job will say."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


def _is_left_out(part: str) -> bool:
    return part.startswith(".") or part in _LEFT_OUT or part.endswith(".pyc")


NEWER_AUTOSCALER = "RAY_UP_enable_autoscaler_v2"


def start_machines(profile: Profile) -> None:
    """Start the cluster, or bring it to what the profile says now. Raises JobError where Ray fails."""
    if not profile.is_paid:
        # Ray's newer autoscaler (2.60) takes the head of hosts of one's own for a worker that is gone, and starts only
        # the first of two workers.
        os.environ.setdefault(NEWER_AUTOSCALER, "0")
    _ray("up", str(profile.path), "--yes", "--no-config-cache", "--disable-usage-stats")


def stop_machines(profile: Profile) -> None:
    """Take the cluster down, with its machines. Raises JobError where Ray fails."""
    _ray("down", str(profile.path), "--yes")


def machine_status(profile: Profile) -> None:
    """Print the nodes and what runs on them. Raises JobError where the head does not answer."""
    mode = "RAY_AUTH_MODE=token " if asks_for_token(profile) else ""  # which the head's shell does not know
    _ray("exec", str(profile.path), f"{mode}ray status", "--no-config-cache")


def _ray(*arguments: str) -> None:
    """Run Ray's own command line, whose output is the user's to see."""
    sys.stdout.flush()
    environment: Mapping[str, str] = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run([sys.executable, "-P", "-m", "ray.scripts.scripts", *arguments], env=environment)
    if done.returncode:
        raise JobError(f"ray {arguments[0]} failed with status {done.returncode}; what it printed above says why")


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
    start_machines(profile)
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
        machine_status(profile)
        return 0
    found = local_cluster.running()
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
        found = local_cluster.running()
        if found is None:
            print("no rehearsal runs; nothing to do")
        else:
            local_cluster.stop(found)
            print("the rehearsal has ended")
        return 0
    profile = profiles.read(args.profile)
    what = "delete its machines and their disks" if profile.is_paid else "end Ray, and all jobs, on its machines"
    _agree(f"{args.profile}: {what}?", args.yes)
    tokens.use_if_made()
    stop_machines(profile)
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
    made = local_cluster.start(args.nodes, args.cpus, hosts=args.hosts or (), dashboard=args.dashboard_host)
    try:
        print(f"a rehearsal of {counted(len(made.nodes), 'node')} takes jobs at {made.address}")
        print("  submit      tokenfree cluster submit -- COMMAND")
        print("  end         Ctrl-C here, or tokenfree cluster down local", flush=True)
        while local_cluster.is_current(made):
            time.sleep(0.5)
        print("the rehearsal was taken down")
    except KeyboardInterrupt:
        print("\nending the rehearsal", flush=True)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # until nothing is left
        local_cluster.stop(made)
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


_PATHS = {"DIR", "RUN", "RUN|FOLDER", "PATH", "URL"}  # metavars of what lies somewhere
_FILE = "FILE"  # that of a small file, which is sent along
_PATH_KEYS = ("wikipedia", "books", "vocabulary.model")  # of recipes
_SECRET = re.compile(r"://[^/@\s]*:[^/@\s]*@")  # a password in an address
_TOLD = "an address holds a password, which all who see the job would read; give it to the nodes"
GIVEN = "given"  # the folder, in what is sent, of files from outside the working directory


@dataclasses.dataclass(frozen=True)
class Submission:
    """What is sent.

    Attributes:
        words: the command line after `tokenfree`, as it runs on the cluster.
        files: what goes along, by its name there.
        cpus: that the command's own process is to have; 0 where it only leads workers, and may run on the head.
    """

    words: tuple[str, ...]
    files: Mapping[str, Path]
    cpus: int


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


def submission(words: Sequence[str], module: Any, *, shared: Sequence[str] = (), is_here: bool = False) -> Submission:
    """What it takes to run `tokenfree WORDS` on a cluster.

    Args:
        words: the name of a command first.
        module: of that command, in `tokenfree.workflows.commands`.
        shared: folders that all nodes have mounted at the same path.
        is_here: whether all nodes are this machine, and so have its paths.

    Raises:
        UserError: its arguments are wrong, or hold a password; or it reads or writes what the nodes do not have.
    """
    name = words[0]
    if any(map(_SECRET.search, words)):
        raise UserError(_TOLD)
    end = words.index("--") if "--" in words else len(words)
    parser = _parser(name, module)
    options = [option for action in parser._actions for option in action.option_strings]
    own, overrides = parted(name, words[1:end], options, getattr(module, "KIND", None))
    args = parser.parse_args(own)
    rule = _Places(shared, is_here)
    moved = _Moved()
    added: list[str] = []
    files: dict[str, Path] = {}
    for action in parser._actions:
        option, given = next(iter(action.option_strings), str(action.metavar)), getattr(args, action.dest, None)
        is_place = action.metavar in _PATHS or option == "--output"
        if option == "--output" and given == action.default and given is not None:
            added = [option, rule.place(given, option)]
        elif is_place and given != action.default:
            for value in _values(given):
                moved.put(action.option_strings, value, rule.place(value, option))
        elif action.metavar == _FILE and action.dest != "config":
            for value in filter(os.path.isfile, _values(given)):
                moved.put(action.option_strings, value, _pack(value, files))
    for value in _values(getattr(args, "hf_dataset", None)):
        if os.path.exists(value.split(":")[0].split("@")[0]):
            moved.put(["--hf-dataset"], value, rule.place(value, "--hf-dataset"))
    for key, value in overrides:
        if key in _PATH_KEYS:
            moved.put([f"--{key}"], value, rule.place(value, f"--{key}"))
    said: list[Any] = [nest(overrides)]
    for options, recipe in (((), getattr(args, "recipe", None)), (["--config"], getattr(args, "config", None))):
        if recipe is not None and recipe not in library.names():
            library.read(recipe)  # it is a file, and can be read
            moved.put(options, recipe, _pack(recipe, files))
            said += _read_with_named(recipe, files, rule)
    for found in sorted(modules_of(said, Path.cwd())):
        files |= {str(path.relative_to(Path.cwd())): path for path in files_of(found, Path.cwd())}
    many = {option for action in parser._actions if action.nargs in ("+", "*") for option in action.option_strings}
    changed = moved.words(words[1:end], many)
    return Submission((name, *changed, *added, *words[end:]), files, _own_cpus(name, args))


@dataclasses.dataclass(frozen=True)
class _Places:
    """Which places all nodes reach."""

    shared: Sequence[str]
    is_here: bool

    def place(self, value: str, what: str) -> str:
        """The place as the nodes know it. Raises UserError where they do not."""
        if _SECRET.search(value):
            raise UserError(f"{what}: {_TOLD}")
        if "://" in value and not value.startswith("file:"):
            return value
        if self.is_here:
            return os.path.abspath(value) + ("/" if value.endswith("/") else "")
        if os.path.isabs(value) and is_under(os.path.normpath(value), list(self.shared)):
            return value
        raise UserError(
            f"{what} {value}: a path of one machine, which the nodes of the cluster do not have; give an address such "
            "as s3://bucket/data, or name the folder that all of them have mounted: --shared FOLDER"
        )


class _Moved:
    """What values of a command line are on the cluster: of one option, or of arguments without one."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], str] = {}

    def put(self, options: Sequence[str], value: str, there: str) -> None:
        """Say what `value` is there; `options` are the names of its option, none of an argument without one."""
        for option in options or ("",):
            self._values[_plain(option), value] = there

    def words(self, words: Sequence[str], many: Collection[str]) -> Iterator[str]:
        """The words as they are there; options in `many` may have several values."""
        option = ""
        for word in words:
            name, equals, value = word.partition("=")
            if not word.startswith("--"):
                yield self._values.get((option, word)) or self._values.get(("", word), word)
            elif equals:
                yield f"{name}={self._values.get((_plain(name), value), value)}"
            else:
                yield word
            if word.startswith("--") and not equals:
                option = _plain(name)
            elif equals or option not in many:
                option = ""


def _plain(option: str) -> str:
    return option.replace("_", "-")


def _pack(file: str, files: dict[str, Path]) -> str:
    """Add a file; its name there."""
    inside = os.path.relpath(file)
    name = f"{GIVEN}/{Path(file).name}" if inside.startswith("..") else inside
    files[name] = Path(file)
    return name


def _read_with_named(recipe: str, files: dict[str, Path], rule: _Places) -> list[dict[str, Any]]:
    """What a recipe says, and what those say that it names, whose files are added."""
    mapping = library.read(recipe)
    for key in _PATH_KEYS:
        for value in _values(value_at(mapping, key)):
            if rule.place(value, f"recipe {recipe}: {key}") != value:
                raise UserError(
                    f"recipe {recipe}: {key}: {value} is relative to the working directory, which is another one on "
                    "the cluster; write the whole path"
                )
    said = [mapping]
    for named in map(os.path.normpath, set(_named(mapping)) - set(library.names())):
        if os.path.isabs(named) or named.startswith(".."):
            raise UserError(
                f"recipe {recipe}: {named} lies outside the working directory, and cannot be sent; run the command in "
                "a folder above both"
            )
        if named not in files:
            files[named] = Path(named)
            said += _read_with_named(named, files, rule)
    return said


def _named(mapping: Mapping[str, Any]) -> Iterator[str]:
    """The recipes that a recipe names."""
    yield from _values(mapping.get("base"))
    for kind in ("choice", "grid"):
        yield from _values(value_at(mapping, f"space.variant.{kind}"))


def _values(value: Any) -> list[str]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]


def _own_cpus(name: str, args: argparse.Namespace) -> int:
    """The CPUs of the command's own process. One that leads workers of Ray needs none."""
    workers = str(getattr(args, "workers", None) or "1")
    if name == "sweep" or (name in ("pretrain", "finetune") and workers != "1"):
        return 0
    if name == "preprocess":
        return max(1, int(workers)) if args.runner == "direct" and args.profile is None else 0
    return 1


def _parser(name: str, module: Any) -> _Parser:
    parser = _Parser(prog=f"tokenfree {name}", allow_abbrev=False)
    module.add_arguments(parser)
    parser.add_argument("--debug", action="store_true")
    add_arguments(parser)
    return parser


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
    local = local_cluster.running()
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
    local = local_cluster.running()
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
