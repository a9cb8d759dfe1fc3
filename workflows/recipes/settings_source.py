"""Reads settings classes from their source, so that keys are listed without importing torch, which takes seconds.

`twin` gives a dataclass with the docstring, the fields, the annotations and the defaults of a settings class, and
nothing else of it. Only the expressions of these are evaluated, name by name, each in the file where it stands. A name
that cannot be found out like this is imported after all.
"""

import ast
import builtins
import dataclasses
import functools
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenfree.preprocess.common.settings import Slot, slot_of

_IMPORTED = "tokenfree.preprocess.common."  # as light as a file can be, and Slot must be the one there is


@functools.cache
def twin(module: str, name: str) -> type:
    """The twin of the settings class `name` of a module.

    The default of a field that holds a part is the name of that part.

    Raises:
        LookupError: there is no such module, or no such settings class in it.
    """
    for node in _statements(module):
        if isinstance(node, ast.ClassDef) and node.name == name and _is_settings(node):
            return _twin(module, node)
    raise LookupError(f"{module} has no settings class {name}")


def variants(slot: Slot) -> dict[str, type]:
    """The twins of the `Config` of each part of a slot, by the name of the part."""
    folder = importlib.import_module(slot.package).__path__
    names = sorted(info.name for info in pkgutil.iter_modules(folder) if not info.name.startswith("_"))
    modules = {name: f"{slot.package}.{name}" for name in names}
    return {name: twin(module, "Config") for name, module in modules.items() if _has_config(module)}


class _Names(dict[str, Any]):
    """The names of a module, found out when they are asked for."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self.module = module

    def __missing__(self, name: str) -> Any:
        return _value(self.module, name)


def _twin(module: str, node: ast.ClassDef) -> type:
    hints: dict[str, Any] = {}
    members: dict[str, Any] = {"__doc__": ast.get_docstring(node), "__module__": module, "__annotations__": hints}
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            hint = hints[field.target.id] = _evaluated(module, field.annotation)
            slot = slot_of(hint)
            if slot is not None:
                members[field.target.id] = slot.default
            elif field.value is not None:
                members[field.target.id] = _evaluated(module, field.value)
    bases = tuple(twin(*home) for base in node.bases if (home := _home(module, base)) is not None)
    return dataclasses.dataclass(frozen=True, kw_only=True)(type(node.name, bases, members))


def _is_settings(node: ast.ClassDef) -> bool:
    return any(isinstance(mark, ast.Name) and mark.id == "settings" for mark in node.decorator_list)


def _home(module: str, base: ast.expr) -> tuple[str, str] | None:
    """The module and the name of a base that is a settings class; other bases have no fields."""
    if not isinstance(base, ast.Name):
        return None
    for node in _statements(module):
        if isinstance(node, ast.ClassDef) and node.name == base.id:
            return (module, base.id) if _is_settings(node) else None
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tokenfree."):
            for alias in node.names:
                if (alias.asname or alias.name) == base.id:
                    return _home(str(node.module), ast.Name(alias.name))
    return None


def _evaluated(module: str, expression: ast.expr) -> Any:
    code = compile(ast.Expression(expression), module, "eval")
    return eval(code, {"__builtins__": builtins}, _Names(module))


@functools.cache
def _value(module: str, name: str) -> Any:
    """What a name of a module stands for.

    Raises:
        KeyError: the module has no such name.
    """
    for node in _statements(module):
        if _binds(node, name):
            try:
                return _bound(module, node, name)
            except Exception:
                return getattr(importlib.import_module(module), name)
    raise KeyError(name)


def _binds(node: ast.stmt, name: str) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return name in (alias.asname or alias.name.split(".")[0] for alias in node.names)
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(target, ast.Name) and target.id == name for target in targets)
    return isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name


def _bound(module: str, node: ast.stmt, name: str) -> Any:
    if isinstance(node, ast.ImportFrom):
        source = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        home = str(node.module)
        if home.startswith("tokenfree.") and not home.startswith(_IMPORTED):
            return _value(home, source)
        return getattr(importlib.import_module(home), source)
    if isinstance(node, ast.Import):
        alias = next(alias for alias in node.names if (alias.asname or alias.name.split(".")[0]) == name)
        imported = importlib.import_module(alias.name)
        return imported if alias.asname else sys.modules[name]
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        return _evaluated(module, node.value)
    if isinstance(node, ast.ClassDef) and _is_settings(node):
        return twin(module, name)
    if isinstance(node, ast.ClassDef):
        bases = (_value(module, base.id) for base in node.bases if isinstance(base, ast.Name))
        return next(base for base in bases if isinstance(base, type) and issubclass(base, Slot))
    return _Unneeded()


class _Unneeded:
    """Stands for a function, such as a validator, which no key is listed by. Where it is called after all, it fails."""

    def __call__(self, value: Any) -> Any:
        raise NotImplementedError


@functools.cache
def _statements(module: str) -> tuple[ast.stmt, ...]:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise LookupError(f"there is no module {module}")
    return tuple(_flat(ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body))


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, those inside `if TYPE_CHECKING:` too."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _flat(node.body)
        yield node


def _has_config(module: str) -> bool:
    return any(isinstance(node, ast.ClassDef) and node.name == "Config" for node in _statements(module))
