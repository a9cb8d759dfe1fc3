"""The command line: find the commands in `workflows/commands/`, parse arguments, run a command, and report errors.

An error is one line. Exit status 0 is success, 1 a failure, 2 an error of the user, 128 + N a stop by signal
N. `--debug` shows tracebacks. `-q` hides progress. `-v` shows settings, log messages of libraries, and times.
"""

import argparse
import atexit
import contextlib
import errno
import importlib
import itertools
import os
import pkgutil
import signal
import sys
import textwrap
import time
import traceback
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

import tokenfree.workflows.commands
from tokenfree.core.errors import JobError, SettingsError, StoppedError, UserError
from tokenfree.core.files import expand_home, is_utf8
from tokenfree.core.machine import install_command, version_of
from tokenfree.core.own_code import trusting
from tokenfree.core.settings_errors import nearest_hint
from tokenfree.core.signals import on_first_signal
from tokenfree.workflows.recipes import options
from tokenfree.workflows.terminal.output import PrintableStream, add_arguments, one_line, set_logging

EPILOG = "Help on one command, with an example: tokenfree COMMAND --help"
_USER_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
# Packages that only an extra installs.
_EXTRAS = {
    "apache_beam": "beam",
    "datasets": "datasets",
    "lingua": "language-id",
    **dict.fromkeys(("torch", "safetensors"), "model"),
    **dict.fromkeys(
        ("ray", "jinja2", "matplotlib", "optuna", "rapidfuzz", "scipy", "sklearn", "tensorboardX"), "train"
    ),
    "transformers": "huggingface",
}
# Commands that need a larger extra than that of the first package that they miss.
_EXTRA_OF_COMMANDS = {**dict.fromkeys(("pretrain", "finetune", "sweep", "analyze"), "train"), "demo": "all"}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_USE_LESS = "lift the limit (ulimit -a), or make the model, batch or number of workers smaller"
_EXHAUSTED = (
    "can't start new thread",
    "can't allocate memory",
    "failed to allocate",
    "failed to map segment",
    "out of memory",
    "overflow when unpacking",
    "size calculation overflowed",
)


class _HelpFormatter(argparse.HelpFormatter):
    """A formatter that fills the paragraphs of a description, and breaks its commands into lines that a shell joins."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        groups = itertools.groupby(text.splitlines(), key=lambda line: line[:1] not in ("", " "))
        return "\n".join(
            textwrap.fill(" ".join(lines), width, break_on_hyphens=False)
            if is_prose
            else "\n".join(self._command(line, width) for line in lines)
            for is_prose, lines in groups
        )

    def _command(self, line: str, width: int) -> str:
        is_long = len(line) > width and line.startswith("  tokenfree")
        parts = textwrap.wrap(line, width - 8, break_long_words=False, break_on_hyphens=False)
        return " \\\n      ".join(parts) if is_long else line


class Parser(argparse.ArgumentParser):
    """An argument parser that prints errors as one line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_HelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {one_line(message)} (see {self.prog} --help)\n")


def command_names() -> list[str]:
    return sorted(
        m.name
        for m in pkgutil.iter_modules(tokenfree.workflows.commands.__path__)
        if not m.name.startswith("_")
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command named by `argv` (default: the arguments of the process) and return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    out, errors = PrintableStream(sys.stdout), PrintableStream(sys.stderr)
    caught: list[signal.Signals] = []

    def interrupt(kind: signal.Signals) -> None:
        caught.append(kind)
        raise KeyboardInterrupt(kind)

    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), on_first_signal(interrupt):
        status = _status(argv, caught)
    # Ray makes colorama reset the terminal's colours at exit, in a stream that prints the escape sequence as
    # text.
    if "colorama" in sys.modules:
        atexit.unregister(sys.modules["colorama"].initialise.reset_all)
    return status


def _status(argv: list[str], caught: Sequence[signal.Signals]) -> int:
    try:
        return _run(argv)
    except BrokenPipeError:  # as in `tokenfree inspect DIR | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        kind = caught[0] if caught else signal.SIGINT
        reason = "interrupted" if kind == signal.SIGINT else f"stopped by {kind.name}"
        print(f"\ntokenfree: {reason}; run the same command again to resume", file=sys.stderr)
        return 128 + kind
    except Exception as error:
        if "--debug" in argv[: argv.index("--") if "--" in argv else len(argv)]:
            traceback.print_exc()
        reported, status = _in_words(error, _EXTRA_OF_COMMANDS.get(argv[0] if argv else ""))
        if isinstance(reported, SettingsError) and len(reported.problems) > 1:
            heading = f"tokenfree: {reported.source or 'settings'}: {len(reported.problems)} problems"
            print("\n  ".join([one_line(heading), *map(one_line, reported.problems)]), file=sys.stderr)
        else:
            print(f"tokenfree: {one_line(reported)}", file=sys.stderr)
        return status


def _in_words(error: Exception, extra: str | None = None) -> tuple[Exception, int]:
    """Return an error that says what to do, and the exit status.

    Libraries raise errors of the system as their own.
    """
    if isinstance(error, StoppedError):
        return error, error.exit_status
    if isinstance(error, (UserError, JobError)):
        return error, 2 if isinstance(error, UserError) else 1
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and package in _EXTRAS:
        extra = extra or _EXTRAS[package]
        return UserError(f"{package} is not installed; run {install_command(extra)}"), 2
    number, message = getattr(error, "errno", None), str(error).strip().split("\n")[0]
    where = f" to {error.filename}" if isinstance(error, OSError) and error.filename else ""
    full = next(
        (os.strerror(code) for code in _FULL if code == number or os.strerror(code) in str(error)), None
    )
    if full is not None:
        return UserError(
            f"cannot write{where} ({full}). Free space for the output and in TMPDIR, then run the same command again."
        ), 2
    exhausted = isinstance(error, MemoryError) or any(words in str(error).lower() for words in _EXHAUSTED)
    if exhausted or number in (errno.ENOMEM, errno.EAGAIN):
        return JobError(f"not enough memory or threads ({message[:160]}); {_USE_LESS}"), 1
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return UserError(f"{where}{error.strerror or error}"), 2 if number in _USER_ERRORS else 1
    return JobError(
        f"{type(error).__name__}: {message} (an unexpected failure; run again with --debug for the traceback)"
    ), 1


def _run(argv: list[str]) -> int:
    split = argv.index("--") if "--" in argv else len(argv)
    command_line, passed_on = argv[:split], argv[split + 1 :]
    for argument in command_line:
        if not is_utf8(argument):
            raise UserError(f"{argument}: not UTF-8; a path must be renamed, text converted")
    names = command_names()
    name = next((argument for argument in command_line if not argument.startswith("-")), None)
    if name is not None and name not in names:
        raise UserError(f"there is no command {name!r}{nearest_hint(name, names)}")
    # Each takes time to import.
    modules = _imported(names if name is None else [name])
    parser = _parser(modules)
    actions, overrides = _actions(parser), []
    if name is not None:
        start = command_line.index(name) + 1
        own = [option for action in actions for option in action.option_strings]
        rest, overrides = options.split_arguments(
            name, command_line[start:], own, getattr(modules[name], "KIND", None)
        )
        command_line = command_line[:start] + rest
    args = parser.parse_args(command_line)
    if args.version:
        print(f"tokenfree {version_of('tokenfree')}")
        return 0
    if not args.command:
        parser.print_help()
        return 0
    module = modules[args.command]
    _complete_paths(actions, args)
    if passed_on and not getattr(module, "PASSES_ON", False):
        raise UserError(f"tokenfree {args.command} takes nothing after '--', but got {passed_on[0]!r}")
    args.passed_on, args.overrides = passed_on, overrides
    args.whole_parser = lambda: _parser(_imported(names))
    set_logging(args.verbosity, debug=args.debug)
    if hasattr(module, "check"):
        module.check(args)
    began = time.monotonic()
    places = (getattr(args, name, None) for name in ("recipe", "config", "run_folder", "directory", "output"))
    with trusting(getattr(args, "trust_code", False), next(filter(None, places), args.command)):
        # Only here, because most work imports torch, Ray or Arrow, which takes seconds.
        in_work = f"tokenfree.workflows.work.{args.command}"
        status = (module if hasattr(module, "run") else importlib.import_module(in_work)).run(args)
    if args.verbosity == "verbose":
        print(f"tokenfree {args.command}: {time.monotonic() - began:.1f} seconds", file=sys.stderr)
    # Most commands return nothing: they succeed or raise an error.
    return status or 0


def _imported(names: Sequence[str]) -> dict[str, ModuleType]:
    return {name: importlib.import_module(f"tokenfree.workflows.commands.{name}") for name in names}


def _parser(modules: dict[str, ModuleType]) -> Parser:
    parser = Parser(prog="tokenfree", description="Pretrain token-free language encoders.", epilog=EPILOG)
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    for name, module in modules.items():
        text = (module.__doc__ or "").strip()
        command = commands.add_parser(name, help=text.partition("\n")[0].rstrip("."), description=text)
        if hasattr(module, "ARGUMENTS"):
            options.add(command, module.ARGUMENTS)
        else:
            module.add_arguments(command)
        for leaf in _leaves(command):
            leaf.add_argument("--debug", action="store_true", help="show the traceback of an error")
            add_arguments(leaf)
    return parser


def _leaves(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Return the parsers of the commands below a parser, and of the actions of a command; else the parser itself."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    below = [leaf for group in groups for child in group.choices.values() for leaf in _leaves(child)]
    return below or [parser]


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for leaf in _leaves(parser) for action in leaf._actions]


def _complete_paths(actions: Sequence[argparse.Action], args: argparse.Namespace) -> None:
    """Replace `~` by the home folder, because shells leave it in `--output=~/run` and in quotes.

    Raises UserError if an argument other than TEXT is empty, because an empty path means the working
    directory.
    """
    for action in actions:
        value = getattr(args, action.dest, None)
        if action.metavar in options.PATHS and value is not None:
            whole = list(map(expand_home, value)) if isinstance(value, list) else expand_home(value)
            setattr(args, action.dest, whole)
        if action.metavar != "TEXT" and "" in (value if isinstance(value, list) else [value]):
            name = next(iter(action.option_strings), action.metavar or action.dest)
            raise UserError(f"{name}: the value is empty; give one, or see that the shell's variable is set")
