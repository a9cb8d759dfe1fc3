"""The mutants of the equations' files, and a random order of them: cosmic-ray's and those of `operators.py`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import parso
from cosmic_ray.ast import ast_nodes
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.provider import OperatorProvider

from benchmarks.mutation.operators import LeaveOutCall, LeaveOutOperand

FOLDERS = ("train/model/embedders", "train/model/downsamplers", "train/model/trunk", "train/model/upsamplers",
           "train/model/common", "train/objectives", "train/optimizers")  # fmt: skip
CONTRACTS = ("train/model/common/slots", "train/objectives/base.py", "train/optimizers/base.py")  # nothing is computed
# Of these cosmic-ray would make mutants of decorators and of what is caught, or needs names of variables.
NO_EQUATIONS = ("RemoveDecorator", "ExceptionReplacer", "VariableReplacer", "VariableInserter")
LEFT_OUT = ("import_from", "import_name", "raise_stmt", "fstring", "decorator", "assert_stmt")


class Mutant(NamedTuple):
    """One change of one place of one file."""

    file: str  # from `tokenfree/`
    line: int
    column: int
    kind: str  # the name of the operator
    occurrence: int  # the number of the place among all that the operator finds in the file

    @property
    def name(self) -> str:
        """What it is known by in the file of results."""
        return f"{self.file}:{self.line}:{self.column} {self.kind} {self.occurrence}"

    def source(self, root: Path) -> str:
        """The text of the changed file."""
        changed = mutate_code((root / self.file).read_text(encoding="utf-8"), OPERATORS[self.kind], self.occurrence)
        assert changed is not None
        return changed

    def diff(self, root: Path) -> list[str]:
        """The lines that differ, before and after."""
        before, after = (root / self.file).read_text(encoding="utf-8").splitlines(), self.source(root).splitlines()
        same = [b == a for b, a in zip(before, after, strict=False)]
        first = same.index(False) if False in same else len(same)
        last = next((n for n, (b, a) in enumerate(zip(before[::-1], after[::-1], strict=False)) if b != a), 0)
        pairs = ("- ", before[first : len(before) - last]), ("+ ", after[first : len(after) - last])
        return [sign + line.strip() for sign, lines in pairs for line in lines]


def _operators() -> dict[str, Any]:
    """Instances of `cosmic_ray.operators.operator.Operator`, by name."""
    provider: Any = OperatorProvider()
    # What is equal is often the same object, by chance of the interpreter: `is` for `==` is no mistake to find.
    names = [name for name in provider if name not in NO_EQUATIONS and not name.endswith(("Eq_Is", "Eq_IsNot"))]
    return {
        **{name: provider[name]() for name in names},
        **{kind.__name__: kind() for kind in (LeaveOutOperand, LeaveOutCall)},
    }


OPERATORS = _operators()


def draw(root: Path, seed: int) -> list[Mutant]:
    """All places in a random order, one mutant of each: any number of the first ones is a random sample of places.

    A place is a stretch of code that can be changed; an operator between two operands has a dozen changes, a number has
    two. Drawn is the place first, then a kind of change (such as another operator, or no operand), then the change. So
    each place has the same say. What is drawn for a place follows from where it is: a change in one file leaves what is
    drawn in the others.
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
    """Each mutant of a file with the stretch of code that it changes."""
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
    """Whether a node is part of what is computed, and not of an annotation, a message, an import or an assertion."""
    if node.type == "operator" and node.parent.type == "dictorsetmaker":  # a mapping in a mapping is no power
        return False
    while node.parent is not None:
        child, node = node, node.parent
        if node.type in LEFT_OUT:
            return False
        if node.type == "argument" and node.children[0].get_code().strip() == "strict":  # of zip: an assertion as well
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
