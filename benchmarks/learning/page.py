"""Writes the tables into a page, between two marks, so that no figure on it is typed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.local_files import write_atomically

BEGIN = "<!-- written by `python -m benchmarks.learning --table docs/learning.jsonl --write docs/results.md` -->"
END = "<!-- end of what is written -->"


def write(page: Path, text: str, begin: str = BEGIN) -> None:
    """Replace what stands between the marks `begin` and `END` of a page; the rest of it stays as it is.

    Raises:
        UserError: there is no such page, or it has not each mark once, in this order.
    """
    write_atomically(page, replaced(page, text, begin))


def replaced(page: Path, text: str, begin: str = BEGIN) -> str:
    """The page with `text` between the marks.

    Raises:
        UserError: as `write`.
    """
    try:
        before = page.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"--write {page}: {error.strerror}; name a page that has the marks") from None
    marks = [before.count(mark) for mark in (begin, END)]
    if marks != [1, 1] or before.index(begin) > before.index(END):
        raise UserError(f"--write {page}: has not the marks, each once on a line of its own: {begin} and {END}")
    head, rest = before.split(begin)
    return f"{head}{begin}\n\n{text.strip()}\n\n{END}{rest.split(END)[1]}"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """The lines of a table."""
    above, *below = (f"| {' | '.join(map(str, cells))} |" for cells in (head, *rows))
    return [above, f"|{'|'.join('---' for _ in head)}|", *below]
