"""Replace templates and parser functions, whose braces are matched with one stack over the page."""

import re
from collections.abc import Callable

from tokenfree.preprocess.wikitext.markup import BEFORE_GONE, EQUALS, GONE, PIPE

_PIPE_OR_LINK = re.compile(r"\[\[|\]\]|\|")


def parse(body: str) -> dict[str, str]:
    """`|a|name=b|c` to {"1": "a", "name": "b", "2": "c"}, names in lower case; the first pipe is the start."""
    arguments: dict[str, str] = {}
    position = 0
    for part in _split(body)[1:]:
        name, equals, value = part.partition("=")
        # An equals sign in a URL or an HTML attribute does not make a named argument.
        if equals and len(name) < 60 and not any(mark in name for mark in "[<&/"):
            arguments[name.strip().lower()] = value.strip()
        else:
            position += 1
            arguments[str(position)] = part
    return arguments


def positional(arguments: dict[str, str]) -> list[str]:
    """Return the unnamed arguments in order, up to the first missing one, without outer white space."""
    values = []
    while (value := arguments.get(str(len(values) + 1))) is not None:
        values.append(value.strip())
    return values


def get(arguments: dict[str, str], *names: str) -> str:
    """Return the first of the named arguments that is not empty, or an empty string."""
    for name in names:
        value = arguments.get(name)
        if value and (value := value.strip()) and value != GONE:
            return value
    return ""


def _split(body: str) -> list[str]:
    """Split at the pipes that are not inside a link."""
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


Rule = Callable[[dict[str, str]], str]
Lookup = Callable[[str], "Rule | None"]
# A matched pair of braces: first character, first character after it, number of braces on a side, pairs
# inside it.
Node = tuple[int, int, int, "list[Node]"]

# MediaWiki's own limit on nesting. It also bounds the work: kept text is copied once per level.
MAX_DEPTH = 40

# Two patterns, because `re` searches for a literal several times as fast as for one of two.
_BRACES = (re.compile(r"\{\{+"), re.compile(r"\}\}+"))
_NAME_END = re.compile(r"[|\n<\x05]")
_NO_CHILDREN: list[Node] = []


def replace_templates(text: str, lookup: Lookup) -> str:
    """Drop or replace every template. `lookup` returns the rule for a name in lower case, or None to drop it."""
    nodes = _match(text)
    if nodes:
        text = _splice(text, 0, len(text), nodes, lookup, 0)
    if EQUALS in text:
        text = text.replace(EQUALS, "=")
    if PIPE in text:
        text = text.replace(PIPE, "|")
    return text


def _match(text: str) -> list[Node]:
    """Return the outermost matched pairs in order, each with those inside it.

    Unmatched braces are in none.
    """
    # Runs of opening braces: position, number not yet matched.
    opened: list[list[int]] = []
    done: list[Node] = []
    for start, end in sorted(token.span() for braces in _BRACES for token in braces.finditer(text)):
        if text[start] == "{":
            opened.append([start, end - start])
            continue
        while opened and end - start >= 2:
            run = opened[-1]
            width = 3 if run[1] >= 3 and end - start >= 3 else 2
            run[1] -= width
            start += width
            open_position = run[0] + run[1]
            if run[1] < 2:
                opened.pop()
            if done and done[-1][0] > open_position:
                first = len(done) - 1
                while first and done[first - 1][0] > open_position:
                    first -= 1
                children = done[first:]
                del done[first:]
            else:
                children = _NO_CHILDREN
            done.append((open_position, start, width, children))
    return done


def _splice(text: str, start: int, end: int, nodes: list[Node], lookup: Lookup, depth: int) -> str:
    pieces: list[str] = []
    for node in nodes:
        pieces.append(text[start : node[0]])
        expansion = _expand(text, node, lookup, depth)
        if expansion:
            pieces.append(expansion)
        elif node[0] and (text[node[0] - 1] in BEFORE_GONE or start == node[0]):
            pieces.append(GONE)
        start = node[1]
    pieces.append(text[start:end])
    return "".join(pieces)


def _expand(text: str, node: Node, lookup: Lookup, depth: int) -> str:
    start, end, width, children = node
    if width == 3 or depth >= MAX_DEPTH:
        return ""
    start += 2
    end -= 2
    name_end = _NAME_END.search(text, start, end)
    # A name that contains a template is unknown: it ends at those braces, and no rule matches.
    stop = name_end.start() if name_end else end
    if children and children[0][0] < stop:
        stop = children[0][0]
    name = text[start:stop]
    colon = name.find(":")
    if colon > 0:
        rule = lookup(_canonical(name[: colon + 1]))
        if rule is not None:
            stop = start + colon + 1
    else:
        rule = lookup(_canonical(name))
    if rule is None:
        return ""
    body = _splice(text, stop, end, children, lookup, depth + 1) if children else text[stop:end]
    if colon > 0:
        body = "|" + body
    return rule(parse(body))


def _canonical(name: str) -> str:
    name = name.strip()
    if "_" in name:
        name = name.replace("_", " ")
    return name.lower()
