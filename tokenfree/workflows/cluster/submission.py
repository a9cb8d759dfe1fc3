"""A command of tokenfree as it is to run on a cluster: with what it needs from this machine, and no path of it."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.settings import nest, value_at
from tokenfree.workflows.cluster.local_code import files_of, modules_of
from tokenfree.workflows.cluster.profiles import is_under
from tokenfree.workflows.recipes import library
from tokenfree.workflows.recipes.options import parted
from tokenfree.workflows.terminal import verbosity

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
    verbosity.add_arguments(parser)
    return parser
