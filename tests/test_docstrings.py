"""Every module says what it holds; every public class and function that raises an error of ours names it.

A method that overrides one of ours with a docstring needs none, nor does what name and types say.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SOURCE

PACKAGES = ("core", "preprocess", "pipelines", "train", "workflows")
ERRORS = {"UserError", "JobError"}
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A file, given from `tokenfree/`."""
    return ast.parse((SOURCE / path).read_text(encoding="utf-8"))


def files(package: str) -> list[Path]:
    """The files of a package, from `tokenfree/`."""
    return sorted(path.relative_to(SOURCE) for path in (SOURCE / package).rglob("*.py"))


def problems(path: Path) -> Iterator[str]:
    """What the docstrings of a file lack."""
    if not ast.get_docstring(parsed(path)):
        yield f"{path}: no docstring"
    for node in parsed(path).body:
        if isinstance(node, (ast.ClassDef, *FUNCTION)) and not node.name.startswith("_"):
            yield from _of_definition(path, node)


def _of_definition(path: Path, node: ast.AST, owner: str = "") -> Iterator[str]:
    assert isinstance(node, (ast.ClassDef, *FUNCTION))
    text, where = ast.get_docstring(node), f"{path}:{node.lineno} {owner}{node.name}"
    methods = [member for member in node.body if isinstance(member, FUNCTION)] if owner == "" else []
    errors = raised(node)
    if isinstance(node, ast.ClassDef):  # whose docstring is that of its making, too
        errors = {
            error for made in methods if made.name in ("__init__", "__post_init__") for error in raised(made)
        }
        for method in methods:
            if not (method.name.startswith("_") or _is_told_above(path, node, method.name)):
                yield from _of_definition(path, method, f"{node.name}.")
    told = (text or "").partition("Raise")[2]  # a section, or a sentence
    yield from (
        f"{where}: raises {error}, and does not say so" for error in sorted(errors) if error not in told
    )


def raised(node: ast.AST) -> set[str]:
    """The errors of ours that the body of a function raises; what functions inside it raise is theirs."""
    found: set[str] = set()
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.Raise):
            error = part.exc.func if isinstance(part.exc, ast.Call) else part.exc
            found |= {error.id} & ERRORS if isinstance(error, ast.Name) else set()
        elif not isinstance(part, (*FUNCTION, ast.Lambda)):
            found |= raised(part)
    return found


def _is_told_above(path: Path, owner: ast.ClassDef, method: str) -> bool:
    """Whether a class of ours above `owner` has that method with a docstring."""
    for base in owner.bases:
        above, home = _class(path, ast.unparse(base).partition("[")[0])
        if above is None:
            continue
        named = (member for member in above.body if isinstance(member, FUNCTION) and member.name == method)
        if any(map(ast.get_docstring, named)) or _is_told_above(home, above, method):
            return True
    return False


def _class(path: Path, name: str) -> tuple[ast.ClassDef | None, Path]:
    """A class of ours by the name that it has in a file, and the file where it stands."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node, path
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tokenfree."):
            home = Path(*str(node.module).split(".")[1:]).with_suffix(".py")
            if (
                any((alias.asname or alias.name) == name for alias in node.names)
                and (SOURCE / home).is_file()
            ):
                return _class(home, name)
    return None, path


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_say_what_they_raise(package: str) -> None:
    found = files(package)
    assert found
    assert [problem for path in found for problem in problems(path)] == []


def test_what_is_missing_is_found(tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text('''
class Base:
    def told(self):
        """Give nothing.

        Raises:
            JobError: always.
        """
        raise JobError("no")

    def untold(self):
        raise JobError("no")


class Derived(Base):
    """Another."""

    def __init__(self):
        raise UserError("no")

    def told(self):
        raise JobError("no")

    def _private(self):
        raise JobError("no")


def raises():
    """Give nothing.

    Raises:
        UserError: never.
    """
    if True:
        raise JobError("no")


def without():
    raise UserError("no")


def inner():
    def function():
        raise JobError("no")

    return function
''')
    assert [problem.removeprefix(str(path)) for problem in problems(path)] == [
        ": no docstring",
        ":11 Base.untold: raises JobError, and does not say so",
        ":15 Derived: raises UserError, and does not say so",
        ":28 raises: raises JobError, and does not say so",
        ":38 without: raises UserError, and does not say so",
    ]
