"""What a shell needs to complete the command line, made once by shtab: a TAB then starts no Python.

Completed are commands, options, recipes by name or file, keys of recipes with their words (`true`, names of parts), and
files and folders.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

import shtab

from tokenfree.workflows.recipes import library
from tokenfree.workflows.recipes.keys import Key
from tokenfree.workflows.recipes.kinds import PRETRAINING, RecipeKind

_WORDS = re.compile(r"[a-z]\w*( \| [a-z]\w*)+")
_TYPES = {"int", "float", "text", "mapping", "anything"}  # in the type of a key: any value, and no word of its own
_FOLDERS = {"DIR", "RUN", "RUN|FOLDER", "FOLDER"}
_FILES = {"FILE", "PATH", "PROFILE"}


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script that completes `parser` in a shell.

    Args:
        parser: with all commands, and the kind of recipe of each as its default `kind`; changed in place.
        shell: one that shtab knows.
    """
    # argparse lists arguments under private names alone; shtab reads them the same way
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for command in commands.choices.values():
        _prepare(command, command.get_default("kind"))
    return shtab.complete(parser, shell=shell)


def _prepare(command: argparse.ArgumentParser, kind: RecipeKind | None) -> None:
    """Say how each argument of a command is completed, and add the keys of its recipes."""
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for nested in action.choices.values():
                _prepare(nested, None)
        elif action.dest == "recipe":
            action.complete = _recipes(kind or PRETRAINING)  # pyright: ignore[reportAttributeAccessIssue]
        elif action.dest == "help_keys" and kind is not None:
            action.choices = list(dict.fromkeys(group.name for group in kind.groups() if group.name))
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # pyright: ignore[reportAttributeAccessIssue]
        elif action.metavar in _FILES:
            action.complete = shtab.FILE  # pyright: ignore[reportAttributeAccessIssue]
    for key in () if kind is None else [key for group in kind.groups() for key in group.keys]:
        option = f"--{key.name}"
        if ".KEY" not in option and option.replace("_", "-") not in command._option_string_actions:
            meaning = key.meaning.replace("%", "%%") or None
            _add_once(command, option, _words(key), meaning)


def _add_once(command: argparse.ArgumentParser, option: str, words: Sequence[str] | None, meaning: str | None) -> None:
    """Add a key as an option; several parts of one slot may have the same."""
    known = command._option_string_actions.get(option)
    if known is None:
        command.add_argument(option, choices=words, help=meaning)
    elif known.choices is not None and words is not None:
        known.choices = list(dict.fromkeys([*known.choices, *words]))


def _words(key: Key) -> list[str] | None:
    """The words that are all the values of a key; None where it takes others."""
    words = key.type.split(" | ")
    return words if _WORDS.fullmatch(key.type) and not _TYPES & set(words) else None


def _recipes(kind: RecipeKind) -> dict[str, Any]:
    """How shtab completes a recipe of a kind: by the names that come with tokenfree and, in bash, by files."""
    names = " ".join(library.names_of(kind))
    function = f"_tokenfree_file_or_{kind.command}_recipe"
    body = f'{function}() {{\n  compgen -W "{names}" -- "$1"\n  compgen -f -- "$1"\n}}'
    return {"bash": function, "zsh": f"({names})", "fish": names, "preamble": {"bash": body}}
