"""Writes the tables into a page, between two marks, so that no figure on it is typed by hand."""

from __future__ import annotations

from pathlib import Path

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.local_files import write_atomically

BEGIN = "<!-- written by `python -m benchmarks.learning --table docs/learning.jsonl --write docs/results.md` -->"
END = "<!-- end of what is written -->"


def write(page: Path, text: str) -> None:
    """Replace what stands between the marks `BEGIN` and `END` of a page; the rest of it stays as it is.

    Raises:
        UserError: there is no such page, or it has not each mark once, in this order.
    """
    write_atomically(page, replaced(page, text))


def replaced(page: Path, text: str) -> str:
    """The page with `text` between the marks.

    Raises:
        UserError: as `write`.
    """
    try:
        before = page.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"--write {page}: {error.strerror}; name a page that has the marks") from None
    marks = [before.count(mark) for mark in (BEGIN, END)]
    if marks != [1, 1] or before.index(BEGIN) > before.index(END):
        raise UserError(f"--write {page}: has not the marks, each once on a line of its own: {BEGIN} and {END}")
    head, rest = before.split(BEGIN)
    return f"{head}{BEGIN}\n\n{text.strip()}\n\n{END}{rest.split(END)[1]}"
