"""Options that commands share: recipe keys on the command line, `--data` and `--step`."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tokenfree.core.errors import UserError
from tokenfree.workflows.recipes.keys import HelpKeys, RecipeKind, kind_of, nearest
from tokenfree.workflows.recipes.library import check_kind, read, read_based, resolve_sweep

if TYPE_CHECKING:
    from tokenfree.train.config import R
    from tokenfree.train.data.mixture import Data
    from tokenfree.train.runs.checkpoints import Checkpoint
    from tokenfree.train.runs.config import RunConfig
    from tokenfree.train.sweep.recipe import SweepRecipe

T = TypeVar("T")


RECIPE = "a recipe's name or YAML file"
RECORDED = f"{RECIPE} (default: that of the run to resume)"


def add_arguments(
    parser: argparse.ArgumentParser, kind: RecipeKind, *, optional: bool = False, shown: str = RECIPE
) -> None:
    """Add the positional RECIPE, `--config` and `--help-keys`. Keys are options too: `--model.trunk.layers 4`."""
    parser.add_argument("recipe", metavar="RECIPE", nargs="?" if optional else None, help=shown)
    parser.add_argument("--config", metavar="FILE", help="YAML laid over the recipe; any key may follow as --KEY VALUE")
    add_help_keys(parser, kind)


def add_help_keys(parser: argparse.ArgumentParser, kind: RecipeKind) -> None:
    shown = "list the keys, of a PREFIX such as model.trunk only, and exit; plain lines where the output is a pipe"
    parser.add_argument("--help-keys", action=HelpKeys, kind=kind, help=shown)


def resolve(recipe: str | None, config_file: str | None) -> dict[str, Any]:
    """Return the mapping of the recipe with `--config` merged over it. Raises UserError if a file is not a recipe."""
    from tokenfree.core.settings import merge

    mapping = {} if recipe is None else read(recipe)
    if config_file is not None:
        mapping = merge(mapping, read(config_file))
    return mapping


def warn_of_lost(keys: Iterable[str]) -> None:
    """Print the keys of a recipe, if any, that were dropped because a part was replaced by one without them."""
    shown = ", ".join(dict.fromkeys(keys))
    if shown:
        print(f"tokenfree: dropped keys of the recipe that the new part does not have: {shown}", file=sys.stderr)


def source(args: argparse.Namespace) -> str:
    """Return what messages call the settings of a command."""
    given = args.recipe or args.config
    return f"recipe {given}" if given else "options"


def load(cls: type[T], args: argparse.Namespace, *, recorded: Mapping[str, Any] | None = None, **options: Any) -> T:
    """Build `cls` from RECIPE, `--config`, overrides, and those `options` that are not None, each over those before.

    `recorded` is the recipe of a run to resume, in place of RECIPE.

    Raises UserError if a file is not a recipe of this kind, or keys or values do not fit `cls`. It names all problems.
    """
    from tokenfree.core.settings import build, merge, nest, override

    kind = kind_of(cls)
    for given in filter(None, (args.recipe, args.config)):
        check_kind(kind, given)
    mapping = merge(recorded or {}, resolve(args.recipe, args.config))
    if "base" in mapping and "base" not in kind.top_keys:
        mapping = merge(read_based(mapping.pop("base")), mapping)
    mapping, lost = override(cls, mapping, nest(args.overrides))
    warn_of_lost(lost)
    mapping = merge(mapping, {key: value for key, value in options.items() if value is not None})
    return build(cls, mapping, source=source(args))


def load_or_resume(cls: type[R], args: argparse.Namespace, read: Callable[..., RunConfig[R]], *needed: str) -> R:
    """Return the recipe. If RECIPE or one of the `needed` arguments is missing, the run at --output replaces them.

    Raises UserError as `load` does, and if there is no run that `read` can read.
    """
    from tokenfree.core.settings import to_mapping
    from tokenfree.train.data.mixture import words_of
    from tokenfree.train.runs.config import CONFIG_NAME

    if not is_resumed(args, CONFIG_NAME, *needed):
        return load(cls, args)
    found = read(args.output, trust_code=args.trust_code)
    start = None if found.init_from is None else found.init_from.path
    fill_in(args, {**found.files, "data": words_of(found.data), "init_from": start})
    return load(cls, args, recorded=None if args.recipe else to_mapping(found.recipe))


def is_resumed(args: argparse.Namespace, name: str, *needed: str) -> bool:
    """Return True if arguments are missing that the file `name` in --output records. Raises UserError without it.

    That file as RECIPE counts as missing, so that all that it records is used.
    """
    from tokenfree.core.storage import Storage

    if args.recipe is not None and os.path.abspath(args.recipe) == os.path.abspath(os.path.join(args.output, name)):
        args.recipe = None
    spelled = {"recipe": "RECIPE"} | {argument: f"--{argument}" for argument in needed}
    missing = " and ".join(shown for argument, shown in spelled.items() if getattr(args, argument) is None)
    if missing and not Storage.at(args.output).size(name):
        raise UserError(f"{missing}: missing, and {args.output} has no {name} to resume. Give {missing} for a new one.")
    return bool(missing)


def fill_in(args: argparse.Namespace, recorded: Mapping[str, Any]) -> None:
    for name, value in recorded.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


def build_sweep(mapping: dict[str, Any], overrides: Mapping[str, Any], source: str) -> SweepRecipe:
    """Build a sweep from the mapping of a recipe and overrides. Raises UserError that names all problems."""
    from tokenfree.core.settings import build, override
    from tokenfree.train.sweep.recipe import SweepRecipe

    if "budget" in overrides:
        mapping.pop("budget", None)  # the new budget may be in another unit
    mapping, lost = override(SweepRecipe, mapping, overrides)
    sweep = build(SweepRecipe, resolve_sweep(mapping), source=source)
    warn_of_lost(lost)
    return sweep


SHOWN = "a data directory made by `tokenfree preprocess`; or several, as DIR:WEIGHT or all without a weight"


def add_data_argument(
    parser: argparse.ArgumentParser, shown: str = SHOWN, *, metavar: str = "DIR", needed: bool = False
) -> None:
    """Add `--data DIR ...`, which may be repeated. It takes all words up to the next option, so RUN precedes it."""
    parser.add_argument("--data", metavar=metavar, nargs="+", action="extend", required=needed, help=shown)


def data_of(args: argparse.Namespace) -> Data | None:
    """Return the data that `--data` names, or None if it was not given. Raises UserError if it is invalid."""
    from tokenfree.train.data.mixture import parse

    return None if args.data is None else parse(args.data)


# Removed options of the previous version, and what to use instead.
_METRICS = "use metrics.jsonl, TensorBoard, Ray's Prometheus export, or alerts of W&B and MLflow (train.log_to)"
_ONE_JOB = "give all inputs and another --output; a directory is made in one job"
_NOISE = "use tokenfree analyze noise RUN --data FILE --strengths X"
REMOVED = {
    "--noise": _NOISE,
    "--noise-rate": _NOISE,
    "--noise-seed": _NOISE,
    "--notify": _METRICS,
    "--stalled-after": _METRICS,
    "--metrics-port": _METRICS,
    "--add": _ONE_JOB,
    "--keep-runs": _ONE_JOB,
    "--dashboard-host": "the dashboard of a local cluster listens on 127.0.0.1; forward its port with ssh -L",
    "--shared": "a submitted command runs as it is given; name folders as the nodes have them, and --send files",
    "--format": "read result.json of the sweep, which holds all scores; pandas makes a table of it (docs/sweeps.md)",
    "--max-gb": "leave it out; a file is refused if the mirror does not report its size",
    "--profile": "call tokenfree.pretrain in a `with torch.profiler.profile():` of your own (docs/monitor.md)",
    "--task.encoding": "convert the files to UTF-8 (iconv -t utf-8)",
    "--task.long-texts": "long texts are read in overlapping windows; leave those out that should not be",
    "--task.rules": "score RUN/predictions with the official script of MLQA",
    "--cpus": "tokenfree plan counts GPUs; on CPUs train a few steps and read their seconds in metrics.jsonl",
}


def separated(
    command: str, arguments: Sequence[str], options: Sequence[str], kind: RecipeKind | None
) -> tuple[list[str], list[tuple[str, str]]]:
    """Split the arguments of a command into its own, spelled as in `options`, and the keys of its recipe with values.

    This happens before argparse sees them, because it would take the value of an unknown option for the positional
    RECIPE. Raises UserError if an option is unknown or was removed, or a key has no value.
    """
    spelled = {_plain(option): option for option in options}
    tops = kind.top_keys if kind else ()
    own: list[str] = []
    overrides: list[tuple[str, str]] = []
    queue = iter(arguments)
    for argument in queue:
        option, equals, value = argument.partition("=")
        if not option.startswith("--"):
            own.append(argument)
            continue
        if _plain(option) in spelled:
            own.append(spelled[_plain(option)] + equals + value)
            continue
        if _plain(option) in REMOVED:
            raise UserError(f"{_plain(option)} was removed: {REMOVED[_plain(option)]}")
        key = option[2:].replace("-", "_")
        if key.split(".")[0] not in tops:
            raise UserError(f"{command}: unknown option {option} ({_hint(command, option, options, kind)})")
        if not equals:
            value = next(queue, "--")
            if value.startswith("--"):
                raise UserError(f"{command}: {option} needs a value")
        overrides.append((key, value))
    return own, overrides


def _plain(option: str) -> str:
    return option.replace("_", "-")


def _hint(command: str, option: str, options: Sequence[str], kind: RecipeKind | None) -> str:
    close = difflib.get_close_matches(_plain(option), options, n=1, cutoff=0.7)  # --help is not close to --steps
    if not close and kind is not None:
        names = [key.name for group in kind.groups() for key in group.keys]
        names += [group.name for group in kind.groups() if group.name]
        near = nearest(option[2:].replace("-", "_"), names)
        close = [] if near is None else [f"--{near}"]
    return f"did you mean {close[0]}?" if close else f"see tokenfree {command} --help"


def add_step_argument(parser: argparse.ArgumentParser) -> None:
    shown = "use the checkpoint of this step (default: the last one of a run, the best one of a fine-tuned run)"
    parser.add_argument("--step", metavar="N", type=int, help=shown)


def trust_of(recipe: Any) -> list[str]:
    """Return the option that commands need to read a run of `recipe`, if it names code outside tokenfree."""
    from tokenfree.core import own_code

    return ["--trust-code"] if own_code.hashes(recipe) else []


def show(checkpoint: Checkpoint, as_json: bool) -> None:
    """Print the step to standard error, for a command that prints only results. JSON already contains the step."""
    if not as_json:
        print(f"step {checkpoint.step:,}", file=sys.stderr)
