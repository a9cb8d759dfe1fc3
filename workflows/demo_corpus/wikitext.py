"""Turns the plain text of Python's help topics and docstrings into the wikitext of an encyclopaedia page.

Understood are underlined titles, bullet and numbered lists, literal blocks, grid tables, definitions, footnotes, quoted
code, emphasis and references to other pages; everything else is a paragraph.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from textwrap import dedent

_BULLET = re.compile(r"(?:[*•-]|\(?\d{1,2}[.)])\s+(?=\S)")
_UNDERLINE = re.compile(r"([*=~^\"'+#-])\1{2,}$")
_FOOTNOTES = re.compile(r"^-\[ Footnotes \]-\s*$", re.MULTILINE)
_FOOTNOTE = re.compile(r"^\[(\d+)\]\s+(.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)
_CODE_LINE = re.compile(
    r">>>|\.\.\. |::=|[{};]\s*$|^\s*(def|class|if|for|while|import|from|return|print|try|with|async)\b.*[:)]"
    r"|^\s*[\w.\[\], ]+ [-+*/]?= \S|^\s*[\w.]+\(.*\)\s*$|(^|\s)#|^\s*@\w|^\s*import \w|^\s*\$ |^[ \w.]*\|"
)
_INLINE = re.compile(
    r"``(?P<literal>[^`]+?)``|(?::[\w:]+:)?`(?P<role>[^`\n]{1,80}?)`_{0,2}(?!\w)"
    r"|\"(?P<quoted>[^\s\"]{1,40}|[\w.]+\([^\"]{0,40}\))\"(?!\w)"
    r"|(?<![\w*])\*\*(?P<strong>\w[^*\n]{0,300}?)\*\*(?![\w*])"
    r"|(?<![\w*])\*(?P<emphasis>[A-Za-z][\w -]{0,40})\*(?![\w*])"
    r"|\[(?P<note>\d{1,2})\]|\bPEP (?P<pep>\d{1,4})\b|\bRFC ?(?P<rfc>\d{3,4})\b"
)
_MARKUP = re.compile(r"\[(?=\[)|(?<=\[)\[|\{(?=[{|])|(?<=\{)\{|''+|[&<>]")
_ENTITIES = {"[": "&#91;", "{": "&#123;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}


def escape(text: str) -> str:
    """`text` with everything that wikitext would take for markup written as entities."""
    return _MARKUP.sub(lambda found: _ENTITIES.get(found[0], "&#39;" * len(found[0])), text)


def to_wikitext(text: str, *, links: Mapping[str, str] | None = None, top_level: int = 2) -> str:
    """The wikitext of a plain text; `links` maps words in code style, or phrases, to titles of pages (first use only).

    Titles start at heading level `top_level`; footnotes become references, listed at the end.
    """
    return _Converter(links or {}, top_level).convert(text)


class _Converter:
    def __init__(self, links: Mapping[str, str], top_level: int) -> None:
        self.links = links
        self.top_level = top_level
        self.underlines: list[str] = []  # in the order of their first appearance: their level
        self.linked: set[str] = set()
        self.footnotes: dict[str, str] = {}
        phrases = sorted((key for key in links if " " in key), key=lambda key: (-len(key), key))
        self.phrase = re.compile(rf"\b(?:{'|'.join(map(re.escape, phrases))})\b") if phrases else None

    def convert(self, text: str) -> str:
        body, *rest = _FOOTNOTES.split(text.expandtabs())
        for number, note in _FOOTNOTE.findall("".join(rest)):
            self.footnotes[number] = note
        blocks = self.blocks(body.splitlines())
        if self.footnotes:
            blocks.append(f"{'=' * self.top_level} Footnotes {'=' * self.top_level}\n<references />")
        return "\n\n".join(blocks)

    def blocks(self, lines: list[str]) -> list[str]:
        """The wikitext of each block of lines that start at the left edge or deeper."""
        lines = dedent("\n".join(lines)).split("\n")
        blocks: list[str] = []
        literal_next = False
        at = 0
        while at < len(lines):
            line = lines[at]
            if not line.strip():
                at += 1
            elif at + 1 < len(lines) and _is_title(line, lines[at + 1]):
                blocks.append(self.heading(line.strip(), lines[at + 1][0]))
                at += 2
            elif line.startswith("+-"):
                end = _end(lines, at, lambda text: text.startswith(("+", "|")))
                blocks.append(self.table(lines[at:end]))
                at = end
            elif line.startswith(" "):
                end = _end(lines, at, lambda text: not text.strip() or text.startswith(" "))
                blocks += self.indented(lines[at:end], literal_next)
                at = end
            elif _BULLET.match(line):
                end = at + _end(lines[at + 1 :], 0, lambda text: not text.strip() or text.startswith(" ")) + 1
                self.append_item(blocks, lines[at:end])
                at = end
            elif line.startswith(">>>"):
                end = _end(lines, at, lambda text: bool(text.strip()))
                blocks.append(_code(lines[at:end], "pycon"))
                at = end
            else:
                end = _end_of_text(lines, at)
                literal_next = lines[end - 1].endswith(":")
                blocks.append(self.text(lines, at, end))
                at = end
        return blocks

    def heading(self, title: str, underline: str) -> str:
        if underline not in self.underlines:
            self.underlines.append(underline)
        marks = "=" * min(6, self.top_level + self.underlines.index(underline))
        return f"{marks} {escape(title)} {marks}"

    def text(self, lines: list[str], start: int, end: int) -> str:
        """Code that stands at the left edge, a term with its explanation below, or a paragraph."""
        own = lines[start:end]
        if len(own) > 1 and _share_of_code(own) > 0.7:
            return _code(own, "python")
        below = next((line for line in lines[end:] if line.strip()), "")
        attached = (end < len(lines) and bool(lines[end].strip())) or own[0].endswith(")")
        short = len(own) == 1 and len(own[0]) <= 60 and not own[0].endswith(":")
        return self.paragraph(own, term=short and attached and below.startswith(" "))

    def paragraph(self, lines: list[str], *, term: bool = False) -> str:
        text = self.inline(" ".join(line.strip() for line in lines)).removesuffix("::").rstrip()
        if text[:1] in {"*", "#", ":", ";", "=", "|", "!"}:
            text = f"&#{ord(text[0])};{text[1:]}"
        return f"; {text}" if term else text

    def indented(self, lines: list[str], announced: bool) -> list[str]:
        """A block under a line: code where it looks so, or else an explanation, marked as one by colons."""
        filled = [line for line in lines if line.strip()]
        code = _share_of_code(filled)
        if code > 0.5 or (announced and code):
            language = "pycon" if any(">>>" in line for line in filled) else "python"
            return [_code(lines, None if any("::=" in line for line in filled) else language)]
        return [
            f": {block}" if block[:1] not in {"*", "#", ":", ";", "=", "{", "<"} else block
            for block in self.blocks(lines)
        ]

    def append_item(self, blocks: list[str], lines: list[str]) -> None:
        """Add a list item; items that follow each other make one block, what else they hold follows the list."""
        found = _BULLET.match(lines[0])
        assert found is not None
        mark = "#" if any(character.isdigit() for character in found[0]) else "*"
        first = next((i for i, line in enumerate(lines) if i and (not line.strip() or _BULLET.match(line.strip()))), 0)
        first = first or len(lines)
        item = f"{mark} {self.paragraph([lines[0][found.end() :], *lines[1:first]])}"
        if blocks and blocks[-1][:1] == mark and "\n\n" not in blocks[-1]:
            blocks[-1] += f"\n{item}"
        else:
            blocks.append(item)
        if any(line.strip() for line in lines[first:]):
            blocks += self.indented(lines[first:], False)

    def table(self, lines: list[str]) -> str:
        """A grid table as a wikitable; its header is the row above the `+===+` or `|===|` line."""
        rows: list[tuple[bool, list[str]]] = []
        cells: list[list[str]] = []
        for line in lines:
            if set(line) <= set("+-=|"):
                if cells:
                    rows.append(("=" in line, [" ".join(filter(None, cell)) for cell in cells]))
                cells = []
                continue
            parts = [part.strip() for part in line.strip("|+").split(" |")]
            cells = cells or [[] for _ in parts]
            for cell, part in zip(cells, parts, strict=False):
                cell.append(part)
        body = []
        for is_header, row in rows:
            mark, between = ("!", " !! ") if is_header else ("|", " || ")
            body.append(f"|-\n{mark} " + between.join(self.inline(cell).replace("|", "&#124;") for cell in row))
        return '{| class="wikitable"\n' + "\n".join(body) + "\n|}"

    def inline(self, text: str) -> str:
        pieces, at = [], 0
        for found in _INLINE.finditer(text):
            pieces += [self.plain(text[at : found.start()]), self.marked(found)]
            at = found.end()
        return "".join([*pieces, self.plain(text[at:])])

    def plain(self, text: str) -> str:
        if self.phrase is None:
            return escape(text)
        pieces, at = [], 0
        for found in self.phrase.finditer(text):
            pieces += [escape(text[at : found.start()]), self.link(found[0], escape(found[0]))]
            at = found.end()
        return "".join([*pieces, escape(text[at:])])

    def marked(self, found: re.Match[str]) -> str:
        kind, text = next((kind, text) for kind, text in found.groupdict().items() if text is not None)
        if kind in {"literal", "role", "quoted"}:
            text = text.lstrip("~!.") if kind == "role" else text
            return self.link(text, f"<code>{escape(text)}</code>")
        if kind == "strong":
            return f"'''{self.inline(text)}'''"
        if kind == "emphasis":
            return f"''{escape(text)}''"
        if kind == "pep":
            return f"[https://peps.python.org/pep-{int(text):04d}/ PEP {text}]"
        if kind == "rfc":
            return f"[https://www.rfc-editor.org/rfc/rfc{text} {found[0]}]"
        return self.note(text, found[0])

    def note(self, number: str, written: str) -> str:
        text = self.footnotes.get(number)
        if text is None:
            return written
        if number in self.linked:
            return f'<ref name="note{number}" />'
        self.linked.add(number)
        return f'<ref name="note{number}">{escape(" ".join(text.split()))}</ref>'

    def link(self, key: str, shown: str) -> str:
        """A link for the first use of a known name, as encyclopaedias do."""
        title = self.links.get(key)
        if title is None or title in self.linked:
            return shown
        self.linked.add(title)
        return f"[[{title}]]" if shown == title else f"[[{title}|{shown}]]"


def _is_title(line: str, below: str) -> bool:
    return bool(_UNDERLINE.match(below) and not line.startswith(" ") and len(line) - 2 <= len(below) <= len(line) + 8)


def _share_of_code(lines: list[str]) -> float:
    return sum(bool(_CODE_LINE.search(line)) for line in lines) / len(lines)


def _end(lines: list[str], start: int, belongs: Callable[[str], bool]) -> int:
    """The first line from `start` on that does not belong."""
    return next((i for i in range(start, len(lines)) if not belongs(lines[i])), len(lines))


def _end_of_text(lines: list[str], start: int) -> int:
    """The end of the paragraph that begins at `start`: at an empty or indented line, a table, or a list item."""
    end = start + 1
    while end < len(lines) and lines[end].strip() and not lines[end].startswith((" ", "+-")):
        if _BULLET.match(lines[end]):
            break
        end += 1
    return end


def _code(lines: list[str], language: str | None) -> str:
    text = dedent("\n".join(lines)).strip("\n").rstrip()
    if language is None or "</syntaxhighlight" in text:
        return f"<pre>\n{escape(text)}\n</pre>"
    return f'<syntaxhighlight lang="{language}">\n{text}\n</syntaxhighlight>'
