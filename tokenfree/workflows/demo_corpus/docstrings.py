"""The books of the demo corpus: the English prose in the docstrings of Python's standard library and some packages.

Sources are read as text, so no module is imported. What an installation lacks is missing from the books.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sysconfig
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

# Dependencies with long docstrings, by name: the folders of their modules, in the order in which they fill the corpus.
PACKAGES = {
    "numpy": "numpy",
    "scipy": "scipy",
    "scikit-learn": "sklearn",
    "matplotlib": "matplotlib",
    "apache-beam": "apache_beam",
    "ray": "ray",
    "torch": "torch",
}
BOOK_CHARACTERS = 1500  # the least; what a module says in fewer has hardly any context
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data", "turtledemo"}
_LEFT_OUT |= {"_vendor", "_vendored", "thirdparty", "externals", "testing"}

_OPENING = re.compile(r"^[ \t]*[rR]?(\"\"\"|''')", re.MULTILINE)
_ITEM = re.compile(r"(?:[*•-]|\(?\d{1,2}[.)]|\*{0,2}[\w.]+(?: ?\([^)]*\))?:)\s+(?=\S)")
_MARKUP = re.compile(r"(?::[\w:]+:)?`~?\.?([^`<\n]+?)(?: ?<[^>`]*>)?`_{0,2}|(?<!\w)\*\*?([A-Za-z][\w -]*)\*\*?(?!\w)")
_WORD = re.compile(r"[a-z']+")
_SIGN = re.compile(r"[^A-Za-z ,.']")
_CODE = re.compile(r"\w[._/]\w|\w\(|[=<>{}\[\]\\|`*@#$%^~]|--|\d\.\d|[a-z][A-Z]|\b[A-Z]{4,}\b")
_COMMON = re.compile(
    r"\b(?:the|an?|of|to|is|in|and|or|be|this|that|for|if|it|are|with|as|not|by|on|from|at|will|can|was|were|which"
    r"|when|should|must|you)\b"
)
_HEAD = re.compile(r"[.:?!]$|^\s*\*{0,2}[\w, *]+ : ")
_END = re.compile(r"[.?!][)\"']?\s*$")


def books() -> Iterator[tuple[str, str]]:
    """The name and the text of each book. No paragraph comes twice."""
    seen: set[str] = set()
    for name, texts in chain(_topics(), _modules()):
        if sum(map(len, texts)) < BOOK_CHARACTERS:
            continue
        found = [prose for text in texts for prose in paragraphs(text) if not (prose in seen or seen.add(prose))]
        book = "\n".join(found)
        if len(book) >= BOOK_CHARACTERS:
            yield name, book


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs and list items of a docstring that are English sentences, each in one line, without markup."""
    block: list[str] = []
    for line in (*text.expandtabs().splitlines(), ""):
        stripped = line.strip()
        if block and (not stripped or _ITEM.match(stripped) or _is_apart(block[-1], line)):
            if prose := _prose(block):
                yield prose
            block = []
        if stripped:
            block.append(line)


def _is_apart(above: str, line: str) -> bool:
    """Whether a line begins another block than the line above it, by its indentation."""
    indented = len(above.lstrip()) - len(above) + len(line) - len(line.lstrip())
    return indented < 0 or (indented > 0 and bool(_HEAD.search(above)))


def _prose(block: list[str]) -> str | None:
    if not _END.search(block[-1], max(0, len(block[-1].rstrip()) - 2)):  # most blocks: headings, types and code
        return None
    text = " ".join(" ".join(block).split())
    text = _ITEM.sub("", text, count=1) if _ITEM.match(text) else text
    if "`" in text or "*" in text:
        text = _MARKUP.sub(lambda found: found[1] or found[2], text.replace("``", "`"))
    if not text[0].isupper() or not text.isascii():
        return None
    words = _WORD.findall(text.lower())
    is_prose = (
        len(words) >= 6
        and len(_SIGN.findall(text)) <= 0.05 * len(text)
        and len(_COMMON.findall(text.lower())) >= 0.25 * len(words)
        and len(_CODE.findall(text)) <= 0.04 * len(words)
    )
    return text if is_prose else None


def _topics() -> Iterator[tuple[str, list[str]]]:
    """The interpreter's help topics. Some installations, such as Debian's `python3-minimal`, have none."""
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        return
    for name in sorted(topics, key=lambda name: (len(topics[name]), name)):  # long topics hold short ones
        yield f"help-{name}", [re.sub(r'"([^"\s]+)"', r"\1", topics[name])]


def _modules() -> Iterator[tuple[str, list[str]]]:
    """The docstrings of each module."""
    for root, prefix in [(Path(sysconfig.get_path("stdlib")), ""), *_packages()]:
        for path in sorted(root.rglob("*.py"), key=lambda path: path.as_posix()):
            parts = path.relative_to(root).with_suffix("").parts
            if _LEFT_OUT.isdisjoint(parts):
                source = path.read_text(encoding="utf-8", errors="replace")
                name = ".".join((*prefix.split(), *parts)).removesuffix(".__init__")
                yield name, list(_docstrings(source))


def _docstrings(source: str) -> Iterator[str]:
    """The strings in three quotes that begin a line."""
    end = 0
    while found := _OPENING.search(source, end):
        close = source.find(found[1], found.end())
        if close >= 0:
            yield source[found.end() : close]
        end = max(close + 3, found.end())


def _packages() -> Iterator[tuple[Path, str]]:
    for name in PACKAGES.values():
        spec = importlib.util.find_spec(name)
        for folder in (spec and spec.submodule_search_locations) or ():
            yield Path(folder), name
