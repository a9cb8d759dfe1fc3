"""Two operators that cosmic-ray lacks: leave out an operand, and leave out a function call.

Equations often lose such parts: a residual, a scale, a LayerNorm, a dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import parso
from cosmic_ray.operators.operator import Example, Operator

Span = tuple[tuple[int, int], tuple[int, int]]
OPERATIONS = ("arith_expr", "term", "expr", "and_expr", "and_test", "or_test")
MODULES = ("torch", "F", "functional", "nn", "np", "math", "random", "dataclasses", "functools")
BUILTINS = ("range", "len", "int", "max", "min", "sum", "sorted", "zip", "isinstance", "enumerate", "list", "tuple",
            "set", "reversed", "getattr", "hasattr", "any", "all", "super", "divmod")  # fmt: skip


class LeaveOutOperand(Operator):
    """`a + b` becomes `a` or `b`."""

    def mutation_positions(self, node: Any) -> Iterator[Span]:
        """Yield the span of each operator, for its right operand, and of the first one also for its left operand."""
        if node.type in OPERATIONS:
            first = node.children[1]
            yield first.start_pos, first.end_pos
            for operator in node.children[1::2]:
                yield operator.start_pos, operator.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Return `node` without an operand and the adjacent operator."""
        at = slice(0, 2) if index == 0 else slice(2 * index - 1, 2 * index + 1)
        kept = [*node.children]
        del kept[at]
        return parso.parse(f"{node.get_first_leaf().prefix}{_code(kept).lstrip()}")

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples of the mutation."""
        return Example("x = a + b", "x = b"), Example("x = a + b * c - d", "x = a - d", occurrence=1)


class LeaveOutCall(Operator):
    """`f(x, y)` becomes `x`, and `x.method()` becomes `x`.

    Functions are those of the project, of `self`, of torch's functional module, and others with one argument.
    Methods are those without positional arguments. The result then mostly has the type and shape of the
    original.
    """

    def mutation_positions(self, node: Any) -> Iterator[Span]:
        """Yield the span of each call that can be replaced."""
        if node.type in ("atom_expr", "power"):
            for at in _calls(node):
                yield node.children[at].start_pos, node.children[at].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Return `node` without one of its calls."""
        at = _calls(node)[index]
        before, after = node.children[: at - 1], node.children[at + 1 :]
        if not _is_method(node, at):
            before = _positional(node.children[at])[:1]
        return parso.parse(f"{node.get_first_leaf().prefix}({_code(before).strip()}){_code(after)}")

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return examples of the mutation."""
        return Example("x = f(a, b)", "x = (a)"), Example("x = a.f(b).g(d=1)", "x = (a.f(b))")


def _code(nodes: list[Any]) -> str:
    return "".join(node.get_code() for node in nodes)


def _calls(node: Any) -> list[int]:
    """Return the positions, among the children, of calls that can be left out."""
    calls = (
        at
        for at, child in enumerate(node.children)
        if child.type == "trailer" and child.children[0].value == "("
    )
    return [at for at in calls if _can_go(node, at)]


def _can_go(node: Any, at: int) -> bool:
    owner, arguments = node.children[0].get_code().strip(), _positional(node.children[at])
    called = node.children[at - 1].get_code().strip(" .\n")
    if (
        called.startswith("__")
        or called[:1].isupper()
        or called in BUILTINS
        or node.children[at - 1].type == "atom"
    ):
        return False  # constructors and the like, whose absence every test notices
    if _is_method(node, at):
        return not arguments
    return len(arguments) == 1 or (bool(arguments) and owner not in ("torch", "np", "nn"))


def _is_method(node: Any, at: int) -> bool:
    """Return True if the callable is a method of a value, not a function of a module or of `self`."""
    return at >= 2 and not (at == 2 and node.children[0].get_code().strip() in ("self", *MODULES))


def _positional(call: Any) -> list[Any]:
    """Return the positional arguments of a call."""
    inner = call.children[1]
    given = inner.children[::2] if inner.type == "arglist" else [inner]
    return [each for each in given if each.type not in ("operator", "argument")]
