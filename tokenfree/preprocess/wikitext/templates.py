"""Expand templates by the definitions of their wiki; without one, by a rule or by a guess from the call.

Braces are matched with one stack over the text. Definitions are compiled once and kept, so a call costs what
it shows. Work is bounded by counting, not by time: the same page gives the same text on every machine.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from tokenfree.preprocess.records import Site
from tokenfree.preprocess.wikitext.markup import (
    BEFORE_GONE,
    GONE,
    drop_closed_tables,
    drop_hidden,
    included_part,
    resolve_entities,
    set_aside,
    table_spans,
)
from tokenfree.preprocess.wikitext.parser_functions import (
    CONTROL,
    FUNCTIONS,
    VARIABLES,
    Function,
    NeedsLuaError,
    error,
)

# Names of calls by what became of them: `definition`, `rule`, `fallback`, `dropped`, `limit`.
Rule = Callable[[dict[str, str]], str]
Lookup = Callable[[str], "Rule | None"]
# A matched pair of braces: first character, first character after it, number of braces on a side, pairs
# inside it.
Node = tuple[int, int, int, "list[Node]"]

# MediaWiki's own limits: templates in templates, characters that templates and their arguments give, and
# nodes of a page. The depth of calls of any kind bounds the stack of this process.
MAX_TEMPLATES = 40
MAX_DEPTH = 100
MAX_EXPANDED = 2 << 20
MAX_NODES = 100_000
MAX_NAMES = 50_000  # of templates, kept in each process
MAX_EXPANSIONS = 10_000  # kept in each process, of short calls
MAX_KEPT = 300  # characters of such a call and its expansion
MAX_CACHED_CHARACTERS = 8 << 20  # of definitions, in each process

# Two patterns, because `re` searches for a literal several times as fast as for one of two.
_BRACES = (re.compile(r"\{\{+"), re.compile(r"\}\}+"))
_NO_CHILDREN: list[Node] = []


def positional(arguments: dict[str, str]) -> list[str]:
    """Return the unnamed arguments in order, up to the first missing one, without outer white space."""
    values = []
    while (value := arguments.get(str(len(values) + 1))) is not None:
        values.append(value.strip())
    return values


def get(arguments: dict[str, str], *names: str) -> str:
    for name in names:
        value = arguments.get(name)
        if value and (value := value.strip()) and value != GONE:
            return value
    return ""


def show_nothing(arguments: dict[str, str]) -> str:
    """Return an empty text: the rule of templates that are no running text."""
    return ""


def match_braces(text: str) -> list[Node]:
    """Return the outermost matched pairs in order, each with those inside it.

    Unmatched braces are in none.
    """
    # Runs of opening braces: position, number not yet matched.
    opened: list[list[int]] = []
    done: list[Node] = []
    for start, end in sorted(
        span for braces in _BRACES for span in map(re.Match.span, braces.finditer(text))
    ):
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


class Call(NamedTuple):
    """`{{name|value|name=value}}`, or `{{function:name|value}}`."""

    name: "Pieces"
    arguments: "tuple[tuple[Pieces | None, Pieces], ...]"
    function: Function | None = None


class Parameter(NamedTuple):
    """`{{{name|default}}}`."""

    name: "Pieces"
    default: "Pieces | None"


Pieces: TypeAlias = "str | tuple[str | Call | Parameter, ...]"


def compile_text(text: str) -> Pieces:
    return _pieces(text, 0, len(text), match_braces(text), 0) if "{{" in text else text


def _pieces(text: str, start: int, end: int, children: list[Node], depth: int) -> Pieces:
    if not children:
        return text[start:end]
    pieces: list[str | Call | Parameter] = []
    for node in children:
        if node[0] > start:
            pieces.append(text[start : node[0]])
        pieces.append(compile_node(text, node, depth))
        start = node[1]
    if start < end:
        pieces.append(text[start:end])
    return tuple(pieces)


def compile_node(text: str, node: Node, depth: int = 0) -> "Call | Parameter":
    start, end, width, children = node
    if depth > MAX_DEPTH:
        return Parameter("", "")
    (_, name), *rest = _arguments(text, start + width, end - width, children, width == 2, depth + 1)
    return _call_of(name, tuple(rest)) if width == 2 else Parameter(name, rest[0][1] if rest else None)


def _call_of(name: Pieces, arguments: "tuple[tuple[Pieces | None, Pieces], ...]") -> Call:
    head = name if isinstance(name, str) else name[0] if isinstance(name[0], str) else ""
    if ":" in head:
        prefix, _, first = _SUBST.sub("", head).partition(":")
        function = FUNCTIONS.get(prefix.strip().lower())
        if function is not None:
            return Call(first if isinstance(name, str) else (first, *name[1:]), arguments, function)
    return Call(name.strip() if isinstance(name, str) else name, arguments)


def _has_open_link(pieces: Pieces) -> bool:
    return isinstance(pieces, str) and pieces.rfind("[[") > pieces.rfind("]]") and "\n" not in pieces


_SUBST = re.compile(r"\s*(?:safesubst|subst|msgnw|msg|raw)\s*:\s*", re.IGNORECASE)
_SEPARATOR = re.compile(r"\[\[|\]\]|[|=]")


def _arguments(
    text: str, start: int, end: int, children: list[Node], named: bool, depth: int
) -> "list[tuple[Pieces | None, Pieces]]":
    """Split at the pipes outside links and other braces; with `named`, arguments at their first equals sign."""
    if not children and text.find("[[", start, end) < 0:
        head, *parts = text[start:end].split("|")
        arguments: list[tuple[Pieces | None, Pieces]] = [(None, head)]
        for part in parts:
            name, equals, value = part.partition("=")
            arguments.append((name, value) if equals and named else (None, part))
        return arguments
    arguments = []
    name: Pieces | None = None
    links, begin, first = 0, start, 0  # `first` child of the current argument
    position, number = start, 0
    while True:
        gap_end = children[number][0] if number < len(children) else end
        for token in _SEPARATOR.finditer(text, position, gap_end):
            kind = token[0]
            if kind == "[[":
                links += 1
            elif kind == "]]":
                links = max(0, links - 1)
            elif links:
                continue
            elif kind == "|" or (named and name is None and arguments):
                pieces = _pieces(text, begin, token.start(), children[first:number], depth)
                begin, first = token.end(), number
                if kind == "=":
                    name = pieces
                else:
                    arguments.append((name, pieces))
                    name = None
        if number == len(children):
            break
        position = children[number][1]
        number += 1
    arguments.append((name, _pieces(text, begin, end, children[first:], depth)))
    return arguments


class Definition(NamedTuple):
    """A template of a wiki, compiled."""

    key: str
    pieces: Pieces
    hidden: bool  # everything that it can show stays out, such as an infobox
    needs_lua: bool


_REDIRECT = re.compile(r"\s*#\s*[^\W\d_]{3,20}\s*:?\s*\[\[\s*:?([^\]|#\n]+)")
_SPACES = re.compile(r"[\s_]+")
_LUA_NAMES = "|".join(name for name, function in FUNCTIONS.items() if function is FUNCTIONS["#invoke"])
_LUA = re.compile(rf"[{{:]\s*(?:{_LUA_NAMES})\s*:", re.IGNORECASE)


def title_key(title: str, site: Site, namespace: int = 0) -> str:
    """Return `NUMBER:Name` of a page whose name may lack the prefix of `namespace`."""
    title = _SPACES.sub(" ", title).strip()
    if title.startswith(":"):
        namespace, title = 0, title[1:].lstrip()
    if ":" in title and (number := site.namespace_of(title)):
        namespace, title = number, title.partition(":")[2].lstrip()
    return f"{namespace}:{title[:1].upper()}{title[1:]}"


def absolute(name: str, title: str) -> str:
    """Return the full title that a name such as `/sub` or `../sibling` stands for on a page, or the name."""
    above = (len(name) - len(name.lstrip("./"))) // 3 if name.startswith("../") else 0
    levels = title.split("/")
    if above >= len(levels) or not (above or name.startswith("/")):
        return name
    path, hash_mark, fragment = name[3 * above :].partition("#")
    return "/".join([*levels[: len(levels) - above], *filter(None, [path.strip("/")])]) + hash_mark + fragment


class Definitions:
    """The templates of a wiki by `title_key`, read from `texts` and kept compiled as long as they fit."""

    def __init__(self, texts: Mapping[str, str], site: Site) -> None:
        self.site = site
        self._texts = texts
        self._compiled: dict[str, Definition | None] = {}
        self._named: dict[str, Definition | None] = {}
        self.kinds: dict[str, str] = {}  # of calls by name, see PageExpansion._kind
        # What calls with the same source show on any page: text, nodes and characters.
        self.expansions: dict[str, tuple[str, int, int]] = {}
        self._characters = 0
        prefixes = (name for key in (6, 14) for name in site.namespaces.get(key, ()) if name)
        self._hidden_link = re.compile(
            rf"\[\[\s*(?:{'|'.join(map(re.escape, prefixes))})\s*:[^\[\]]*\]\]", re.IGNORECASE
        )

    @classmethod
    def of_titles(cls, texts: Mapping[str, str], site: Site) -> "Definitions":
        """Return the templates of a mapping by full titles, with the namespace in any spelling."""
        return cls({title_key(title, site): text for title, text in texts.items()}, site)

    def __contains__(self, key: str) -> bool:
        return key in self._texts

    def named(self, name: str, title: str) -> Definition | None:
        if name[0] in "./":
            full = absolute(name, title)
            return self._find(title_key(full, self.site, 10 if full == name else 0))
        if name in self._named:
            return self._named[name]
        definition = self._find(title_key(name, self.site, 10))
        self._characters += 100
        self._named[name] = definition
        return definition

    def _find(self, key: str) -> Definition | None:
        if key in self._compiled:
            return self._compiled[key]
        if self._characters > MAX_CACHED_CHARACTERS:
            self._compiled.clear()
            self._named.clear()
            self.kinds.clear()
            self._characters = 0
        self._compiled[key] = None  # while it is compiled, a template does not contain itself
        text = self._texts.get(key)
        target = _REDIRECT.match(text) if text else None
        if target is not None:
            key_of_target = title_key(target[1], self.site)
            text = self._texts.get(key_of_target)
            definition = None
            if text is not None and not _REDIRECT.match(text):
                definition = self._compile(key_of_target, text)
        else:
            definition = None if text is None else self._compile(key, text)
        self._compiled[key] = definition
        return definition

    def _compile(self, key: str, text: str) -> Definition:
        self._characters += len(text)
        included = set_aside(included_part(text), transcluded=True)
        pieces = compile_text(included)
        return Definition(key, pieces, not self._may_show(pieces), _LUA.search(included) is not None)

    def _may_show(self, pieces: Pieces) -> bool:
        """Return whether any arguments give more than tables, boxes and links to categories."""
        texts = ["\n"]
        for piece in (pieces,) if isinstance(pieces, str) else pieces:
            if isinstance(piece, str):
                texts.append(piece)
            elif isinstance(piece, Parameter):
                texts.append(_ANY_TEXT)
            elif piece.function in CONTROL:
                texts.append(_ANY_TEXT if any(self._may_show(value) for _, value in piece.arguments) else "")
            elif piece.name == "!" and not piece.arguments:
                texts.append("|")
            else:
                name = piece.name if isinstance(piece.name, str) and piece.function is None else ""
                definition = self.named(name, "") if name and not _NO_NAME.search(name) else None
                texts.append("" if definition is not None and definition.hidden else _ANY_TEXT)
        rest = drop_closed_tables(drop_hidden("".join(texts)) + "\n")
        return bool(self._hidden_link.sub("", rest).strip(" \t\n" + GONE))


_ANY_TEXT = "x"


class _Unexpanded(NamedTuple):
    value: Pieces
    trimmed: bool


class Frame:
    """The arguments of one call of a template, expanded when they are first used."""

    __slots__ = ("arguments", "parent", "titles")

    def __init__(self, call: Call, parent: "Frame | None", page: "PageExpansion", key: str) -> None:
        self.parent = parent
        self.titles: tuple[str, ...] = (*(parent.titles if parent else ()), key)
        self.arguments: dict[str, str | _Unexpanded] = {}
        numbers = itertools.count(1)
        for name, value in call.arguments:
            if name is None:
                self.arguments[str(next(numbers))] = (
                    value if isinstance(value, str) else _Unexpanded(value, False)
                )
            else:
                key = (name if isinstance(name, str) else page.expand(name, parent)).strip()
                self.arguments[key] = value.strip() if isinstance(value, str) else _Unexpanded(value, True)

    def get(self, name: str, page: "PageExpansion") -> str | None:
        value = self.arguments.get(name)
        if value is None or isinstance(value, str):
            return value
        text = page.expand(value.value, self.parent)
        self.arguments[name] = text = text.strip() if value.trimmed else text
        return text


class LimitError(Exception):
    """A call exceeds what one page may expand to."""


_STARTS_LINE = re.compile(r"[*#:;]|\{\|")
_NO_NAME = re.compile(r"[<>\[\]{}|]|^$|^(?:\.\./){4}")


class PageExpansion:
    """The expansion of the calls of one page, with its budget."""

    def __init__(
        self, site: Site, title: str, definitions: Definitions, rules: Lookup, guess: "Callable[..., str]"
    ) -> None:
        self.site = site
        self._title, self._uses_title = title, False
        self.outcomes: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._definitions = definitions
        self._rules = rules
        self._guess = guess
        self._depth = self._nodes = self._characters = 0
        self._outcome = ""

    @property
    def title(self) -> str:
        """The title of the page. An expansion that uses it is not kept for other pages."""
        self._uses_title = True
        return self._title

    def exists(self, title: str) -> bool:
        """Return whether a page exists; True for pages that the definitions do not cover."""
        key = title_key(title, self.site)
        return key in self._definitions if key.startswith("10:") else bool(title.strip())

    def replace(self, text: str) -> str:
        nodes = match_braces(text)
        if not nodes:
            return text
        pieces: list[str] = []
        position = 0
        tables = table_spans(text, [node[:2] for node in nodes])
        for node in nodes:
            while tables and tables[-1][0] < node[0]:
                if tables[-1][0] >= position:
                    pieces += (text[position : tables[-1][0]], "\n" + GONE)
                    position = tables[-1][1]
                tables.pop()
            if node[0] < position:
                continue
            pieces.append(text[position : node[0]])
            expansion = self._expansion(text, node)
            if expansion:
                pieces.append(_on_line(expansion, text[node[0] - 1 : node[0]]))
            elif node[0] and (text[node[0] - 1] in BEFORE_GONE or position == node[0]):
                pieces.append(GONE)
            position = node[1]
        pieces.append(text[position:])
        return "".join(pieces)

    def _expansion(self, text: str, node: Node) -> str:
        """Return what a call of the page shows, and count it if it stands in running text."""
        self._depth, self._outcome = 0, "definition"
        kind = self._kind(text, node) if node[2] == 2 else "text"
        inline = kind != "box" and is_inline(text, node[0], node[1])
        if kind == "nothing" and inline:
            self.outcomes["rule"] += 1
        if kind in ("box", "nothing") or (kind == "guess" and not inline):
            return ""
        source = text[node[0] : node[1]]
        expansion, nodes, characters = self._definitions.expansions.get(source, ("", MAX_NODES + 1, 0))
        if self._nodes + nodes <= MAX_NODES and self._characters + characters <= MAX_EXPANDED:
            self._nodes += nodes
            self._characters += characters
            if inline:
                self.outcomes["definition"] += 1
            return expansion
        nodes, characters, self._uses_title = self._nodes, self._characters, False
        compiled = compile_node(text, node)
        try:
            if not isinstance(compiled, Call):
                return self._parameter(compiled, None)
            expansion = self._call(compiled, None)
            if expansion is None:
                before = text[max(0, node[0] - 12) : node[0]]
                name = self._name(compiled, None)
                expansion = self._guess(name, self._values(compiled, None), before) if inline else ""
                self._outcome = "fallback" if expansion else "dropped"
        except LimitError:
            expansion, self._outcome = "", "limit"
        except NeedsLuaError:
            expansion, self._outcome = "", "dropped"
        if inline:
            self.outcomes[self._outcome] += 1
            if self._outcome in ("dropped", "limit"):
                name = text[node[0] + 2 : node[1] - 2].partition("|")[0]
                self.dropped[" ".join(name.split())[:80]] += 1
        expansion = drop_hidden(expansion) if "<" in expansion else expansion
        if (
            self._outcome == "definition"
            and not self._uses_title
            and len(source) + len(expansion) < MAX_KEPT
            and len(self._definitions.expansions) < MAX_EXPANSIONS
        ):
            self._definitions.expansions[source] = (
                expansion,
                self._nodes - nodes,
                self._characters - characters,
            )
        return expansion

    def _kind(self, text: str, node: Node) -> str:
        """Return what a call shows, as its name alone tells: text, a box, nothing (by a rule), or a guess."""
        start, end, _, children = node
        stop = children[0][0] if children else end - 2
        bar = text.find("|", start + 2, stop)
        if children and bar < 0:
            return "text"
        name = text[start + 2 : stop if bar < 0 else bar].strip()
        kind = self._definitions.kinds.get(name)
        if kind is not None:
            return kind
        kind = "text"
        if name and not _NO_NAME.search(name) and name[0] not in "#./" and not {":", "&"} & set(name):
            definition = self._definitions.named(name, "")
            if definition is not None:
                kind = "box" if definition.hidden else "text"
            elif name not in VARIABLES:
                rule = self._rules(name.replace("_", " ").lower())
                kind = "guess" if rule is None else "nothing" if rule is show_nothing else "text"
        if len(self._definitions.kinds) > MAX_NAMES:
            self._definitions.kinds.clear()
        if len(name) < 100:
            self._definitions.kinds[name] = kind
        return kind

    def expand(self, pieces: Pieces, frame: Frame | None) -> str:
        if isinstance(pieces, str):
            return pieces
        self._depth += 1
        self._nodes += len(pieces)
        if self._depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise LimitError
        texts: list[str] = []
        last = "\n"  # the end of what the call is put after
        for piece in pieces:
            if isinstance(piece, str):
                text = piece
            elif isinstance(piece, Parameter):
                text = self._parameter(piece, frame)
            else:
                text = self._call(piece, frame) or ""
                if text:
                    text = _on_line(text, last)
                elif last in BEFORE_GONE:
                    text = GONE
            if text:
                texts.append(text)
                last = text[-1]
        self._depth -= 1
        return "".join(texts)

    def _parameter(self, piece: Parameter, frame: Frame | None) -> str:
        name = piece.name.strip() if isinstance(piece.name, str) else self.expand(piece.name, frame).strip()
        value = frame.get(name, self) if frame is not None else None
        if value is None:
            return f"{{{{{{{name}}}}}}}" if piece.default is None else self.expand(piece.default, frame)
        self._count(value)
        return value

    def _count(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > MAX_EXPANDED:
            raise LimitError

    def _name(self, call: Call, frame: Frame | None) -> str:
        name = (
            call.name if isinstance(call.name, str) else self.expand(call.name, frame).strip(" \t\n" + GONE)
        )
        if "&" in name:
            name = resolve_entities(name)
        while ":" in name and (prefix := _SUBST.match(name)):
            name = name[prefix.end() :]
        return name.strip()

    def _call(self, call: Call, frame: Frame | None) -> str | None:
        if call.function is not None:
            first = call.name if isinstance(call.name, str) else self.expand(call.name, frame)
            return call.function(self, frame, first.strip(), call.arguments)
        name = self._name(call, frame)
        if not call.arguments and name in VARIABLES:
            return VARIABLES[name](self)
        if ":" in name or name.startswith("#"):
            prefix, _, first = name.partition(":")
            function = FUNCTIONS.get(prefix.lower())
            if function is not None:
                return function(self, frame, first.strip(), call.arguments)
        if _NO_NAME.search(name) or (call.arguments and _has_open_link(call.arguments[-1][1])):
            return self._literal(name, call, frame)
        definition = self._definitions.named(name, self.title if name[0] in "./" else "")
        if definition is None or definition.needs_lua:
            rule = self._rules(name.replace("_", " ").lower())
            if rule is not None:
                if not self._depth:
                    self._outcome = "rule"
                return rule(self._values(call, frame))
        return None if definition is None else self._template(definition, call, frame)

    def _literal(self, name: str, call: Call, frame: Frame | None) -> str:
        """Return braces that are no call as a reader sees them, without the braces."""
        if len(name) > 200 or "\n" in name:
            return ""
        parts = [name]
        for key, value in call.arguments:
            text = self.expand(value, frame)
            parts.append(text if key is None else f"{self.expand(key, frame)}={text}")
        return f"{{{{{'|'.join(parts)}}}}}"

    def _template(self, definition: Definition, call: Call, frame: Frame | None) -> str:
        titles = frame.titles if frame is not None else ()
        if definition.key in titles:
            return error(f"Template loop detected: {definition.key}")
        if len(titles) >= MAX_TEMPLATES:
            raise LimitError
        text = self.expand(definition.pieces, Frame(call, frame, self, definition.key))
        self._count(text)
        return text

    def _values(self, call: Call, frame: Frame | None) -> dict[str, str]:
        values: dict[str, str] = {}
        numbers = itertools.count(1)
        for name, value in call.arguments:
            if name is None:
                values[str(next(numbers))] = self.expand(value, frame)
            else:
                values[self.expand(name, frame).strip().lower()] = self.expand(value, frame).strip()
        return values


def _on_line(text: str, last: str) -> str:
    """Return what a template shows on a new line if it is a list or a table, as MediaWiki does."""
    return "\n" + text if last != "\n" and _STARTS_LINE.match(text) else text


_WORD = re.compile(r"\w")
_NEAR = 200  # characters; it bounds the work on a page of one line


def is_inline(text: str, start: int, end: int) -> bool:
    """Return whether a call stands in running text: near words on its first or last line."""
    line = text[max(0, start - _NEAR) : start].rpartition("\n")[2]
    if not _WORD.search(line) and text.find("\n", start, end) < 0:
        line = text[end : end + _NEAR].partition("\n")[0]
    return _WORD.search(line) is not None
