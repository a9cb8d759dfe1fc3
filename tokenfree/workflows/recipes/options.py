"""Parts the keys of a recipe among a command's arguments from its own options; `-` and `_` in names are the same."""

import difflib
from collections.abc import Sequence

from tokenfree.preprocess.common.errors import UserError
from tokenfree.workflows.recipes import library
from tokenfree.workflows.recipes.keys import nearest
from tokenfree.workflows.recipes.kinds import RecipeKind

# Options of the version before, and what to use instead.
_METRICS = "use metrics.jsonl, TensorBoard, Ray's Prometheus export, or alerts of W&B and MLflow (train.log_to)"
_ANEW = "give all inputs and another --output; a directory is made in one job"
REMOVED = {
    "--notify": _METRICS,
    "--stalled-after": _METRICS,
    "--metrics-port": _METRICS,
    "--add": _ANEW,
    "--keep-runs": _ANEW,
    "--cpus": "tokenfree plan counts GPUs; on CPUs train a few steps and read their seconds in metrics.jsonl",
}


def parted(
    command: str, arguments: Sequence[str], options: Sequence[str], kind: RecipeKind | None
) -> tuple[list[str], list[tuple[str, str]]]:
    """The arguments of a command itself, with options as in `options`, and the keys of its recipe with their values.

    They are parted before argparse sees them, because it would take the value of an option that it does not know for
    the positional RECIPE.

    Raises:
        UserError: an option is neither, with the nearest known one; it was removed; or a key has no value.
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
            raise UserError(f"tokenfree {command}: unknown option {option} ({_hint(command, option, options, kind)})")
        if not equals:
            value = next(queue, "--")
            if value.startswith("--"):
                raise UserError(f"tokenfree {command}: {option} needs a value")
        overrides.append((key, value))
    return own if kind is None else _recipe_first(own), overrides


def _recipe_first(own: list[str]) -> list[str]:
    """The same arguments with a RECIPE that stands behind `--data DIR` in front, since `--data` takes several words."""
    if "--data" not in own:
        return own
    start = own.index("--data") + 2
    end = next((at for at in range(start, len(own)) if own[at].startswith("--")), len(own))
    recipes = [word for word in own[start:end] if word.endswith((".yaml", ".yml")) or word in library.names()]
    return [*recipes, *own[:start], *(word for word in own[start:end] if word not in recipes), *own[end:]]


def _plain(option: str) -> str:
    return option.replace("_", "-")


def _hint(command: str, option: str, options: Sequence[str], kind: RecipeKind | None) -> str:
    close = difflib.get_close_matches(_plain(option), options, n=1, cutoff=0.6)
    if not close and kind is not None:
        names = [key.name for group in kind.groups() for key in group.keys]
        names += [group.name for group in kind.groups() if group.name]
        near = nearest(option[2:].replace("-", "_"), names)
        close = [] if near is None else [f"--{near}"]
    return f"did you mean {close[0]}?" if close else f"see tokenfree {command} --help"
