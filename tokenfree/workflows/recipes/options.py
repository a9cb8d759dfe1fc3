"""Arguments of commands that read a recipe, and the keys of recipes among the arguments."""

import argparse
import difflib
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes.keys import keys_with_prefix, lines, nearest
from tokenfree.workflows.recipes.kinds import RecipeKind


class HelpKeys(argparse.Action):
    """Option that prints the keys of recipes of a kind and ends the command, like `--help`."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, kind: RecipeKind, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs="?", metavar="PREFIX", **options)
        self.kind = kind

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for line in lines(keys_with_prefix(self.kind.groups(), str(values or ""))):
            text = (
                line if columns is None else textwrap.fill(line, columns, tabsize=2, subsequent_indent="    ")
            )
            # A closed pipe ends the command here.
            print(text, flush=True)
        parser.exit()


# Metavars of paths and addresses.
PATHS = ("DIR", "FILE", "PATH", "PROFILE", "RECIPE", "RUN", "RUN|DATA", "RUN|FOLDER", "URL")
# The names of arguments, with the keywords of `add_argument`.
Arguments = Mapping[str, Mapping[str, Any]]

RECIPE = "a recipe's name or YAML file"
RECORDED = f"{RECIPE} (default: that of the run to resume)"
DATA_HELP = (
    "a data directory made by `tokenfree preprocess`; or several, as DIR:WEIGHT or all without a weight"
)
JSON: Arguments = {"--json": {"action": "store_true", "help": "print one JSON object and nothing else"}}
RUN: Arguments = {"run_folder": {"metavar": "RUN", "help": "the folder of a run"}}
STEP: Arguments = {
    "--step": {
        "metavar": "N",
        "type": int,
        "help": "use the checkpoint of this step (default: the last one of a run, the best one of a fine-tuned run)",
    }
}


def recipe(kind: RecipeKind, *, optional: bool = False, help_text: str = RECIPE) -> Arguments:
    """Return the positional RECIPE, `--config` and `--help-keys`.

    Keys are options too: `--model.trunk.layers 4`.
    """
    return {
        "recipe": {"metavar": "RECIPE", "nargs": "?" if optional else None, "help": help_text},
        "--config": {
            "metavar": "FILE",
            "help": "YAML laid over the recipe; any key may follow as --KEY VALUE",
        },
        **help_keys(kind),
        **trust("the recipe or a run"),
    }


def help_keys(kind: RecipeKind) -> Arguments:
    text = "list the keys, of a PREFIX such as model.trunk only, and exit; plain lines where the output is a pipe"
    return {"--help-keys": {"action": HelpKeys, "kind": kind, "help": text}}


def trust(place: str = "RUN") -> Arguments:
    text = f"run the code outside tokenfree that {place} names"
    return {"--trust-code": {"action": "store_true", "help": text}}


def data(help_text: str = DATA_HELP, *, metavar: str = "DIR") -> Arguments:
    """Return `--data DIR ...`, which may be repeated.

    It takes all words up to the next option, so RUN precedes it.
    """
    return {"--data": {"metavar": metavar, "nargs": "+", "action": "extend", "help": help_text}}


def at_least(minimum: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{text}: give {minimum} or more")
        return value

    return number


def add(parser: argparse.ArgumentParser, arguments: Arguments) -> None:
    for name, keywords in arguments.items():
        parser.add_argument(name, **keywords)


def split_arguments(
    command: str, arguments: Sequence[str], options: Sequence[str], kind: RecipeKind | None
) -> tuple[list[str], list[tuple[str, str]]]:
    """Split the arguments of a command into its own, spelled as in `options`, and the keys of its recipe with values.

    This happens before argparse sees them, because it would take the value of an unknown option for the
    positional RECIPE. Raises UserError if an option is unknown or a key has no value.
    """
    spelled = {_plain(option): option for option in options}
    tops = kind.top_keys if kind else ()
    command_arguments: list[str] = []
    overrides: list[tuple[str, str]] = []
    queue = iter(arguments)
    for argument in queue:
        option, equals, value = argument.partition("=")
        if not option.startswith("--"):
            command_arguments.append(argument)
            continue
        if _plain(option) in spelled:
            command_arguments.append(spelled[_plain(option)] + equals + value)
            continue
        key = option[2:].replace("-", "_")
        if key.split(".")[0] not in tops:
            raise UserError(f"{command}: unknown option {option} ({_hint(command, option, options, kind)})")
        if not equals:
            value = next(queue, "--")
            if value.startswith("--"):
                raise UserError(f"{command}: {option} needs a value")
        overrides.append((key, value))
    return command_arguments, overrides


def _plain(option: str) -> str:
    return option.replace("_", "-")


def _hint(command: str, option: str, options: Sequence[str], kind: RecipeKind | None) -> str:
    # --help is not close to --steps.
    close = difflib.get_close_matches(_plain(option), options, n=1, cutoff=0.7)
    if not close and kind is not None:
        near = nearest(option[2:].replace("-", "_"), kind.groups())
        close = [] if near is None else [f"--{near}"]
    return f"did you mean {close[0]}?" if close else f"see tokenfree {command} --help"


def add_step_argument(parser: argparse.ArgumentParser) -> None:
    add(parser, STEP)


def add_trust_argument(parser: argparse.ArgumentParser) -> None:
    add(parser, trust())
