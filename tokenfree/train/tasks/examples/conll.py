"""A word and its tag a line, an empty line between sentences: CoNLL, BIO, IOB2, CoNLL-U (Universal Dependencies)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.tasks.examples.files import shown

CONLLU_COLUMNS = 10
_BLANK = " \t\ufeff"  # a byte order mark may stand in the middle where files were joined
_DOCUMENT = "-DOCSTART-"  # of CoNLL-2003: a line that is no sentence
_NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")  # of CoNLL-U: a range of words, or a word that the text has not


class Sentence(NamedTuple):
    """The lines of a sentence, without comments."""

    lines: list[int]  # the number of each
    rows: list[list[str]]  # and its columns


class Layout(NamedTuple):
    """How the lines of a file are divided, and what its columns hold (counted from 0)."""

    separator: str
    has_comments: bool  # else # is a word
    word: int
    tag: int  # -1: the last


def layout_of(lines: list[str], format: str | None, word_column: int | None, tag_column: int | None) -> Layout:
    """The layout of a file, from its lines.

    A first column that counts words from 1 is no word, and then lines that begin with # are comments. Columns stand
    between tabs where there are any, else between spaces.

    Args:
        lines: of the file.
        format: `conllu` or `conll`; None: CoNLL-U is told by its ten columns.
        word_column: of the words, counted from 1; by default the first, or the second after a counter.
        tag_column: of the tags; by default the last, the one after the words after a counter, UPOS of CoNLL-U.
    """
    separator = "\t" if any("\t" in line.strip(_BLANK) for line in lines) else " "
    first = _first_sentence(lines, separator)
    numbers = [row[0] for row in first if not _NO_WORD.fullmatch(row[0])]
    counts = len(first[0]) > 2 and numbers == [str(number) for number in range(1, len(numbers) + 1)]
    counted = counts or format == "conllu"
    is_conllu = format == "conllu" or (format is None and counts and len(first[0]) == CONLLU_COLUMNS)
    word = word_column - 1 if word_column else int(counted)
    if tag_column:
        return Layout(separator, counted, word, tag_column - 1)
    return Layout(separator, counted, word, 3 if is_conllu else 2 if counted else -1)


def sentences(path: str, lines: list[str], layout: Layout) -> Iterator[Sentence]:
    """The sentences of a file. Lines of CoNLL-U for ranges of words and for words that are not there are left out.

    Raises:
        UserError: a line lacks a column, or the sentences' own numbers of columns differ.
    """
    sentence, width = Sentence([], []), 0
    for number, line in enumerate([*lines, ""], 1):
        if not line.strip(_BLANK):
            if sentence.rows:
                yield sentence
            sentence = Sentence([], [])
            continue
        if layout.has_comments and line.startswith("#"):
            continue
        row = line.split(layout.separator) if layout.separator == "\t" else line.rstrip(" ").split(layout.separator)
        if row[0] == _DOCUMENT or (layout.has_comments and _NO_WORD.fullmatch(row[0])):
            continue
        width = width or len(row)
        _check_row(path, number, line, row, layout, width)
        sentence.lines.append(number)
        sentence.rows.append(row)


def _check_row(path: str, number: int, line: str, row: list[str], layout: Layout, width: int) -> None:
    place = f"{path}: line {number}"
    if len(row) != width:
        what = "column" if len(row) == 1 else "columns"
        raise UserError(f"{place}: {len(row)} {what} in {shown(line)}, and the first word has {width}; mend the line")
    tag = width - 1 if layout.tag < 0 else layout.tag
    for column, what in ((layout.word, "word"), (tag, "tag")):
        if column >= width:
            raise UserError(f"{place}: there is no column {column + 1} for the {what}, only {width}; give another one")
        if not row[column].strip():
            raise UserError(f"{place}: the {what} in column {column + 1} of {shown(line)} is empty; mend the line")
    if layout.word == tag:
        remedy = "give the columns of words and tags, or a file of two columns at least"
        raise UserError(f"{place}: words and tags are both column {layout.word + 1} of {shown(line)}; {remedy}")


def _first_sentence(lines: list[str], separator: str) -> list[list[str]]:
    """The columns of the first sentence's lines, without what would be comments; one empty column if there is none."""
    rows: list[list[str]] = []
    for line in lines:
        if line.strip(_BLANK) and not line.startswith("#"):
            rows.append(line.split(separator))
        elif rows and not line.startswith("#"):
            break
    return rows or [[""]]
