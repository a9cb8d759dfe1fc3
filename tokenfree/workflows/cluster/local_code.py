"""The modules of the working directory that recipes name, and what those import from there, as files to send along."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenfree.preprocess.common.errors import UserError

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
