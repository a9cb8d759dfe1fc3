"""Texts and pairs of texts with labels, from files or datasets: the format is told by name and content, or given.

>>> read_texts("sst/stsa.fine.dev")[1]
TextExample(key='stsa.fine.dev:2', text='one long string of cliches .', second=None, label='1')
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal, get_args

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.tasks.examples.columns import PAIRS, TEXTS, Columns, ExampleTable, text_columns
from tokenfree.train.tasks.examples.example import TextExample
from tokenfree.train.tasks.examples.files import base_name, read_text, short_names, shown
from tokenfree.train.tasks.examples.huggingface import SCHEME, dataset_table
from tokenfree.train.tasks.examples.labelled_lines import labelled_lines, parallel_lines, parallel_paths
from tokenfree.train.tasks.examples.tables import csv_table, json_table, text_of, tsv_table

TextFormat = Literal["sst", "mtl-16", "parallel", "csv", "tsv", "json"]
FORMATS: tuple[TextFormat, ...] = get_args(TextFormat)
UNLABELLED, NO_GOLD_LABEL = "unlabelled", "no_gold_label"  # reasons to drop an example

_ENDINGS: dict[str, TextFormat] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "json", ".ndjson": "json", ".json": "json"}
_USUAL = {*TEXTS, *(name for pair in PAIRS for name in pair)}


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """How a file of texts is read; what is not given is told by the file."""

    format: TextFormat | None = None
    columns: Columns = dataclasses.field(default_factory=Columns)
    encoding: str | None = None  # UTF-8; of MTL-16, Windows-1252 for lines that are not
    regression: bool = False  # labels are numbers
    labels: Sequence[str] | None = None  # the only ones that are right


def read_texts(
    paths: str | Sequence[str], options: TextOptions | None = None, dropped: Counter[str] | None = None
) -> list[TextExample]:
    """The examples of files of any fsspec address or of datasets (`hf:NAME[:CONFIG][@SPLIT]`), in order.

    Either all examples have a label or none has: where some have, those without are dropped.

    Args:
        paths: one or more. Three parallel files (SNLI) are given by one of them or by what their names have in common.
        options: how they are read.
        dropped: counts what was dropped, by reason: `no_gold_label` (a pair labelled `-`), `unlabelled`.

    Raises:
        UserError: what is wrong with a file, with its line and the remedy.
    """
    options = options or TextOptions()
    dropped = Counter() if dropped is None else dropped
    given = [paths] if isinstance(paths, str) else list(paths)
    found: list[TextExample] = []
    # Of parallel files the last stands for all.
    for address, name in short_names([(parallel_paths(path) or (path,))[-1] for path in given]).items():
        found += _examples(_table(address, name, options), options, dropped)
    labelled = [example for example in found if example.label is not None]
    if labelled and len(labelled) < len(found):
        dropped[UNLABELLED] += len(found) - len(labelled)
    if not found:
        raise UserError(f"{', '.join(given) or 'data'}: no example is left; give a file with examples")
    return labelled or found


def _table(path: str, name: str, options: TextOptions) -> ExampleTable:
    if path.startswith(SCHEME):
        return dataset_table(path)
    parallel = parallel_paths(path) if options.format in (None, "parallel") else None
    if parallel:
        return parallel_lines(parallel, name, options.encoding)
    format = options.format or _format_by_name(path)
    text = "" if format in ("sst", "mtl-16") else read_text(path, options.encoding)
    format = format or _format_by_content(path, text, options.columns)
    if format == "sst" or format == "mtl-16":
        return labelled_lines(path, name, " " if format == "sst" else "\t", options.encoding)
    if format == "csv":
        return csv_table(path, name, text, options.columns)
    if format == "tsv":
        return tsv_table(path, name, text, options.columns)
    if format == "json":
        return json_table(path, name, text)
    known = "s1.NAME, s2.NAME and labels.NAME" if format == "parallel" else ", ".join(FORMATS)
    raise UserError(f"{path}: no file of the format {shown(format)}; there is {known}")


def _format_by_name(path: str) -> TextFormat | None:
    name = base_name(path).lower()
    if name.startswith("stsa."):
        return "sst"
    if ".task." in name:
        return "mtl-16"
    return next((format for ending, format in _ENDINGS.items() if name.endswith(ending)), None)


def _format_by_content(path: str, text: str, columns: Columns) -> TextFormat:
    first = next((line for line in text.split("\n") if line.strip()), "")
    usual = {name.lower() for name in columns.named} | _USUAL
    if first.startswith("{"):
        return "json"
    if "\t" in first:
        cells = first.rstrip("\r").split("\t")
        if columns.are_numbers or usual & {cell.strip().lower() for cell in cells}:
            return "tsv"
        if len(cells) == 2:
            return "mtl-16"
    elif usual & {cell.strip('" \r').lower() for cell in re.split("[,;]", first)}:
        return "csv"
    elif re.match("[0-9]+ ", first):
        return "sst"
    raise UserError(f"{path}: line 1: no known format begins with {shown(first)}; give one of {', '.join(FORMATS)}")


def _examples(table: ExampleTable, options: TextOptions, dropped: Counter[str]) -> list[TextExample]:
    text, second, label = text_columns(table, options.columns)
    examples = []
    for number, row in table.rows:
        place = table.place(number)
        for column in (text, second, label):
            if column is not None and column not in row:
                raise UserError(f"{place}: there is no {shown(column)}, which the first line has; mend it")
        if second is not None and label is not None and row[label] == "-":
            dropped[NO_GOLD_LABEL] += 1
            continue
        example = TextExample(
            table.key(number),
            text_of(row[text], place, text),
            None if second is None else text_of(row[second], place, second),
            None if label is None else _label(row[label], place, label, options),
        )
        examples.append(example)
    return examples


def _label(value: object, place: str, column: str, options: TextOptions) -> str | float | None:
    if value is None or value == "":
        return None
    if options.regression:
        return _number(value, place, column)
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        value = str(int(value))
    elif not isinstance(value, str):
        remedy = "mend it, name another column, or say that labels are numbers (regression)"
        raise UserError(f"{place}: column {shown(column)} holds {shown(value)}, no class; {remedy}")
    label = text_of(value, place, column).strip()
    if options.labels is not None and label not in options.labels:
        remedy = f"mend it, or name the right column of labels; there are {', '.join(options.labels)}"
        raise UserError(f"{place}: column {shown(column)} holds {shown(label)}, which is no label; {remedy}")
    return label


def _number(value: object, place: str, column: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, (int, float, str)) else float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        said = f"column {shown(column)} holds {shown(value)}, no number"
        raise UserError(f"{place}: {said}; mend it, or name the column of the numbers")
    return number
