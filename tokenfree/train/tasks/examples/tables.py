"""Tables of files: CSV, TSV and JSON (lines, or one list), each row with the line where it begins."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.tasks.examples.columns import Columns, ExampleTable
from tokenfree.train.tasks.examples.files import shown, split_lines, whole_characters


def csv_table(path: str, name: str, text: str, columns: Columns) -> ExampleTable:
    """Comma-separated values, quoted as in RFC 4180; semicolons or tabs part them if the first line has no comma.

    Args:
        path: for messages.
        name: of the file in the keys of examples.
        text: its content.
        columns: whether the first line holds their names.

    Raises:
        UserError: a line has another number of columns than the first, or quotation marks do not fit.
    """
    first = text.partition("\n")[0]
    delimiter = next((sign for sign in ",;\t" if sign in first), ",")
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)

    def rows() -> Iterator[tuple[int, list[str]]]:
        line = 1
        try:
            for cells in reader:
                if cells:  # an empty line is none
                    yield line, cells
                line = reader.line_num + 1
        except csv.Error as error:
            said = f'this is no CSV ({error}); write "" for a quotation mark inside a quoted value'
            raise UserError(f"{path}: line {line}: {said}") from None

    return _cells_table(path, name, rows(), columns)


def tsv_table(path: str, name: str, text: str, columns: Columns) -> ExampleTable:
    """Tab-separated values; quotation marks are characters like others, as in the files of GLUE and XNLI.

    Args:
        path: for messages.
        name: of the file in the keys of examples.
        text: its content.
        columns: whether the first line holds their names.

    Raises:
        UserError: a line has another number of columns than the first.
    """
    rows = ((line, row.split("\t")) for line, row in enumerate(split_lines(text), 1) if row)
    return _cells_table(path, name, rows, columns)


def json_table(path: str, name: str, text: str) -> ExampleTable:
    """An object a line, or one list of objects; the columns are the keys of the first.

    Args:
        path: for messages.
        name: of the file in the keys of examples.
        text: its content.

    Raises:
        UserError: a line is no JSON object.
    """
    is_list = text.lstrip().startswith("[")
    if is_list:
        rows = list(enumerate(_parse(path, text, 1), 1))
    else:
        lines = enumerate(split_lines(text), 1)
        rows = [(number, _parse(path, line, number)) for number, line in lines if line.strip()]
    if not rows:
        raise UserError(f"{path}: no example is in this file; give one with examples")
    table = ExampleTable(
        path, name, list(rows[0][1]) if isinstance(rows[0][1], dict) else [], rows, "object" if is_list else "line"
    )
    for number, value in rows:
        if not isinstance(value, dict):
            said = f"{shown(value)} is no JSON object"
            raise UserError(f'{table.place(number)}: {said}; write one such as {{"text": "...", "label": "..."}}')
    return table


def text_of(value: object, place: str, column: str) -> str:
    """A value that must be text, of whole characters (see `whole_characters`).

    Raises:
        UserError: it is no text.
    """
    if not isinstance(value, str):
        raise UserError(
            f"{place}: column {shown(column)} holds {shown(value)}, no text; mend it or name another column"
        )
    return whole_characters(value)


def _cells_table(path: str, name: str, rows: Iterator[tuple[int, list[str]]], columns: Columns) -> ExampleTable:
    found = list(rows)
    if not found:
        raise UserError(f"{path}: nothing is in this file; give one with examples")
    width = len(found[0][1])
    numbers = [str(number) for number in range(1, width + 1)]
    numbered = columns.are_numbers and not set(found[0][1]) & set(columns.named)
    names, found = (numbers, found) if numbered else (found[0][1], found[1:])
    if not found:
        raise UserError(f"{path}: there is no line after that of the names of columns; give a file with examples")
    for line, cells in found:
        if len(cells) != width:
            raise UserError(
                f"{path}: line {line}: {len(cells)} columns, and the first line has {width}; mend the line, or give "
                f"the format (tsv: quotation marks are plain characters, csv: they hold a value together)"
            )
    return ExampleTable(path, name, names, [(line, dict(zip(names, cells, strict=True))) for line, cells in found])


def _parse(path: str, text: str, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{path}: line {line + error.lineno - 1}"
        raise UserError(f"{place}: this is no JSON ({error.msg} at column {error.colno}); mend the line") from None
    except (ValueError, RecursionError) as error:  # numbers of too many digits, too many brackets
        raise UserError(f"{path}: line {line}: this JSON cannot be read ({error}); mend the line") from None
