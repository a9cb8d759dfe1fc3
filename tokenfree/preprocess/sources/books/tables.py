"""Documents in tables (JSON lines, Parquet, datasets): a text and, if there, id, language and title of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.records.document import Failure
from tokenfree.preprocess.records.input_split import InputSplit
from tokenfree.preprocess.records.page import Page
from tokenfree.preprocess.sources.books import huggingface as hf
from tokenfree.preprocess.sources.books.json_lines import RAW_BYTES, json_rows
from tokenfree.preprocess.sources.books.table_columns import TableColumns
from tokenfree.preprocess.sources.inputs.files import InputFile, open_input
from tokenfree.preprocess.sources.inputs.languages import LANGUAGE_TAG

BATCH_ROWS = 64
_SURROGATES = re.compile("[\ud800-\udfff]")


def num_row_groups(file: InputFile, columns: TableColumns) -> int:
    """How many row groups a Parquet file has.

    Raises:
        UserError: it is no Parquet file, or has no such columns.
    """
    try:
        with open_input(file.path) as opened:
            table = pq.ParquetFile(opened)
            schema, groups = table.schema_arrow, table.num_row_groups
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"books: {file.path} is no readable Parquet file: {str(error).splitlines()[0]}") from error
    columns.check(schema, f"books: {file.path}")
    return groups


def read_table(split: InputSplit) -> Iterator[Page | Failure]:
    """The documents of a part of a table, streamed; a failure for each line or row that is none.

    Reasons: bad_json, missing_text, too_large, damaged_stream, truncated, trailing_garbage. An id is `books:NAME:ID`,
    where ID is the document's own `id`, or else the line's byte offset (of a compressed file: in what it holds), or row
    group and row, or the row of the dataset.

    Raises:
        OSError: the file cannot be opened or read.
    """
    rows: Iterator[tuple[str, Mapping[str, Any] | Failure]] = _ROWS[split.format](split)
    name, language, columns = split.names[0], split.languages[0], TableColumns.of(split)
    for position, row in rows:
        if isinstance(row, Failure):
            yield row
            continue
        text = row.get(columns.text)
        own_id = row.get(columns.id)
        identity = f"books:{name}:{position if own_id is None else _clean(str(own_id))}"
        if not isinstance(text, str):
            yield Failure(identity, "missing_text", _clean(str(row))[:RAW_BYTES])
            continue
        told = row.get(columns.language)
        trusted = not split.language_given and isinstance(told, str) and LANGUAGE_TAG.fullmatch(told)
        title = row.get("title")
        yield Page(
            id=identity,
            language=told if trusted and isinstance(told, str) else language,
            title=_clean(title) if isinstance(title, str) else "",
            text=_clean(text),
        )


def _clean(text: str) -> str:
    """JSON can escape lone surrogates, which no UTF-8 can hold."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _parquet_rows(split: InputSplit) -> Iterator[tuple[str, Mapping[str, Any] | Failure]]:
    with open_input(split.inputs[0]) as file:
        table = pq.ParquetFile(file)
        columns = TableColumns.of(split).among(table.schema_arrow.names)
        for group in range(split.start, split.end):
            row = 0
            try:
                for batch in table.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns):
                    for values in batch.to_pylist():
                        yield f"{group}.{row}", values
                        row += 1
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                # Arrow raises plain OSErrors over content; those of the file system carry a number.
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                position = f"{group}.{row}"
                yield position, Failure(f"books:{split.names[0]}:{position}", "damaged_stream", str(error)[:1000])


_ROWS: Mapping[str, Callable[[InputSplit], Iterator[tuple[str, Any]]]] = {
    "jsonl": json_rows,
    "parquet": _parquet_rows,
    "hf": hf.read_rows,
}
