"""Mutants of the files with equations, in random order.

The operators are those of cosmic-ray and of `operators.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.provider import OperatorProvider

from tools.mutation.operators import LeaveOutCall, LeaveOutOperand

FOLDERS = ("train/model", "train/objectives", "train/optimizers")
# No computations.
CONTRACTS = ("train/model/common/slots", "train/objectives/base.py", "train/optimizers/base.py")
# These operators of cosmic-ray would mutate decorators and caught exceptions, or need the names of variables.
NO_EQUATIONS = ("RemoveDecorator", "ExceptionReplacer", "VariableReplacer", "VariableInserter")
LEFT_OUT = ("import_from", "import_name", "raise_stmt", "fstring", "decorator", "assert_stmt")


class Mutant(NamedTuple):
    """One change at one place of a file."""

    file: str  # relative to `tokenfree/`
    line: int
    column: int
    kind: str  # name of the operator
    occurrence: int  # number of the place among all that the operator finds in the file

    @property
    def name(self) -> str:
        """Key of the mutant in the file of results."""
        return f"{self.file}:{self.line}:{self.column} {self.kind} {self.occurrence}"

    def source(self, root: Path) -> str:
        """Return the text of the changed file."""
        changed = mutate_code(
            (root / self.file).read_text(encoding="utf-8"), OPERATORS[self.kind], self.occurrence
        )
        assert changed is not None
        return changed

    def diff(self, root: Path) -> list[str]:
        """Return the lines that differ, before and after."""
        before, after = (
            (root / self.file).read_text(encoding="utf-8").splitlines(),
            self.source(root).splitlines(),
        )
        same = [b == a for b, a in zip(before, after, strict=False)]
        first = same.index(False) if False in same else len(same)
        last = next((n for n, (b, a) in enumerate(zip(before[::-1], after[::-1], strict=False)) if b != a), 0)
        pairs = ("- ", before[first : len(before) - last]), ("+ ", after[first : len(after) - last])
        return [sign + line.strip() for sign, lines in pairs for line in lines]


def _operators() -> dict[str, Any]:
    """Return instances of `cosmic_ray.operators.operator.Operator` by name."""
    provider: Any = OperatorProvider()
    # Equal values are often the same object in CPython, so tests cannot notice `is` in place of `==`.
    names = [
        name for name in provider if name not in NO_EQUATIONS and not name.endswith(("Eq_Is", "Eq_IsNot"))
    ]
    return {
        **{name: provider[name]() for name in names},
        **{kind.__name__: kind() for kind in (LeaveOutOperand, LeaveOutCall)},
    }


OPERATORS = _operators()


def draw(root: Path, seed: int) -> list[Mutant]:
    """Return one mutant of each place, in random order.

    Any number of the first ones is a random sample of places. A place is a stretch of code that can be
    changed. An operator between two operands has a dozen changes, a number has two. First the place is drawn,
    then a kind of change (such as another operator, or no operand), then the change. Thus each place has the
    same weight. The draw for a place depends only on its position, so changes in one file do not affect the
    draws in others.
    """
    places: dict[tuple[str, Any], dict[str, list[Mutant]]] = {}
    for folder in FOLDERS:
        files = sorted((root / folder).rglob("*.py"))
        for path in (path for path in files if not path.relative_to(root).as_posix().startswith(CONTRACTS)):
            for span, mutant in _mutants(root, path):
                family = mutant.kind.split("_")[0]
                places.setdefault((mutant.file, span), {}).setdefault(family, []).append(mutant)
    chosen = []
    for place, families in places.items():
        generator = random.Random(f"{seed} {place}")
        order, family = generator.random(), generator.choice(sorted(families))
        chosen.append((order, generator.choice(families[family])))
    return [mutant for _, mutant in sorted(chosen)]


def _mutants(root: Path, path: Path) -> Iterator[tuple[Any, Mutant]]:
    """Yield each mutant of a file with the stretch of code that it changes."""
    nodes = list(ast_nodes(parso.parse(path.read_text(encoding="utf-8"))))
    usable = {id(node): _is_equation(node) for node in nodes}
    file = path.relative_to(root).as_posix()
    for name, operator in OPERATORS.items():
        found = ((node, span) for node in nodes for span in operator.mutation_positions(node))
        for occurrence, (node, span) in enumerate(found):
            if usable[id(node)]:
                (line, column), _ = span
                yield span, Mutant(file, line, column, name, occurrence)


def _is_equation(node: Any) -> bool:
    """Return True if a node is part of a computation, not of an annotation, message, import or assertion."""
    if node.type == "operator" and node.parent.type == "dictorsetmaker":  # `**` unpacks a mapping here
        return False
    while node.parent is not None:
        child, node = node, node.parent
        if node.type in LEFT_OUT:
            return False
        # Zip's is an assertion.
        if node.type == "argument" and node.children[0].get_code().strip() == "strict":
            return False
        if node.type == "annassign" and node.children[1] is child:
            return False
        if node.type == "tfpdef" or (node.type == "funcdef" and node.annotation is child):
            return False
        if node.type == "parameters" and child.type != "param":
            return False
        if node.type == "atom_expr" and node.children[0].get_code().strip() in ("Annotated", "Literal"):
            return False
    return True
