"""The books, as plain text: the Zen of Python, its licence, the built-in objects, and modules with much to say."""

from __future__ import annotations

import ast
import codecs
import importlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from tokenfree.workflows.demo_corpus.module_docs import ModuleDocs
from tokenfree.workflows.demo_corpus.repeats import Repeats

MIN_CHARACTERS = 200
_BUILT_IN = ("builtins", "math", "itertools", "_functools", "_collections", "_operator", "_io", "time", "sys")


def books(modules: Iterable[ModuleDocs], repeats: Repeats) -> dict[str, str]:
    """The text of each book by its file name; those whose source this Python lacks are left out."""
    shelf = {"zen-of-python": zen(), "licence-of-python": licence(), "built-in-objects": built_in_objects(repeats)}
    for module in modules:
        shelf[f"the-module-{module.name.replace('.', '-')}"] = module_book(module, repeats)
    return {name: text.strip() + "\n" for name, text in shelf.items() if len(text.strip()) >= MIN_CHARACTERS}


def zen() -> str:
    """The Zen of Python, read from the source of `this` (importing `this` would print it)."""
    try:
        tree = ast.parse((Path(sysconfig.get_path("stdlib")) / "this.py").read_text(encoding="utf-8"))
    except OSError:
        return ""
    strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return codecs.decode(max(strings, key=len, default=""), "rot13")


def licence() -> str:
    """The licence of Python, from where installations keep it; empty where none does."""
    folders = (Path(sysconfig.get_path("stdlib")), Path(sys.base_prefix), Path(sys.base_prefix) / "Resources")
    for path in (folder / name for folder in folders for name in ("LICENSE.txt", "LICENSE")):
        if path.is_file():
            return path.read_text(encoding="utf-8", errors="replace")
    return ""


def built_in_objects(repeats: Repeats) -> str:
    """What `help()` says of the types and functions that are written in C, chapter by chapter."""
    chapters = []
    for name in _BUILT_IN:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        sections = "\n\n".join(_documented(module, repeats))
        chapters.append(f"{name.lstrip('_').upper()}\n\n{repeats.new_part(inspect.getdoc(module) or '')}\n\n{sections}")
    return "\n\n\n".join(chapters)


def _documented(module: ModuleType, repeats: Repeats) -> Iterator[str]:
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or not (inspect.isbuiltin(value) or inspect.isclass(value)):
            continue
        members = sorted(vars(value).items()) if inspect.isclass(value) else []
        for label, thing in [(name, value), *((f"{name}.{member}", thing) for member, thing in members)]:
            text = repeats.new_part(getattr(thing, "__doc__", None) or "").strip() if callable(thing) else ""
            if len(text) >= 40:
                yield f"{label}\n\n{text}"


def module_book(module: ModuleDocs, repeats: Repeats) -> str:
    """All that a module says of itself, as running text with the names of its parts for titles."""
    parts = [f"THE MODULE {module.name.upper()}", repeats.new_part(module.summary)]
    for entry in module.entries:
        text = repeats.new_part(entry.text).strip()
        if text:
            parts.append(f"{entry.name}\n\n{text}")
    parts += filter(str.strip, map(repeats.new_part, module.comments))
    return "\n\n\n".join(parts)
