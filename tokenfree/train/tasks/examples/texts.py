"""Texts and pairs of texts with labels, from files or datasets; the format is detected or given.

Classes have the names that the dataset gives them; its -1 is a missing label.

>>> read_texts("sst/stsa.fine.dev")[1]
TextExample(key='stsa.fine.dev:2', text='one long string of cliches .', second=None, label='1')
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import itertools
import json
import math
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args

from tokenfree.core.errors import UserError
from tokenfree.preprocess.sources.tables import Named, open_dataset
from tokenfree.train.tasks.examples.files import (
    MAX_CHARACTERS,
    base_name,
    check_length,
    decode,
    exists,
    read_lines,
    short_names,
    shown,
    whole_characters,
)


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair of texts, with its label."""

    key: str  # where it stands, such as "dev.tsv:17"; unique in its file, shown in messages and in predictions
    text: str  # without changes but for the decoding of the file's own format
    second: str | None = None  # of a pair
    label: str | float | None = None  # a class by name, or a number for regression; None: not given
    # The texts as a model of words splits them, where their case changed afterwards.
    before: tuple[str, ...] | None = dataclasses.field(default=None, repr=False)


PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text1", "text2"),
    ("text_a", "text_b"),
)


TEXTS = (
    "text",
    "texts",
    "sentence",
    "review",
    "tweet",
    "comment",
    "document",
    "content",
    "body",
    "premise",
    "question",
)


LABELS = ("label", "gold_label", "labels", "category", "class", "sentiment", "target", "score", "rating", "stars")


WORDS = ("tokens", "words", "forms")


TAGS = ("ner_tags", "tags", "pos_tags", "upos", "labels")


@dataclasses.dataclass(frozen=True)
class Columns:
    """The names of columns; None: guessed. Numbers from 1 are columns of a file without a line of names."""

    text: str | None = None
    second: str | None = None  # guessed only together with the text
    label: str | None = None

    @property
    def named(self) -> list[str]:
        """The names that were given."""
        return [name for name in (self.text, self.second, self.label) if name is not None]

    @property
    def are_numbers(self) -> bool:
        """Whether all that are named are numbers, so that the first line of a file is an example."""
        return bool(self.named) and all(name.isascii() and name.isdigit() for name in self.named)


@dataclasses.dataclass(frozen=True)
class ExampleTable:
    """Rows of named values."""

    source: str  # the file, for messages
    name: str  # of the file in the keys of examples
    names: Sequence[str]  # of all columns, in order
    rows: Iterable[tuple[int, Mapping[str, Any]]]  # where each begins, and its values by name
    unit: str = "line"  # what is counted

    def key(self, number: int) -> str:
        """The key of the example of a row."""
        return f"{self.name}:{number}"

    def place(self, number: int) -> str:
        """Where a row stands, for messages."""
        return f"{self.source}: {self.unit} {number}"


def text_columns(table: ExampleTable, columns: Columns) -> tuple[str, str | None, str | None]:
    """The columns of text, second text and label in this table; None where it has none.

    Raises:
        UserError: a named one is not there, none has a usual name, or two have the name.
    """
    text, second = columns.text, columns.second
    if text is None:
        pairs = [pair for pair in (_first(table, [one, other]) for one, other in PAIRS) if len(pair) == 2]
        if second is None and pairs:
            text, second = pairs[0]
        else:
            text = next(iter(name for name in _first(table, TEXTS) if name != second), None)
    label = columns.label if columns.label is not None else next(iter(_first(table, LABELS)), None)
    if text is None:
        raise UserError(f"{table.source}: no column has a usual name of a text; name one of {_list(table.names)}")
    check_columns(table, [name for name in (text, second, label) if name is not None])
    return text, second, label


def tag_columns(table: ExampleTable, words: str | None, tags: str | None) -> tuple[str, str | None]:
    """The columns of words and tags in this table; no tags where it has none.

    Raises:
        UserError: a named one is not there, none has a usual name, or two have the name.
    """
    words = words if words is not None else next(iter(_first(table, WORDS)), None)
    tags = tags if tags is not None else next(iter(_first(table, TAGS)), None)
    if words is None:
        raise UserError(f"{table.source}: no column has a usual name of words; name one of {_list(table.names)}")
    check_columns(table, [words] if tags is None else [words, tags])
    return words, tags


def check_columns(table: ExampleTable, names: Sequence[str]) -> None:
    """See that each of these columns is there once.

    Raises:
        UserError: it is not.
    """
    for name in names:
        count = table.names.count(name)
        if not count:
            raise UserError(f"{table.source}: no column {shown(name)}; name one of {_list(table.names)}")
        if count > 1:
            raise UserError(f"{table.source}: {count} columns are named {shown(name)}; rename all but one")
    if len(set(names)) < len(names):
        raise UserError(f"{table.source}: one column is named twice ({', '.join(names)}); name different ones")


def _first(table: ExampleTable, usual: Sequence[str]) -> list[str]:
    """The columns that have these names in whatever case, in their order."""
    return [name for wanted in usual for name in table.names if name.strip().lower() == wanted]


def _list(names: Sequence[str]) -> str:
    some = [name if name.isprintable() and len(name) < 40 and name else shown(name) for name in names[:12]]
    return ", ".join(some) + (", ..." if len(names) > 12 else "")


SCHEME = "hf:"


def dataset_table(address: str) -> ExampleTable:
    """All rows of a split, `train` unless another is named; rows are counted from 0 as the dataset counts them.

    Raises:
        UserError: there is no such dataset, config or split, or nothing is in it.
    """
    named = Named.parse(address.removeprefix(SCHEME))
    if not named.path:
        raise UserError(f"{address}: no dataset is named; give hf:NAME[:CONFIG][@SPLIT]")
    try:
        dataset = open_dataset(named)
    except UserError as error:  # it names the option of preprocessing
        raise UserError(f"{SCHEME}{str(error).removeprefix('hf_dataset: ')}") from error
    if not len(dataset):
        raise UserError(f"{address}: no row is in this dataset; give another split with @SPLIT")
    values = {name: _named(dataset.features[name], dataset[name][:]) for name in dataset.column_names}
    names = list(values)
    rows = [
        (number, dict(zip(names, row, strict=True))) for number, row in enumerate(zip(*values.values(), strict=True))
    ]
    return ExampleTable(address, named.label, names, rows, "row")


def _named(feature: Any, values: list[Any]) -> list[Any]:
    """Values of a column; classes by name, None for one that is not given."""
    import datasets

    inner = getattr(feature, "feature", None)
    if isinstance(feature, datasets.ClassLabel):
        return [_class_name(feature, value) for value in values]
    if isinstance(inner, datasets.ClassLabel):
        return [value if value is None else [_class_name(inner, one) for one in value] for value in values]
    return values


def _class_name(feature: Any, value: int | None) -> str | None:
    return None if value is None or value < 0 else feature.int2str(value)


PARALLEL = ("s1", "s2", "labels")  # what the names of the three files begin with: premises, hypotheses, labels


def labelled_lines(path: str, name: str, separator: str, encoding: str | None = None) -> ExampleTable:
    """A label, a separator and a text a line.

    Args:
        path: of the file.
        name: of the file in the keys of examples.
        separator: a space (SST) or a tab (MTL-16).
        encoding: of the file. By default UTF-8; a line of MTL-16 that is not, as in its reviews of films, is
            Windows-1252.

    Raises:
        UserError: the file cannot be read, or a line has no label or no text.
    """
    mixed = separator == "\t" and encoding is None
    lines = _lines_of_two_encodings(path) if mixed else read_lines(path, encoding)
    rows = []
    for number, line in enumerate(lines, 1):
        label, found, text = line.partition(separator)
        if not line.strip():
            continue
        if not found or not label.strip():
            kind = "tab" if separator == "\t" else "space"
            raise UserError(
                f"{path}: line {number}: {shown(line)} is no label, {kind} and text; mend it or give a format"
            )
        rows.append((number, {"label": label, "text": text}))
    return ExampleTable(path, name, ["label", "text"], rows)


def parallel_paths(path: str) -> tuple[str, ...] | None:
    """The three parallel files (premises, hypotheses, labels) to which this path belongs; None if it is of no such.

    Args:
        path: of one of them, such as `snli/labels.dev`, or what they have in common, `snli/dev`.
    """
    folder, file = posixpath.split(path)
    prefix, _, rest = file.partition(".")
    is_one = prefix in PARALLEL and rest != ""
    if not file or (not is_one and exists(path)):
        return None
    paths = tuple(posixpath.join(folder, f"{prefix}.{rest if is_one else file}") for prefix in PARALLEL)
    return paths if sum(map(exists, paths)) > 1 else None  # a table may be called labels.csv


def parallel_lines(paths: tuple[str, ...], name: str, encoding: str | None = None) -> ExampleTable:
    """Line n of each of three files belongs together.

    Args:
        paths: as `parallel_paths` gives them.
        name: of the last file in the keys of examples.
        encoding: of the files; UTF-8 by default.

    Raises:
        UserError: one of them is not there, or has another number of lines.
    """
    premises, hypotheses, labels = (list(read_lines(one, encoding)) for one in paths)
    for one, lines in zip(paths, (premises, hypotheses, labels), strict=True):
        if len(lines) != len(labels):
            said = f"{len(lines)} lines, and {paths[-1]} has {len(labels)}"
            raise UserError(f"{one}: {said}; line n of each file must belong together")
    rows = [
        (number, {"premise": premise, "hypothesis": hypothesis, "label": label})
        for number, (premise, hypothesis, label) in enumerate(zip(premises, hypotheses, labels, strict=True), 1)
    ]
    return ExampleTable(paths[-1], name, ["premise", "hypothesis", "label"], rows)


def _lines_of_two_encodings(path: str) -> Iterator[str]:
    for number, line in enumerate(read_lines(path, errors="surrogateescape"), 1):
        is_utf8 = line.isascii() or whole_characters(line) == line
        yield line if is_utf8 else decode(path, line.encode(errors="surrogateescape"), "cp1252", number)


def csv_table(path: str, name: str, lines: Iterator[str], columns: Columns) -> ExampleTable:
    """Comma-separated values, quoted as in RFC 4180; semicolons or tabs part them if the first line has no comma.

    Args:
        path: for messages.
        name: of the file in the keys of examples.
        lines: its lines with their ends.
        columns: whether the first line holds their names.

    Raises:
        UserError: a line has another number of columns than the first, or quotation marks do not fit.
    """
    first = next(lines, "")
    delimiter = next((sign for sign in ",;\t" if sign in first), ",")
    csv.field_size_limit(MAX_CHARACTERS)
    # A CR inside a line ends a row too.
    ended = (part for line in itertools.chain([first], lines) for part in _parts(line))
    reader = csv.reader(ended, delimiter=delimiter, strict=True)

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


def tsv_table(path: str, name: str, lines: Iterator[str], columns: Columns) -> ExampleTable:
    """Tab-separated values; quotation marks are characters like others, as in the files of GLUE and XNLI.

    Args:
        path: for messages.
        name: of the file in the keys of examples.
        lines: its lines.
        columns: whether the first line holds their names.

    Raises:
        UserError: a line has another number of columns than the first.
    """
    rows = ((line, row.split("\t")) for line, row in enumerate(lines, 1) if row)
    return _cells_table(path, name, rows, columns)


def json_table(path: str, name: str, lines: Iterator[str]) -> ExampleTable:
    """An object a line, or one list of objects; the columns are the keys of the first.

    Args:
        path: for messages.
        name: of the file in the keys of examples.
        lines: its lines.

    Raises:
        UserError: a line is no JSON object.
    """
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line and not line.isspace())
    number, line = next(numbered, (1, ""))
    is_list = line.lstrip().startswith("[")
    if is_list:
        rows = list(enumerate(_parse(path, "\n".join([line, *lines]), number), 1))
    else:
        rows = [(number, _parse(path, line, number)) for number, line in itertools.chain([(number, line)], numbered)]
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
    check_length(value, f"{place}: column {shown(column)}")
    return whole_characters(value)


def _parts(line: str) -> Iterable[str]:
    return io.StringIO(line, newline="") if "\r" in line else [line]


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
    read = functools.partial(read_lines, path, options.encoding)
    format = format or _format_by_content(path, next((line for line in read() if line.strip()), ""), options.columns)
    if format == "sst" or format == "mtl-16":
        return labelled_lines(path, name, " " if format == "sst" else "\t", options.encoding)
    if format == "csv":
        return csv_table(path, name, read(ends=True), options.columns)
    if format == "tsv":
        return tsv_table(path, name, read(), options.columns)
    if format == "json":
        return json_table(path, name, read())
    known = "s1.NAME, s2.NAME and labels.NAME" if format == "parallel" else ", ".join(FORMATS)
    raise UserError(f"{path}: no file of the format {shown(format)}; there is {known}")


def _format_by_name(path: str) -> TextFormat | None:
    name = base_name(path).lower()
    if name.startswith("stsa."):
        return "sst"
    if ".task." in name:
        return "mtl-16"
    return next((format for ending, format in _ENDINGS.items() if name.endswith(ending)), None)


def _format_by_content(path: str, first: str, columns: Columns) -> TextFormat:
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


HUB = "nyu-mll/glue"


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """Where a task's texts and labels stand, and how it is scored."""

    name: str  # the config of the dataset
    text: str
    second: str | None
    labels: tuple[str, ...]  # in the hub's order; none: a number
    metrics: tuple[str, ...]  # the first is the main one; names of train/tasks/scores.py
    positive: str | None = None  # the class of the binary F1
    dev: tuple[str, ...] = ("validation",)
    test: tuple[str, ...] = ("test",)

    @property
    def options(self) -> TextOptions:
        """How its rows are read."""
        columns = Columns(self.text, self.second, "label")
        return TextOptions(columns=columns, regression=not self.labels, labels=self.labels or None)

    def address(self, split: str, dataset: str = HUB) -> str:
        """A split for `read_texts`; `dataset` may be a folder in the hub's format."""
        return f"{SCHEME}{dataset}:{self.name}@{split}"


_NLI = ("entailment", "neutral", "contradiction")


_SENTENCES, _PREMISE = ("sentence1", "sentence2"), ("premise", "hypothesis")


_TASKS = (
    GlueTask("cola", "sentence", None, ("unacceptable", "acceptable"), ("matthews",)),
    GlueTask("sst2", "sentence", None, ("negative", "positive"), ("accuracy",)),
    GlueTask("mrpc", *_SENTENCES, ("not_equivalent", "equivalent"), ("f1", "accuracy"), "equivalent"),
    GlueTask("qqp", "question1", "question2", ("not_duplicate", "duplicate"), ("f1", "accuracy"), "duplicate"),
    GlueTask("stsb", *_SENTENCES, (), ("pearson", "spearman")),
    GlueTask(
        "mnli",
        *_PREMISE,
        _NLI,
        ("accuracy",),
        dev=("validation_matched", "validation_mismatched"),
        test=("test_matched", "test_mismatched"),
    ),
    GlueTask("qnli", "question", "sentence", ("entailment", "not_entailment"), ("accuracy",)),
    GlueTask("rte", *_SENTENCES, ("entailment", "not_entailment"), ("accuracy",)),
    GlueTask("wnli", *_SENTENCES, ("not_entailment", "entailment"), ("accuracy",)),
    GlueTask("ax", *_PREMISE, _NLI, ("matthews",), dev=()),  # the diagnostic set: answered by a model of mnli
)


GLUE: Mapping[str, GlueTask] = MappingProxyType({task.name: task for task in _TASKS})
