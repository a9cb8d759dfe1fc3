"""The command line: find the commands in `workflows/commands/`, parse arguments, run a command, and report errors.

An error is one line. Exit status 0 is success, 1 a failure, 2 an error of the user, 130 an interrupt, 143 SIGTERM.
`--debug` shows tracebacks. `-q` hides progress. `-v` shows settings, log messages of libraries, and times.
"""

import argparse
import atexit
import contextlib
import difflib
import errno
import importlib
import os
import pkgutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType, ModuleType
from typing import NoReturn

import tokenfree.workflows.commands
from tokenfree.core.errors import JobError, PrintableStream, UserError, is_utf8, one_line
from tokenfree.core.machine import own_version
from tokenfree.workflows.recipes.options import separated
from tokenfree.workflows.terminal.verbosity import add_arguments, set_logging, show_seconds

EPILOG = "Help on one command, with an example: tokenfree COMMAND --help"
_USERS_OWN = {
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
}
# Packages that only an extra installs.
_EXTRAS = {
    "apache_beam": "beam",
    **dict.fromkeys(("torch", "safetensors"), "model"),
    **dict.fromkeys(
        ("ray", "jinja2", "matplotlib", "optuna", "rapidfuzz", "scipy", "sklearn", "tensorboardX"), "train"
    ),
    "transformers": "huggingface",
}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MORE_ROOM = "lift the limit (ulimit -a), or make the model, batch or number of workers smaller"
_EXHAUSTED = (
    "can't start new thread",
    "can't allocate memory",
    "failed to allocate",
    "failed to map segment",
    "out of memory",
    "overflow when unpacking",
    "size calculation overflowed",
)


class Parser(argparse.ArgumentParser):
    """An argument parser that prints errors as one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and how to get help, and exit with status 2."""
        self.exit(2, f"{self.prog}: {one_line(message)} (see {self.prog} --help)\n")


def command_names() -> list[str]:
    """Return the names of the commands, which are the public modules of `tokenfree.workflows.commands`."""
    return sorted(
        m.name for m in pkgutil.iter_modules(tokenfree.workflows.commands.__path__) if not m.name.startswith("_")
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command named by `argv` (default: the arguments of the process) and return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    out, errors = PrintableStream(sys.stdout), PrintableStream(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), _interrupts() as caught:
        status = _status(argv, caught)
    # Ray makes colorama reset the terminal's colours at exit, in a stream that prints the escape sequence as text.
    if "colorama" in sys.modules:
        atexit.unregister(sys.modules["colorama"].initialise.reset_all)
    return status


@contextlib.contextmanager
def _interrupts() -> Iterator[list[signal.Signals]]:
    """Make SIGTERM, which schedulers send, interrupt the command like Ctrl-C. Yield the list of received signals."""
    caught: list[signal.Signals] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        caught.append(signal.Signals(number))
        signal.signal(number, before)  # a second signal has its original effect
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield caught
    finally:
        signal.signal(signal.SIGTERM, before)


def _status(argv: list[str], caught: Sequence[signal.Signals]) -> int:
    """Run the command and return its exit status. Report an error in one line. `caught` comes from `_interrupts`."""
    debug = "--debug" in argv[: argv.index("--") if "--" in argv else len(argv)]
    try:
        return _run(argv)
    except UserError as error:
        return _fail(error, 2, debug)
    except JobError as error:
        return _fail(error, 1, debug)
    except BrokenPipeError:  # as in `tokenfree inspect DIR | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        said = f"stopped by {caught[0].name}" if caught else "interrupted"
        print(f"\ntokenfree: {said}; run the same command again to resume", file=sys.stderr)
        return 128 + (caught[0] if caught else signal.SIGINT)
    except OSError as error:
        if _is_exhausted(error):
            return _fail(JobError(f"{error.strerror}: {_MORE_ROOM}"), 1, debug)
        where = f"{error.filename}: " if error.filename else ""
        text = UserError(f"{where}{error.strerror or error}")
        return _fail(text if not debug else error, 2 if error.errno in _USERS_OWN else 1, debug)
    except Exception as error:
        package = (getattr(error, "name", None) or "").partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and package in _EXTRAS:
            text = f"{package} is not installed; run pip install '.[{_EXTRAS[package]}]' in a checkout of tokenfree"
            return _fail(UserError(text), 2, debug)
        if _is_exhausted(error):
            said = str(error).strip().split("\n")[0] or "no more is given"
            return _fail(JobError(f"not enough memory or threads ({said[:160]}); {_MORE_ROOM}"), 1, debug)
        message = str(error).strip().split("\n")[0]
        note = "an unexpected failure; run again with --debug for the traceback"
        print(f"tokenfree: {type(error).__name__}: {message} ({note})", file=sys.stderr)
        if debug:
            traceback.print_exc()
        return 1


def _is_exhausted(error: Exception) -> bool:
    """Return True if the error says that memory or threads are exhausted, in the words of Python or a library."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOMEM, errno.EAGAIN)
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _EXHAUSTED)


def _run(argv: list[str]) -> int:
    split = argv.index("--") if "--" in argv else len(argv)
    own, passed_on = argv[:split], argv[split + 1 :]
    for argument in own:
        if not is_utf8(argument):
            raise UserError(f"{argument}: not UTF-8; a path must be renamed, text converted")
    names = command_names()
    name = next((argument for argument in own if not argument.startswith("-")), None)
    if name is not None and name not in names:
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        raise UserError(
            f"there is no command {name!r} " + (f"(did you mean {close[0]}?)" if close else "(see tokenfree --help)")
        )
    wanted = names if name is None else [name]  # each takes time to import
    modules = _imported(wanted)
    parser = _parser(modules)
    overrides = []
    if name is not None:
        start = own.index(name) + 1
        options, kind = _options(modules[name]), getattr(modules[name], "KIND", None)
        rest, overrides = separated(name, own[start:], options, kind)
        own = own[:start] + rest
    args = parser.parse_args(own)
    if args.version:
        print(f"tokenfree {own_version()}")
        return 0
    if not args.command:
        parser.print_help()
        return 0
    module = modules[args.command]
    _refuse_empty(module, args)
    if passed_on and not getattr(module, "PASSES_ON", False):
        raise UserError(f"tokenfree {args.command} takes nothing after '--', but got {passed_on[0]!r}")
    args.passed_on, args.overrides = passed_on, overrides
    args.whole_parser = lambda: _parser(_imported(names))
    set_logging(args.verbosity, debug=args.debug)
    began = time.monotonic()
    try:
        status = module.run(args) or 0
    except (UserError, JobError):
        raise
    except Exception as error:
        said = _full_disk(error)
        if said is None:
            raise
        place = getattr(error, "filename", None) or getattr(args, "output", None) or getattr(args, "folder", None)
        where = f"{place}: " if place else ""
        remedy = "Free space there and in TMPDIR, then run the same command again."
        raise UserError(f"{where}cannot write ({said}). {remedy}") from error
    show_seconds(args.verbosity, args.command, began)
    return status


def _full_disk(error: Exception) -> str | None:
    """Return the system's message for a full disk, else None. Libraries raise this error as their own classes."""
    number = error.errno if isinstance(error, OSError) else None
    return next((os.strerror(code) for code in _FULL if code == number or os.strerror(code) in str(error)), None)


def _imported(names: Sequence[str]) -> dict[str, ModuleType]:
    return {name: importlib.import_module(f"tokenfree.workflows.commands.{name}") for name in names}


def _parser(modules: dict[str, ModuleType]) -> Parser:
    parser = Parser(prog="tokenfree", description="Pretrain token-free language encoders.", epilog=EPILOG)
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    for name, module in modules.items():
        text = (module.__doc__ or "").strip()
        command = commands.add_parser(
            name,
            help=text.splitlines()[0].rstrip("."),
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        for leaf in _leaves(command):
            _add_common(leaf)
    return parser


def _leaves(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Return the parsers of the actions of a command, or its own parser if it has no actions."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices.values())
    return [parser]


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options that all commands have."""
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    add_arguments(parser)


def _options(module: ModuleType) -> list[str]:
    return [option for action in _actions(module) for option in action.option_strings]


def _actions(module: ModuleType) -> list[argparse.Action]:
    """Return the argparse actions of a command, including those of its subcommands."""
    probe = argparse.ArgumentParser()
    module.add_arguments(probe)
    for leaf in _leaves(probe):
        _add_common(leaf)
    return [
        action for leaf in {id(each): each for each in (probe, *_leaves(probe))}.values() for action in leaf._actions
    ]


def _refuse_empty(module: ModuleType, args: argparse.Namespace) -> None:
    """Check that no argument is empty, as from an unset shell variable: an empty path means the working directory.

    Raises:
        UserError: An argument other than TEXT is empty.
    """
    for action in _actions(module):
        value = getattr(args, action.dest, None)
        if action.metavar != "TEXT" and "" in (value if isinstance(value, list) else [value]):
            shown = action.metavar if isinstance(action.metavar, str) else action.dest
            name = next(iter(action.option_strings), shown)
            raise UserError(f"{name}: the value is empty; give one, or see that the shell's variable is set")


def _fail(error: Exception, status: int, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    if isinstance(error, UserError) and len(error.problems) > 1:
        heading = f"tokenfree: {error.source or 'settings'}: {len(error.problems)} problems"
        print("\n  ".join([one_line(heading), *map(one_line, error.problems)]), file=sys.stderr)
    else:
        print(f"tokenfree: {one_line(error)}", file=sys.stderr)
    return status
