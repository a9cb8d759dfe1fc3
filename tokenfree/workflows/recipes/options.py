"""Arguments of commands that read a recipe, and the recipe or run that they name."""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes.keys import keys_with_prefix, lines, nearest
from tokenfree.workflows.recipes.library import (
    PREPROCESSING,
    RecipeKind,
    check_kind,
    kind_of,
    read_based,
    resolve,
    warn_of_lost,
)

if TYPE_CHECKING:
    from tokenfree.train.config import R
    from tokenfree.train.data.mixture import Data
    from tokenfree.train.runs.config import RunConfig
    from tokenfree.train.tasks.base import Split

T = TypeVar("T")


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
        """Print the keys that begin with the given prefix, and exit. Raises UserError if there are none."""
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for line in lines(keys_with_prefix(self.kind.groups(), str(values or ""))):
            text = (
                line if columns is None else textwrap.fill(line, columns, tabsize=2, subsequent_indent="    ")
            )
            print(text, flush=True)  # a closed pipe ends the command here
        parser.exit()


RECIPE = "a recipe's name or YAML file"
RECORDED = f"{RECIPE} (default: that of the run to resume)"


def add_recipe_arguments(
    parser: argparse.ArgumentParser, kind: RecipeKind, *, optional: bool = False, help_text: str = RECIPE
) -> None:
    """Add the positional RECIPE, `--config` and `--help-keys`.

    Keys are options too: `--model.trunk.layers 4`.
    """
    parser.add_argument("recipe", metavar="RECIPE", nargs="?" if optional else None, help=help_text)
    parser.add_argument(
        "--config", metavar="FILE", help="YAML laid over the recipe; any key may follow as --KEY VALUE"
    )
    add_help_keys(parser, kind)
    if kind is not PREPROCESSING:
        add_trust_argument(parser, "the recipe or a run")


def add_trust_argument(parser: argparse.ArgumentParser, place: str = "RUN") -> None:
    text = f"run the code outside tokenfree that {place} names"
    parser.add_argument("--trust-code", action="store_true", help=text)


def add_help_keys(parser: argparse.ArgumentParser, kind: RecipeKind) -> None:
    help_text = "list the keys, of a PREFIX such as model.trunk only, and exit; plain lines where the output is a pipe"
    parser.add_argument("--help-keys", action=HelpKeys, kind=kind, help=help_text)


def source(args: argparse.Namespace) -> str:
    """Return what messages call the settings of a command."""
    recipe = args.recipe or args.config
    return f"recipe {recipe}" if recipe else "options"


def load(
    cls: type[T], args: argparse.Namespace, *, recorded: Mapping[str, Any] | None = None, **options: Any
) -> T:
    """Build `cls` from RECIPE, `--config`, overrides, and those `options` that are not None, each over those before.

    `recorded` is the recipe of a run to resume, in place of RECIPE.

    Raises UserError if a file is not a recipe of this kind, or keys or values do not fit `cls`. It names all
    problems.
    """
    from tokenfree.core.settings import build, merge, nest, override

    kind = kind_of(cls)
    for recipe in filter(None, (args.recipe, args.config)):
        check_kind(kind, recipe)
    mapping = merge(recorded or {}, resolve(args.recipe, args.config))
    if "base" in mapping and "base" not in kind.top_keys:
        mapping = merge(read_based(mapping.pop("base")), mapping)
    mapping, lost = override(cls, mapping, nest(args.overrides))
    warn_of_lost(lost)
    mapping = merge(mapping, {key: value for key, value in options.items() if value is not None})
    return build(cls, mapping, source=source(args))


def load_or_resume(
    cls: type[R], args: argparse.Namespace, read: Callable[..., RunConfig[R]], *needed: str
) -> R:
    """Return the recipe.

    If RECIPE or one of the `needed` arguments is missing, the run at --output replaces them.

    Raises UserError as `load` does, and if there is no run that `read` can read.
    """
    from tokenfree.core.settings import to_mapping
    from tokenfree.train.data.mixture import data_arguments
    from tokenfree.train.runs.config import CONFIG_NAME

    if not is_resumed(args, CONFIG_NAME, *needed):
        return load(cls, args)
    config = read(args.output, trust_code=args.trust_code)
    start = None if config.init_from is None else config.init_from.path
    fill_in(args, {**config.files, "data": data_arguments(config.data), "init_from": start})
    return load(cls, args, recorded=None if args.recipe else to_mapping(config.recipe))


def is_resumed(args: argparse.Namespace, name: str, *needed: str) -> bool:
    """Return True if arguments are missing that the file `name` in --output records.

    Raises UserError without it. That file as RECIPE counts as missing, so that all that it records is used.
    """
    from tokenfree.core.storage import Storage

    if args.recipe is not None and os.path.abspath(args.recipe) == os.path.abspath(
        os.path.join(args.output, name)
    ):
        args.recipe = None
    spelled = {"recipe": "RECIPE"} | {argument: f"--{argument}" for argument in needed}
    missing = " and ".join(option for argument, option in spelled.items() if getattr(args, argument) is None)
    if missing and not Storage.at(args.output).size(name):
        raise UserError(
            f"{missing}: missing, and {args.output} has no {name} to resume. Give {missing} for a new one."
        )
    return bool(missing)


def fill_in(args: argparse.Namespace, recorded: Mapping[str, Any]) -> None:
    for name, value in recorded.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


SHOWN = "a data directory made by `tokenfree preprocess`; or several, as DIR:WEIGHT or all without a weight"


def add_data_argument(
    parser: argparse.ArgumentParser, help_text: str = SHOWN, *, metavar: str = "DIR"
) -> None:
    """Add `--data DIR ...`, which may be repeated.

    It takes all words up to the next option, so RUN precedes it.
    """
    parser.add_argument("--data", metavar=metavar, nargs="+", action="extend", help=help_text)


def data_of(args: argparse.Namespace) -> Data | None:
    """Return the data that `--data` names, or None if it was not given. Raises UserError if it is invalid."""
    from tokenfree.train.data.mixture import parse

    return None if args.data is None else parse(args.data)


def files_of(args: argparse.Namespace) -> dict[Split, str]:
    """Return the files of a task that `--train`, `--dev` and `--test` name, by split."""
    paths: dict[Split, str | None] = {"train": args.train, "dev": args.dev, "test": args.test}
    return {split: path for split, path in paths.items() if path is not None}


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
    help_text = (
        "use the checkpoint of this step (default: the last one of a run, the best one of a fine-tuned run)"
    )
    parser.add_argument("--step", metavar="N", type=int, help=help_text)


def trust_of(recipe: Any) -> list[str]:
    """Return the option that commands need to read a run of `recipe`, if it names code outside tokenfree."""
    from tokenfree.core import own_code

    return ["--trust-code"] if own_code.hashes(recipe) else []
