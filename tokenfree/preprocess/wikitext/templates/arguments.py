"""The arguments of a template call."""

import re

from tokenfree.preprocess.wikitext.markup.marks import GONE

_PIPE_OR_LINK = re.compile(r"\[\[|\]\]|\|")


def parse(body: str) -> dict[str, str]:
    """`|a|name=b|c` to {"1": "a", "name": "b", "2": "c"}, names in lower case; the first pipe is the start."""
    arguments: dict[str, str] = {}
    position = 0
    for part in _split(body)[1:]:
        name, equals, value = part.partition("=")
        if equals and _is_name(name):
            arguments[name.strip().lower()] = value.strip()
        else:
            position += 1
            arguments[str(position)] = part
    return arguments


def positional(arguments: dict[str, str]) -> list[str]:
    """The unnamed arguments in order, up to the first that is missing, without outer white space."""
    values = []
    while (value := arguments.get(str(len(values) + 1))) is not None:
        values.append(value.strip())
    return values


def get(arguments: dict[str, str], *names: str) -> str:
    """The first of the named arguments that is not empty, or the empty string."""
    for name in names:
        value = arguments.get(name)
        if value and (value := value.strip()) and value != GONE:
            return value
    return ""


def _split(body: str) -> list[str]:
    """Splits at the pipes that are not inside a link."""
    if "[[" not in body:
        return body.split("|")
    parts: list[str] = []
    depth = 0
    start = 0
    for token in _PIPE_OR_LINK.finditer(body):
        kind = token[0]
        if kind == "[[":
            depth += 1
        elif kind == "]]":
            depth = max(0, depth - 1)
        elif not depth:
            parts.append(body[start : token.start()])
            start = token.end()
    parts.append(body[start:])
    return parts


def _is_name(name: str) -> bool:
    # An equals sign in a URL or in an HTML attribute is not the mark of a named argument that a reader meant.
    return len(name) < 60 and not any(mark in name for mark in "[<&/")
