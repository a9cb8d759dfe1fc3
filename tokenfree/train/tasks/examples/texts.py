"""Texts and pairs of texts with labels, from files or datasets. The format is detected or given.

Classes have the names from the dataset. A class of -1 is a missing label.

>>> read_texts("sst/stsa.fine.dev")[1]
TextExample(key='stsa.fine.dev:2', text='one long string of cliches .', second=None, label='1')
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import itertools
import math
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from tokenfree.core.errors import UserError
from tokenfree.preprocess.sources.tables import Named, open_dataset
from tokenfree.train.tasks.examples.files import (
    MAX_CHARACTERS,
    base_name,
    check_length,
    decode,
    exists,
    parse_json,
    read_lines,
    shown,
    whole_characters,
)

SCHEME = "hf:"
PARALLEL = ("s1", "s2", "labels")  # beginnings of the three files' names: premises, hypotheses, labels
PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text1", "text2"),
    ("text_a", "text_b"),
)
TEXTS = ("text", "texts", "sentence", "review", "tweet", "comment", "document", "content", "body", "premise",
         "question")  # fmt: skip
LABELS = ("label", "gold_label", "labels", "category", "class", "sentiment", "target", "score", "rating", "stars")
UNLABELLED, NO_GOLD_LABEL = "unlabelled", "no_gold_label"  # reasons to drop an example
TextFormat = Literal["sst", "mtl-16", "parallel", "csv", "tsv", "json"]
FORMATS: tuple[TextFormat, ...] = get_args(TextFormat)
_ENDINGS: dict[str, TextFormat] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "json", ".ndjson": "json", ".json": "json"}
_USUAL = {*TEXTS, *(name for pair in PAIRS for name in pair)}


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair of texts, with its label."""

    key: str  # place in the file, such as "dev.tsv:17", shown in messages and predictions; unique in the file
    text: str  # unchanged except for decoding the file format
    second: str | None = None  # second text of a pair
    label: str | float | None = None  # name of a class, or a number for regression; None: not given
    # The texts as a model of words splits them, if their case changed afterwards.
    before: tuple[str, ...] | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """Options for reading a file of texts. Options that are None are detected.

    Columns are given by name. If all given names are numbers, they count the columns of a file without a header.
    """

    format: TextFormat | None = None
    text: str | None = None
    second: str | None = None  # detected only together with the text
    label: str | None = None
    encoding: str | None = None  # None: UTF-8 or, for lines of MTL-16 that are not UTF-8, Windows-1252
    regression: bool = False  # whether labels are numbers
    labels: Sequence[str] | None = None  # the only valid labels

    @property
    def named(self) -> list[str]:
        """Columns that are given by the options."""
        return [name for name in (self.text, self.second, self.label) if name is not None]

    @property
    def are_numbers(self) -> bool:
        return bool(self.named) and all(name.isascii() and name.isdigit() for name in self.named)


class ExampleTable(NamedTuple):
    """Rows of named values."""

    source: str  # file name for messages
    names: Sequence[str]  # names of all columns in order
    rows: Sequence[tuple[int, Mapping[str, Any]]]  # number of each row, counted in `unit`s, and its values by name
    unit: str = "line"  # unit of the row numbers
    label: str = ""  # name of a dataset in keys

    def key(self, number: int) -> str:
        return f"{self.label or base_name(self.source)}:{number}"

    def place(self, number: int) -> str:
        return f"{self.source}: {self.unit} {number}"

    def usual(self, names: Iterable[str]) -> list[str]:
        """Return the columns with these names, ignoring case, in the order of `names`."""
        return [name for wanted in names for name in self.names if name.strip().lower() == wanted]

    def check(self, columns: Sequence[str | None], what: str) -> None:
        """Check that the table has each of these columns once. The first one, of `what`, must not be None.

        Raises:
            UserError: A column is missing, ambiguous or named twice.
        """
        some = [name if name.isprintable() and 0 < len(name) < 40 else shown(name) for name in self.names[:12]]
        listed = ", ".join(some) + (", ..." if len(self.names) > 12 else "")
        if columns[0] is None:
            raise UserError(f"{self.source}: no column has a usual name of {what}. Name one of {listed}.")
        given = [name for name in columns if name is not None]
        for name in given:
            count = self.names.count(name)
            if not count:
                raise UserError(f"{self.source}: no column {shown(name)}. Name one of {listed}.")
            if count > 1:
                raise UserError(f"{self.source}: {count} columns are named {shown(name)}. Rename all but one.")
        if len(set(given)) < len(given):
            raise UserError(f"{self.source}: one column is named twice ({', '.join(given)}). Name different ones.")


def read_texts(path: str, options: TextOptions | None = None, dropped: Counter[str] | None = None) -> list[TextExample]:
    """Return the examples of a file of any fsspec address or of a dataset (`hf:NAME[:CONFIG][@SPLIT]`), in order.

    Either all examples have a label or none has. If only some have a label, the others are dropped.

    Args:
        path: Address of the file or dataset. For three parallel files (SNLI), the path of one of them, or the common
            part of their names.
        options: Options for reading it.
        dropped: Counter of dropped examples by reason: `no_gold_label` (a pair labelled `-`) or `unlabelled`.

    Raises:
        UserError: The file is invalid. The message names the line and the fix.
    """
    options = options or TextOptions()
    dropped = Counter() if dropped is None else dropped
    found = _examples(_table(path, options), options, dropped)
    labelled = [example for example in found if example.label is not None]
    if labelled and len(labelled) < len(found):
        dropped[UNLABELLED] += len(found) - len(labelled)
    if not found:
        raise UserError(f"{path}: no example is left. Give a file with examples.")
    return labelled or found


def parallel_paths(path: str) -> tuple[str, ...] | None:
    """Return the three parallel files (premises, hypotheses, labels) that the path belongs to; None if it does not.

    Args:
        path: Path of one of them, such as `snli/labels.dev`, or their common part, `snli/dev`.
    """
    folder, file = posixpath.split(path)
    prefix, _, rest = file.partition(".")
    is_one = prefix in PARALLEL and rest != ""
    if not file or (not is_one and exists(path)):
        return None
    paths = tuple(posixpath.join(folder, f"{prefix}.{rest if is_one else file}") for prefix in PARALLEL)
    return paths if sum(map(exists, paths)) > 1 else None  # a single table may be named labels.csv


def _table(path: str, options: TextOptions) -> ExampleTable:
    if path.startswith(SCHEME):
        return dataset_table(path)
    parallel = parallel_paths(path) if options.format in (None, "parallel") else None
    if parallel:
        return _parallel_table(parallel, options.encoding)
    read = functools.partial(read_lines, path, options.encoding)
    format = options.format or _format_by_name(path)
    format = format or _format_by_content(path, next((line for line in read() if line.strip()), ""), options)
    if format == "parallel":
        raise UserError(f"{path}: no file of the format 'parallel'. Give s1.NAME, s2.NAME and labels.NAME.")
    if format in ("sst", "mtl-16"):
        return _labelled_lines(path, " " if format == "sst" else "\t", options.encoding)
    if format == "json":
        return json_table(path, read())
    if format == "csv":
        rows = _csv_rows(path, read(ends=True))
    else:  # quotation marks are ordinary characters, as in the files of GLUE and XNLI
        rows = ((line, row.split("\t")) for line, row in enumerate(read(), 1) if row)
    return _cells_table(path, rows, options)


def _format_by_name(path: str) -> TextFormat | None:
    name = base_name(path).lower()
    if name.startswith("stsa."):
        return "sst"
    if ".task." in name:
        return "mtl-16"
    return next((format for ending, format in _ENDINGS.items() if name.endswith(ending)), None)


def _format_by_content(path: str, first: str, options: TextOptions) -> TextFormat:
    usual = {name.lower() for name in options.named} | _USUAL
    if first.startswith("{"):
        return "json"
    if "\t" in first:
        cells = first.rstrip("\r").split("\t")
        if options.are_numbers or usual & {cell.strip().lower() for cell in cells}:
            return "tsv"
        if len(cells) == 2:
            return "mtl-16"
    elif usual & {cell.strip('" \r').lower() for cell in re.split("[,;]", first)}:
        return "csv"
    elif re.match("[0-9]+ ", first):
        return "sst"
    raise UserError(f"{path}: line 1: no known format begins with {shown(first)}. Give one of {', '.join(FORMATS)}.")


def dataset_table(address: str) -> ExampleTable:
    """Return all rows of a split, by default `train`. Rows are numbered from 0.

    Raises:
        UserError: There is no such dataset, config or split, or it is empty.
    """
    named = Named.parse(address.removeprefix(SCHEME))
    if not named.path:
        raise UserError(f"{address}: no dataset is named. Give hf:NAME[:CONFIG][@SPLIT].")
    try:
        dataset = open_dataset(named)
    except UserError as error:  # its message names an option of preprocessing
        raise UserError(f"{SCHEME}{str(error).removeprefix('hf_dataset: ')}") from error
    if not len(dataset):
        raise UserError(f"{address}: no row is in this dataset. Give another split with @SPLIT.")
    names = dataset.column_names
    columns = [_named(dataset.features[name], dataset[name][:]) for name in names]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return ExampleTable(address, names, list(enumerate(rows)), "row", named.label)


def _named(feature: Any, values: list[Any]) -> list[Any]:
    """Return the values of a column, with the names of classes, or None for a missing class."""
    import datasets

    inner = getattr(feature, "feature", None)
    if isinstance(feature, datasets.ClassLabel):
        return [None if value is None or value < 0 else feature.int2str(value) for value in values]
    if isinstance(inner, datasets.ClassLabel):
        return [value if value is None else _named(inner, value) for value in values]
    return values


def _labelled_lines(path: str, separator: str, encoding: str | None) -> ExampleTable:
    """Read one label, separator (a space in SST, a tab in MTL-16) and text per line."""
    mixed = separator == "\t" and encoding is None
    lines = _lines_of_two_encodings(path) if mixed else read_lines(path, encoding)
    rows = []
    for number, line in enumerate(lines, 1):
        label, found, text = line.partition(separator)
        if not line.strip():
            continue
        if not found or not label.strip():
            kind = "tab" if separator == "\t" else "space"
            said = f"{shown(line)} is no label, {kind} and text"
            raise UserError(f"{path}: line {number}: {said}. Fix it or give a format.")
        rows.append((number, {"label": label, "text": text}))
    return ExampleTable(path, ["label", "text"], rows)


def _lines_of_two_encodings(path: str) -> Iterator[str]:
    """Yield lines of UTF-8, and of Windows-1252 if they are not UTF-8, as in the film reviews of MTL-16."""
    for number, line in enumerate(read_lines(path, errors="surrogateescape"), 1):
        is_utf8 = line.isascii() or whole_characters(line) == line
        yield line if is_utf8 else decode(path, line.encode(errors="surrogateescape"), "cp1252", number)


def _parallel_table(paths: tuple[str, ...], encoding: str | None) -> ExampleTable:
    columns = [list(read_lines(one, encoding)) for one in paths]
    for one, lines in zip(paths, columns, strict=True):
        if len(lines) != len(columns[-1]):
            said = f"{len(lines)} lines, and {paths[-1]} has {len(columns[-1])}"
            raise UserError(f"{one}: {said}. Line n of each file must belong together.")
    names = ["premise", "hypothesis", "label"]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return ExampleTable(paths[-1], names, list(enumerate(rows, 1)))


def _csv_rows(path: str, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield rows of CSV, quoted as in RFC 4180. If the first line has no comma, semicolons or tabs separate values."""
    first = next(lines, "")
    delimiter = next((sign for sign in ",;\t" if sign in first), ",")
    csv.field_size_limit(MAX_CHARACTERS)
    # A CR inside a line ends a row too.
    ended = (
        part
        for line in itertools.chain([first], lines)
        for part in (io.StringIO(line, newline="") if "\r" in line else [line])
    )
    reader = csv.reader(ended, delimiter=delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            if cells:  # skip empty lines
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        said = f'this is no CSV ({error}). Write "" for a quotation mark inside a quoted value.'
        raise UserError(f"{path}: line {line}: {said}") from None


def _cells_table(path: str, rows: Iterator[tuple[int, list[str]]], options: TextOptions) -> ExampleTable:
    found = list(rows)
    if not found:
        raise UserError(f"{path}: this file is empty. Give one with examples.")
    names = found[0][1]
    if options.are_numbers and not set(names) & set(options.named):
        names = [str(number) for number in range(1, len(names) + 1)]
    else:
        del found[0]
    if not found:
        raise UserError(f"{path}: there is no line after the header. Give a file with examples.")
    for line, cells in found:
        if len(cells) != len(names):
            raise UserError(
                f"{path}: line {line}: {len(cells)} columns, and the first line has {len(names)}. Fix the line, or "
                "give the format (tsv: quotation marks are plain characters, csv: they hold a value together)."
            )
    return ExampleTable(path, names, [(line, dict(zip(names, cells, strict=True))) for line, cells in found])


def json_table(path: str, lines: Iterator[str]) -> ExampleTable:
    """Read one object per line, or a list of objects. The columns are the keys of the first object.

    Raises:
        UserError: A line is not a JSON object.
    """
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line and not line.isspace())
    number, line = next(numbered, (1, ""))
    unit = "object" if line.lstrip().startswith("[") else "line"
    if unit == "object":
        rows = list(enumerate(parse_json("\n".join([line, *lines]), f"{path}: line {number}"), 1))
    else:
        both = itertools.chain([(number, line)], numbered)
        rows = [(number, parse_json(line, f"{path}: line {number}")) for number, line in both]
    if not rows:
        raise UserError(f"{path}: no example is in this file. Give one with examples.")
    names = list(rows[0][1]) if isinstance(rows[0][1], dict) else []
    table = ExampleTable(path, names, rows, unit)
    for number, value in rows:
        if not isinstance(value, dict):
            said = f"{shown(value)} is no JSON object"
            raise UserError(f'{table.place(number)}: {said}. Write one such as {{"text": "...", "label": "..."}}.')
    return table


def text_of(value: object, place: str, column: str) -> str:
    """Return a value that must be text, with U+FFFD for lone surrogates.

    Raises:
        UserError: The value is not text, or it is too long.
    """
    if not isinstance(value, str):
        said = f"column {shown(column)} holds {shown(value)}, no text"
        raise UserError(f"{place}: {said}. Fix it or name another column.")
    check_length(value, f"{place}: column {shown(column)}")
    return whole_characters(value)


def _examples(table: ExampleTable, options: TextOptions, dropped: Counter[str]) -> list[TextExample]:
    text, second, label = _columns(table, options)
    examples = []
    for number, row in table.rows:
        place = table.place(number)
        for column in (text, second, label):
            if column is not None and column not in row:
                raise UserError(f"{place}: there is no {shown(column)}, which the first line has. Fix it.")
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


def _columns(table: ExampleTable, options: TextOptions) -> tuple[str, str | None, str | None]:
    """Return the columns of text, second text and label; None for a missing one."""
    text, second = options.text, options.second
    if text is None:
        pairs = [pair for pair in map(table.usual, PAIRS) if len(pair) == 2]
        if second is None and pairs:
            text, second = pairs[0]
        else:
            text = next((name for name in table.usual(TEXTS) if name != second), None)
    label = options.label if options.label is not None else next(iter(table.usual(LABELS)), None)
    table.check((text, second, label), "a text")
    assert text is not None, "it was checked"
    return text, second, label


def _label(value: object, place: str, column: str, options: TextOptions) -> str | float | None:
    if value is None or value == "":
        return None
    holds = f"{place}: column {shown(column)} holds"
    if options.regression:
        number = _number(value)
        if not math.isfinite(number):
            raise UserError(f"{holds} {shown(value)}, no number. Fix it, or name the column of the numbers.")
        return number
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        value = str(int(value))
    elif not isinstance(value, str):
        action = "Fix it, name another column, or say that labels are numbers (regression)"
        raise UserError(f"{holds} {shown(value)}, no class. {action}.")
    label = text_of(value, place, column).strip()
    if options.labels is not None and label not in options.labels:
        action = f"Fix it, or name the right column of labels. There are {', '.join(options.labels)}"
        raise UserError(f"{holds} {shown(label)}, which is no label. {action}.")
    return label


def _number(value: object) -> float:
    try:
        return math.nan if isinstance(value, bool) or not isinstance(value, (int, float, str)) else float(value)
    except (ValueError, OverflowError):
        return math.nan


class GlueTask(NamedTuple):
    """Columns of a GLUE task's texts, its labels and its metrics."""

    text: str
    second: str | None
    labels: tuple[str, ...]  # in the order of the Hugging Face Hub; empty: labels are numbers
    metrics: tuple[str, ...]  # main metric first
    positive: str | None = None  # class of the binary F1


_NLI = ("entailment", "neutral", "contradiction")
_ENTAILED = ("entailment", "not_entailment")
_SENTENCES, _PREMISE = ("sentence1", "sentence2"), ("premise", "hypothesis")
GLUE = {
    "cola": GlueTask("sentence", None, ("unacceptable", "acceptable"), ("matthews",)),
    "sst2": GlueTask("sentence", None, ("negative", "positive"), ("accuracy",)),
    "mrpc": GlueTask(*_SENTENCES, ("not_equivalent", "equivalent"), ("f1", "accuracy"), "equivalent"),
    "qqp": GlueTask("question1", "question2", ("not_duplicate", "duplicate"), ("f1", "accuracy"), "duplicate"),
    "stsb": GlueTask(*_SENTENCES, (), ("pearson", "spearman")),
    "mnli": GlueTask(*_PREMISE, _NLI, ("accuracy",)),
    "qnli": GlueTask("question", "sentence", _ENTAILED, ("accuracy",)),
    "rte": GlueTask(*_SENTENCES, _ENTAILED, ("accuracy",)),
    "wnli": GlueTask(*_SENTENCES, ("not_entailment", "entailment"), ("accuracy",)),
    "ax": GlueTask(*_PREMISE, _NLI, ("matthews",)),  # the diagnostic set, evaluated with a model of mnli
}
