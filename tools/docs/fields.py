"""An extension of griffe, which reads the code for the API page: fields of records and settings as one table.

A field's meaning is what the docstring of its class says under `Attributes:`, or the comment at the end of
its line.
"""

import ast
import io
import tokenize
from typing import Any

import griffe

from tokenfree.workflows.recipes.keys import attributes


class Fields(griffe.Extension):
    """Moves the annotated public fields of each class into a section of its docstring, with comments and defaults."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called when the members of a class are known."""
        own = (field for name, field in cls.attributes.items() if name in cls.members)
        fields = [field for field in own if field.is_public and field.annotation is not None]
        if fields and cls.docstring is not None:
            told = attributes(cls.docstring.value)
            lines = [
                f"    {field.name} ({_type(field)}): {_meaning(field, told.get(field.name))}"
                for field in fields
            ]
            before, *told_of = cls.docstring.value.split("\nAttributes:\n")
            after = "".join(told_of).partition("\n\n")[2]
            cls.docstring.value = "\n".join([before.rstrip(), "", "Attributes:", *lines, "", after]).rstrip()
            for field in fields:
                del cls.members[field.name]


class _Bare(ast.NodeTransformer):
    """Takes `int` for `Annotated[int, Field(ge=1)]`."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """The first argument of `Annotated`."""
        self.generic_visit(node)
        if ast.unparse(node.value) == "Annotated" and isinstance(node.slice, ast.Tuple):
            return node.slice.elts[0]
        return node


def _type(field: griffe.Attribute) -> str:
    return ast.unparse(_Bare().visit(ast.parse(str(field.annotation), mode="eval")))


def _meaning(field: griffe.Attribute, told: str | None) -> str:
    tokens = tokenize.generate_tokens(io.StringIO("\n".join(field.lines).strip()).readline)
    comment = " ".join(token.string.strip("# ") for token in tokens if token.type == tokenize.COMMENT)
    default = _default(str(field.value), field.module) if field.value is not None else ""
    meaning = comment if told is None else told.rstrip(".")
    return "; ".join(filter(None, (meaning, default and f"default `{default}`")))


def _default(value: str, module: griffe.Module) -> str:
    """A default as a reader would write it: `{}` for a field whose factory is dict, the name of a part for a slot."""
    call = ast.parse(value, mode="eval").body
    if not isinstance(call, ast.Call):
        return value
    slot, _, name = ast.unparse(call.func).rpartition(".")
    # Of a slot, which is made with its package and its default.
    if name == "field" and slot in module.attributes:
        made = ast.parse(str(module.attributes[slot].value), mode="eval").body
        assert isinstance(made, ast.Call), slot
        return ast.unparse(made.args[-1])
    if name == "field":
        return {"dict": "{}", "tuple": "()", "list": "[]"}.get(ast.unparse(call.keywords[0].value), "")
    return ast.unparse(call.args[-1]) if name == "part" else value
