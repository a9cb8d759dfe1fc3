"""The documentation that the standard library carries in its source files: docstrings and long comments.

Read with `ast`, so no module is imported; what a Python installation lacks is simply missing here.
"""

from __future__ import annotations

import ast
import re
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data", "turtledemo"}
_COMMENT = re.compile(r"^([ \t]*)# .*(?:\n\1#.*)+", re.MULTILINE)
MIN_COMMENT = 200


@dataclass(frozen=True)
class Entry:
    """A documented class, function or method: its name in the module, its first line, its docstring."""

    kind: str  # "class", "function" or "method"
    name: str
    signature: str
    text: str


@dataclass(frozen=True)
class ModuleDocs:
    """What the source of one module says in words: its docstrings, its long comments, and what it imports."""

    name: str
    summary: str
    entries: tuple[Entry, ...]
    comments: tuple[str, ...]
    imports: tuple[str, ...]
    num_lines: int

    @property
    def characters(self) -> int:
        """The number of characters of all that the module says."""
        texts = (self.summary, *(entry.text for entry in self.entries), *self.comments)
        return sum(map(len, texts))


def standard_library(folder: Path | None = None) -> Iterator[ModuleDocs]:
    """The documentation of each module of the standard library (or of `folder`), in the order of their paths."""
    folder = folder or Path(sysconfig.get_path("stdlib"))
    paths = (path.relative_to(folder) for path in folder.rglob("*.py"))
    for path in sorted(paths, key=lambda path: path.as_posix()):
        if _LEFT_OUT.isdisjoint(path.parts) and all(part.isidentifier() for part in path.with_suffix("").parts):
            docs = _read(folder / path, ".".join(path.with_suffix("").parts).removesuffix(".__init__"))
            if docs is not None:
                yield docs


def _read(path: Path, name: str) -> ModuleDocs | None:
    try:
        source = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():  # old docstrings hold escapes that newer Pythons warn of
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError):
        return None  # a file that this Python cannot read (templates, tests of bad syntax) has no docs for us
    imports = {
        alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names if alias.name != name
    }
    return ModuleDocs(
        name=name,
        summary=ast.get_docstring(tree) or "",
        entries=tuple(_entries(tree, "")),
        comments=tuple(comment for comment in map(_uncomment, _COMMENT.finditer(source)) if comment),
        imports=tuple(sorted(imports)),
        num_lines=source.count("\n"),
    )


def _entries(tree: ast.Module | ast.ClassDef, prefix: str) -> Iterator[Entry]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            name = prefix + node.name
            bases = ", ".join(map(ast.unparse, node.bases))
            yield Entry("class", name, f"class {node.name}({bases})" if bases else f"class {node.name}", _doc(node))
            yield from _entries(node, f"{name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (text := _doc(node)):
            kind = "method" if prefix else "function"
            start = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
            yield Entry(kind, prefix + node.name, f"{start} {node.name}({ast.unparse(node.args)})", text)


def _doc(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.get_docstring(node) or ""


def _uncomment(found: re.Match[str]) -> str:
    """A block of comment lines as text; empty where it is short or holds disabled code rather than words."""
    text = "\n".join(line.strip().lstrip("#").removeprefix(" ").rstrip() for line in found[0].splitlines())
    letters = sum(character.isalpha() or character == " " for character in text)
    return text if len(text) >= MIN_COMMENT and letters > 0.8 * len(text) and ". " in text else ""
