"""One Python file with all code that a model needs, from the modules of tokenfree and of custom parts.

The file holds the definitions that are reached by their names, in the order of imports, without an import of
tokenfree. Settings become plain values.
"""

import ast
import copy
import dataclasses
import importlib.util
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from tokenfree.core.errors import UserError
from tokenfree.train.objectives.base import Head

HEADER = """\
# Copyright the authors of tokenfree
# SPDX-License-Identifier: Apache-2.0
#
# Written by `tokenfree export` from the modules of tokenfree: all that this model needs, and no more.
"""
# Methods that only training uses.
LEFT_OUT = ("costs", "learn", "symbols", "ModelConfig.build")
_COMMON = "tokenfree.train.model.common"
_AVERAGE = "def average(weights, values, rate): return nn.functional.dropout(weights, rate) @ values"
_LAYER_NORM = "def layer_norm(width): return nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)"
# Code of PyTorch with the same results. Ours is faster on some CPUs, mostly in training.
STAND_INS = {
    (f"{_COMMON}.basic", "Dense"): "Dense = nn.Linear",
    (f"{_COMMON}.basic", "Dropout"): "Dropout = nn.Dropout",
    (f"{_COMMON}.basic", "linear"): "linear = nn.functional.linear",
    (f"{_COMMON}.basic", "dropout"): "dropout = nn.functional.dropout",
    (f"{_COMMON}.basic", "embedding"): "embedding = nn.functional.embedding",
    (f"{_COMMON}.basic", "average"): _AVERAGE,
    (f"{_COMMON}.basic", "layer_norm"): _LAYER_NORM,
}
# Functions whose calls are replaced by False. Settings were checked before training, for all lengths up to its own.
FALSE = {
    (f"{_COMMON}.basic", "draws_here"),
    (f"{_COMMON}.basic", "is_exporting"),
    (f"{_COMMON}.attention", "is_faster_in_parts"),
    ("tokenfree.train.model.upsamplers.repeat_concat", "is_faster_by_unit"),
    ("tokenfree.train.model.encoder", "check"),
}
# Functions whose calls are replaced by the first argument.
IDENTITIES = {(f"{_COMMON}.basic", "takes"), (f"{_COMMON}.basic", "cast_for_products")}
# Methods that PyTorch calls. The heads of tasks and objectives are called by other names.
CALLED = ("forward", "backward")
WHOLE_MODULE = ""
LONG = 16  # lines below the first one of a definition that an empty line follows
MAX_LINES = 1120  # without docstrings beyond; a folder with its tokenizer must not have more than 1,200
_DOCSTRING = re.compile(r'(?m)^(class .*:\n)    """(?:[^"]|"(?!""))*"""\n(?=    )')
_EMPTY_LINE = re.compile(r"\n\n(?=    )")  # in a definition


class Key(NamedTuple):
    module: str
    name: str  # of a definition, or WHOLE_MODULE


class ModuleCode(ast.NodeTransformer):
    """The definitions of a module, without annotations and assertions.

    Their names have the attribute `definition` if they stand for a definition of one of the `packages`, or `external`,
    a module (or "") and what is imported from it. Raises UserError if the module is in no file.
    """

    def __init__(self, module: str, packages: frozenset[str]) -> None:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise UserError(f"{module}: its code is in no file. Put the part into a file to export it.")
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        self.module, self._package, self._packages = module, spec.parent, packages
        self.doc = (ast.get_docstring(tree) or "").partition("\n\n")[0]
        self.imported: dict[str, Key] = {}
        self._external: dict[str, tuple[str, str]] = {}
        self.definitions: dict[str, Any] = {}
        for statement in tree.body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                self._add_import(statement)
            self.definitions |= dict.fromkeys(names_bound_by(statement), statement)
        self._local = set[str]()
        for statement in tree.body:
            self.visit(statement)

    def _add_import(self, statement: ast.Import | ast.ImportFrom) -> None:
        origin = ""
        if isinstance(statement, ast.ImportFrom):
            relative = "." * statement.level + (statement.module or "")
            origin = importlib.util.resolve_name(relative, self._package)
        for alias in statement.names:
            local = alias.asname or alias.name.partition(".")[0]
            if (origin or alias.name).partition(".")[0] not in self._packages:
                self._external[local] = origin, ast.unparse(alias)
            elif _is_module(f"{origin}.{alias.name}"):
                self.imported[local] = Key(f"{origin}.{alias.name}", WHOLE_MODULE)
            else:
                self.imported[local] = Key(origin, alias.name)

    def visit_Name(self, node: Any) -> ast.Name:
        if node.id in self._local:
            return node
        if node.id in self.definitions:
            node.definition = Key(self.module, node.id)
        elif node.id in self.imported:
            node.definition = self.imported[node.id]
        elif node.id in self._external:
            node.external = self._external[node.id]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        node.value = self.visit(node.value)
        whole = getattr(node.value, "definition", None)
        return node if whole is None or whole.name != WHOLE_MODULE else _name(Key(whole.module, node.attr))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        self._shorten(node)
        outer, nodes = self._local, list(ast.walk(node))
        self._local = outer.union(
            (each.id for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)),
            (each.arg for each in nodes if isinstance(each, ast.arg)),
        )
        self.generic_visit(node)
        self._local = outer
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._shorten(node)
        return self.generic_visit(node)

    def _shorten(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        """Leave the first paragraph of the docstring of a class, and none of a function."""
        doc = ast.get_docstring(node)
        if doc is not None:
            first = (
                [ast.Expr(ast.Constant(doc.partition("\n\n")[0]))] if isinstance(node, ast.ClassDef) else []
            )
            node.body = first + node.body[1:] or [ast.Pass()]

    def visit_Assert(self, node: ast.Assert) -> None:
        return None

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        # A field of a record needs an annotation.
        node.annotation = ast.Name("Any", ast.Load())
        return self.generic_visit(node)


def _is(node: ast.AST, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _is_module(path: str) -> bool:
    try:
        return importlib.util.find_spec(path) is not None
    except ModuleNotFoundError:
        return False


def _name(key: Key) -> ast.expr:
    node: Any = ast.Name(key.name, ast.Load())
    node.definition = key
    return node


def names_bound_by(statement: ast.AST) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return []
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return [node.id for node in names if isinstance(node.ctx, ast.Store)]


def literal(value: Any) -> ast.expr:
    """Return the expression of a value: of settings, a definition, or plain Python."""
    if inspect.isclass(value) or inspect.isfunction(value):
        return _name(Key(value.__module__, value.__name__))
    if isinstance(value, Key):
        return _name(value)
    if isinstance(value, tuple):
        return ast.Tuple([literal(item) for item in value], ast.Load())
    if not dataclasses.is_dataclass(value):
        return ast.parse(repr(value), mode="eval").body
    names = [field.name for field in dataclasses.fields(value)]
    # Constants of the class that are no settings, such as its kind of symbols.
    names += [
        name
        for name in dir(value)
        if name not in names
        and not name.startswith("_")
        and isinstance(inspect.getattr_static(value, name), (str, int, type(None)))
    ]
    node: Any = ast.Call(literal(type(value)), [], [])
    node.keywords = [ast.keyword(name, literal(getattr(value, name))) for name in names]
    node.is_settings = True
    return node


class Program:
    """The definitions that `roots` of a module need, with other values for some of its variables.

    Nothing builds PyTorch modules of other classes than those in `modules`, nor subclasses of `unused`, and calls
    none of its functions. Raises UserError if a part is in no file.
    """

    def __init__(
        self,
        module: str,
        roots: Iterable[str],
        values: Mapping[str, Any],
        modules: Iterable[nn.Module] = (),
        unused: Sequence[Any] = (),
    ) -> None:
        self._unused = unused
        self._root, literals = module, {name: literal(value) for name, value in values.items()}
        parts = {type(part) for whole in modules for part in whole.modules()}
        self._built = {cls for part in parts for cls in part.__mro__}
        names = (getattr(node, "definition", None) for tree in literals.values() for node in ast.walk(tree))
        self._packages = frozenset(key.module.partition(".")[0] for key in names if key) | {"tokenfree"}
        self._sources: dict[str, ModuleCode] = {}
        definitions = self._source(module).definitions
        for name, value in literals.items():
            # To the end, because a value can be a definition of the same module.
            del definitions[name]
            definitions[name] = ast.fix_missing_locations(ast.Assign([ast.Name(name, ast.Store())], value))
        self._attributes, self._reached = set[str](), dict.fromkeys(Key(module, name) for name in roots)
        sizes = (0, 0)
        while sizes != (sizes := (len(self._reached), len(self._attributes))):
            for key in list(self._reached):
                self._reach_from(key)

    def _source(self, module: str) -> ModuleCode:
        if module not in self._sources:
            self._sources[module] = ModuleCode(module, self._packages)
        return self._sources[module]

    def _resolved(self, key: Key) -> Key:
        """Return the definition that a module may only import."""
        imported = self._source(key.module).imported
        return self._resolved(imported[key.name]) if key.name in imported else key

    def _reach_from(self, definition: Key) -> None:
        for node in ast.walk(self._cut(definition)):
            self._attributes.update(_attributes_of(node))
            key: Key | None = getattr(node, "definition", None)
            if key is not None:
                target = self._resolved(key)
                names = names_bound_by(self._source(target.module).definitions[target.name])
                self._reached |= dict.fromkeys(Key(target.module, name) for name in names)

    def _cut(self, key: Key) -> Any:
        """Return a copy of a definition, without the methods that nothing calls."""
        source = self._source(key.module)
        if key in STAND_INS:
            return source.visit(ast.parse(STAND_INS[key]).body[0])
        statement = source.definitions[key.name]
        if not isinstance(statement, ast.ClassDef) or key.module == self._root:
            return _Simplified(self.is_built, self._attributes).visit(copy.deepcopy(statement))
        cls: Any = getattr(sys.modules[key.module], key.name)
        if "__pydantic_config__" in vars(cls):
            return _Simplified(self.is_built, self._attributes).visit(self._plain(cls, statement))
        is_record = bool(statement.decorator_list) or "NamedTuple" in map(ast.unparse, statement.bases)
        members = (member for member in statement.body if self._is_used(member, cls, is_record=is_record))
        copied = copy.copy(statement)
        copied.body = [*members] or [ast.Pass()]
        return _Simplified(self.is_built, self._attributes).visit(copy.deepcopy(copied))

    def _plain(self, cls: type, statement: ast.ClassDef) -> ast.ClassDef:
        """Return a class of settings without fields, with the methods of its base classes."""
        methods = dict[str, ast.stmt]()
        for base in cls.__mro__:
            definitions = self._source(base.__module__).definitions if self._is_ours(base) else {}
            for member in getattr(definitions.get(base.__name__), "body", []):
                if isinstance(member, ast.FunctionDef) and self._is_used(member, base, is_record=False):
                    methods.setdefault(member.name, copy.deepcopy(member))
        base: Any = ast.Name("SimpleNamespace", ast.Load())
        base.external = ("types", "SimpleNamespace")
        doc = [member for member in statement.body if isinstance(member, ast.Expr)]
        return ast.ClassDef(cls.__name__, [base], [], [*doc, *methods.values()] or [ast.Pass()], [])

    def _is_ours(self, cls: type) -> bool:
        return cls.__module__.partition(".")[0] in self._packages

    def is_built(self, key: Key) -> bool:
        """Return False for a class of which this model has no object, and for an unused function."""
        cls = None if key.module == self._root else getattr(sys.modules.get(key.module), key.name, None)
        if not isinstance(cls, type):
            return cls is None or cls not in self._unused
        return cls in self._built or not issubclass(cls, (nn.Module, *filter(inspect.isclass, self._unused)))

    def _is_used(self, member: ast.stmt, cls: type, *, is_record: bool) -> bool:
        if isinstance(member, ast.Expr):
            return True
        if not isinstance(member, ast.FunctionDef):
            return is_record or not self._attributes.isdisjoint(names_bound_by(member))
        name, decorators = member.name, [ast.unparse(decorator) for decorator in member.decorator_list]
        if name in LEFT_OUT or f"{cls.__name__}.{name}" in LEFT_OUT or "abstractmethod" in decorators:
            return False
        if name in CALLED:
            return not issubclass(cls, Head)
        return name.startswith("__") or name in self._attributes

    def text(self) -> str:
        """Return the file."""
        external, statements = {("typing", "Any")}, list[str]()
        for key, name in self._names.items():
            statement = _Renamed(self._names, self._resolved).visit(self._cut(key))
            if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                statement.name = name
            nodes = (getattr(node, "external", None) for node in ast.walk(statement))
            external.update(node for node in nodes if node is not None)
            lines = ast.unparse(ast.fix_missing_locations(statement)).strip()
            statements.append(lines if lines.count("\n") < LONG else f"{lines}\n")
        imports = [f"import {name}" for origin, name in external if not origin]
        for origin in {origin for origin, _ in external if origin}:
            names = sorted(name for module, name in external if module == origin)
            imports.append(f"from {origin} import {', '.join(names)}")
        head = f'{HEADER}"""{self._source(self._root).doc}"""\n\nfrom __future__ import annotations\n'
        text = _EMPTY_LINE.sub("\n", "\n".join([head, *sorted(imports), "", *dict.fromkeys(statements)]))
        return text if text.count("\n") < MAX_LINES else _DOCSTRING.sub(r"\1", text)

    @cached_property
    def _names(self) -> dict[Key, str]:
        """The names of definitions in the file, in order: with those of module and folder, if others have the same."""
        modules = dict[str, None]()
        # Values of the root's variables may come from any module.
        for module in reversed(self._sources):
            self._visit(module, modules)
        keys = [key for module in modules for key in self._in_order(module)]
        counts = Counter(key.name for key in keys)
        names = dict[Key, str]()
        for key in keys:
            words = [word for part in key.module.split(".")[-2:] for word in part.split("_")]
            is_class = isinstance(self._source(key.module).definitions[key.name], ast.ClassDef)
            prefix = "".join(map(str.title, words)) if is_class else "_".join([*words, ""])
            names[key] = key.name if counts[key.name] == 1 else f"{prefix}{key.name}"
        return names

    def _visit(self, module: str, modules: dict[str, None]) -> None:
        """Add a module to `modules` after those that it imports."""
        if module in self._sources and module not in modules:
            for key in self._sources[module].imported.values():
                self._visit(key.module, modules)
            modules[module] = None

    def _in_order(self, module: str) -> Iterator[Key]:
        for name in self._source(module).definitions:
            if Key(module, name) in self._reached:
                yield Key(module, name)


def _attributes_of(node: ast.AST) -> list[str]:
    """Return the names of the attributes that a node reads."""
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("getattr", "hasattr"):
        return []
    return [str(name.value) for name in node.args if isinstance(name, ast.Constant)]


class _Simplified(ast.NodeTransformer):
    """Removal of branches that are never taken: calls of `FALSE`, classes for which `is_built` returns False.

    Settings that nothing reads are left out too.
    """

    def __init__(self, is_built: Callable[[Key], bool], attributes: set[str]) -> None:
        self._is_built, self._attributes = is_built, attributes

    def visit_Call(self, node: Any) -> ast.AST:
        if hasattr(node, "is_settings"):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg in self._attributes]
        self.generic_visit(node)
        definition = getattr(node.func, "definition", None)
        if definition in FALSE | IDENTITIES:
            return ast.Constant(False) if definition in FALSE else node.args[0]
        if ast.unparse(node.func) != "isinstance":
            return node if self._has_objects(getattr(node.func, "value", node.func)) else ast.Constant(None)
        classes = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
        classes = [cls for cls in classes if self._has_objects(cls)]
        node.args[1] = classes[0] if len(classes) == 1 else ast.Tuple(classes, ast.Load())
        return node if classes else ast.Constant(False)

    def _has_objects(self, node: Any) -> bool:
        return not hasattr(node, "definition") or self._is_built(node.definition)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return ast.Constant(True) if isinstance(node.op, ast.Not) and _is(node.operand, False) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        decides = isinstance(node.op, ast.Or)
        if any(_is(value, decides) for value in node.values):
            return ast.Constant(decides)
        node.values = [value for value in node.values if not _is(value, not decides)]
        if not node.values:
            return ast.Constant(not decides)
        return node if len(node.values) > 1 else node.values[0]

    def visit_If(self, node: Any) -> Any:
        self.generic_visit(node)
        return node.body if _is(node.test, True) else node.orelse if _is(node.test, False) else node

    visit_IfExp = visit_If


class _Renamed(ast.NodeTransformer):
    """Replacement of names by those in the file."""

    def __init__(self, names: Mapping[Key, str], resolved: Callable[[Key], Key]) -> None:
        self._names, self._resolved = names, resolved

    def visit_Name(self, node: Any) -> ast.AST:
        return (
            ast.Name(self._names[self._resolved(node.definition)], node.ctx)
            if hasattr(node, "definition")
            else node
        )
