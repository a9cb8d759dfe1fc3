"""Texts and pairs of texts with labels, from files or datasets.

The format follows from the name, or is given. Classes have the names from the dataset. A class of -1 is a
missing label.

>>> read_texts("sst/stsa.fine.dev")[1]
TextExample(key='stsa.fine.dev:2', text='one long string of cliches .', second=None, label='1')
"""

import csv
import dataclasses
import itertools
import math
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from tokenfree.core.errors import UserError
from tokenfree.preprocess.sources.tables import Named, open_dataset
from tokenfree.train.tasks.examples.files import base_name, exists, opened, parse_form, quoted, read_lines

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
LABELS = (
    "label",
    "gold_label",
    "labels",
    "category",
    "class",
    "sentiment",
    "target",
    "score",
    "rating",
    "stars",
)
# A pair on which the annotators of SNLI do not agree.
NO_GOLD_LABEL = "-"
TextFormat = Literal["sst", "mtl-16", "parallel", "csv", "tsv", "json"]
FORMATS: tuple[TextFormat, ...] = get_args(TextFormat)
_ENDINGS: dict[str, TextFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
_WHOLE = re.compile(r"(-?[0-9]{1,15})\.0+")
_MAX_CHARACTERS = 2**31 - 1  # of a value in CSV; the limit of the module csv is 131,072


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
    key: str  # place in the file, such as "dev.tsv:17", shown in messages and predictions; unique in the file
    text: str  # unchanged except for decoding the file format
    second: str | None = None  # second text of a pair
    label: str | float | None = None  # name of a class, or a number for regression; None: not given
    # The texts as a model of words splits them, if their case changed afterwards.
    before: tuple[str, ...] | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """Options for reading a file of texts. Formats and columns that are None follow from their names."""

    format: TextFormat | None = None
    text: str | None = None
    second: str | None = None  # found only together with the text
    label: str | None = None
    regression: bool = False  # whether labels are numbers
    labels: Sequence[str] | None = None  # the only valid labels


class ExampleTable(NamedTuple):
    source: str  # file name for messages
    names: Sequence[str]  # names of all columns in order
    rows: Sequence[tuple[int, Mapping[str, Any]]]  # number of each row or line, and its values by name
    label: str = ""  # name of a dataset in keys

    def key(self, number: int) -> str:
        return f"{self.label or base_name(self.source)}:{number}"

    def usual(self, names: Iterable[str]) -> list[str]:
        """Return the columns with these names, ignoring case, in the order of `names`."""
        return [name for expected in names for name in self.names if name.strip().lower() == expected]

    def check(self, column: str | None) -> str:
        """Return a column. Raises UserError if the table does not have it exactly once."""
        if column is None or self.names.count(column) != 1:
            listed = ", ".join(map(quoted, self.names[:12]))
            what = (
                "no column has a usual name"
                if column is None
                else f"no column, or several, named {quoted(column)}"
            )
            raise UserError(f"{self.source}: {what}. Name one of {listed}.")
        return column

    def value(self, number: int, row: Mapping[str, Any], column: str) -> Any:
        """Return a value of a row. Raises UserError if the row has no such column."""
        if column not in row:
            raise UserError(
                f"{self.key(number)}: there is no {quoted(column)}, which the first line has. Fix it."
            )
        return row[column]


def read_texts(path: str, options: TextOptions | None = None) -> list[TextExample]:
    """Return the examples of a file or of a dataset (`hf:NAME[:CONFIG][@SPLIT]`).

    Raises UserError if it is invalid. If only some have a label, the others are dropped. So are pairs with
    the label `-`, on which annotators did not agree. Three parallel files (SNLI) are read by one of their
    paths or by their common part, `snli/dev`.
    """
    options = options or TextOptions()
    examples = list(_examples(_table(path, options.format), options))
    if not examples:
        raise UserError(f"{path}: no example is left. Give a file with examples.")
    return [example for example in examples if example.label is not None] or examples


def parallel_paths(path: str) -> tuple[str, ...] | None:
    """Return the three parallel files (premises, hypotheses, labels) of a path such as `snli/dev`, or None."""
    folder, file = posixpath.split(path)
    prefix, _, rest = file.partition(".")
    is_one = prefix in PARALLEL and rest != ""
    if not file or (not is_one and exists(path)):
        return None
    paths = tuple(posixpath.join(folder, f"{prefix}.{rest if is_one else file}") for prefix in PARALLEL)
    # A single table may be named labels.csv.
    return paths if sum(map(exists, paths)) > 1 else None


def _table(path: str, format: TextFormat | None) -> ExampleTable:
    if path.startswith(SCHEME):
        return dataset_table(path)
    parallel = parallel_paths(path) if format in (None, "parallel") else None
    if parallel:
        return _parallel_table(parallel)
    format = format or _format_by_name(path)
    if format in ("sst", "mtl-16"):
        return _labelled_lines(path, format)
    if format == "json":
        return json_table(path)
    if format in ("csv", "tsv"):
        return _cells_table(path, _csv_rows(path) if format == "csv" else _tsv_rows(path))
    # Reports a file that is missing or a folder.
    with opened(path):
        raise UserError(f"{path}: the name tells no format. Set task.format to one of {', '.join(FORMATS)}.")


def _format_by_name(path: str) -> TextFormat | None:
    name = base_name(path).lower()
    if name.startswith("stsa."):
        return "sst"
    if ".task." in name:
        return "mtl-16"
    return next((format for ending, format in _ENDINGS.items() if name.endswith(ending)), None)


def dataset_table(address: str) -> ExampleTable:
    """Return all rows of a split, by default `train`. Raises UserError if it does not exist or is empty."""
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
    columns = [_class_names(dataset.features[name], dataset[name][:]) for name in names]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return ExampleTable(address, names, list(enumerate(rows)), named.label)


def _class_names(feature: Any, values: list[Any]) -> list[Any]:
    import datasets

    inner = getattr(feature, "feature", None)
    if isinstance(feature, datasets.ClassLabel):
        return [None if value is None or value < 0 else feature.int2str(value) for value in values]
    if isinstance(inner, datasets.ClassLabel):
        return [value if value is None else _class_names(inner, value) for value in values]
    return values


def _labelled_lines(path: str, format: Literal["sst", "mtl-16"]) -> ExampleTable:
    """Read one label, separator (a space in SST, a tab in MTL-16) and text per line."""
    # Some film reviews of MTL-16 are Windows-1252.
    separator, encodings = (" ", ["utf-8"]) if format == "sst" else ("\t", ["utf-8", "cp1252"])
    rows = []
    for number, line in enumerate(read_lines(path, encodings=encodings), 1):
        if line.strip():
            label, divider, text = line.partition(separator)
            if not divider or not label.strip():
                raise UserError(f"{path}: line {number}: {quoted(line)} is not a line of {format}. Fix it.")
            rows.append((number, {"label": label, "text": text}))
    return ExampleTable(path, ["label", "text"], rows)


def _parallel_table(paths: tuple[str, ...]) -> ExampleTable:
    columns = [list(read_lines(one)) for one in paths]
    if len(set(map(len, columns))) > 1:
        raise UserError(
            f"{', '.join(paths)}: the numbers of lines differ. Line n of each file must belong together."
        )
    names = ["premise", "hypothesis", "label"]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return ExampleTable(paths[-1], names, list(enumerate(rows, 1)))


def _tsv_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield rows of TSV. Quotation marks are ordinary characters, as in the files of GLUE and XNLI."""
    return ((number, line.split("\t")) for number, line in enumerate(read_lines(path), 1) if line)


def _csv_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield rows of CSV, quoted as in RFC 4180.

    If the first line has no comma, semicolons or tabs separate values.
    """
    lines = read_lines(path, ends=True)
    first = next(lines, "")
    delimiter = next((sign for sign in ",;\t" if sign in first), ",")
    csv.field_size_limit(_MAX_CHARACTERS)
    reader = csv.reader(itertools.chain([first], lines), delimiter=delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            # Skip empty lines.
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        reason = f'this is not CSV ({error}). Write "" for a quotation mark inside a quoted value.'
        raise UserError(f"{path}: line {line}: {reason}") from None


def _cells_table(path: str, cells: Iterator[tuple[int, list[str]]]) -> ExampleTable:
    _, names = next(cells)
    rows = []
    for line, values in cells:
        if len(values) != len(names):
            raise UserError(
                f"{path}: line {line}: {len(values)} columns, and the first line has {len(names)}. Fix the line, or "
                "set task.format (tsv: quotation marks are plain characters, csv: they hold a value together)."
            )
        rows.append((line, dict(zip(names, values, strict=True))))
    return ExampleTable(path, names, rows)


def json_table(path: str) -> ExampleTable:
    """Read one object per line, or a list.

    The first one's keys are the columns. Raises UserError if one is invalid.
    """
    numbered = (
        (number, line) for number, line in enumerate(read_lines(path), 1) if line and not line.isspace()
    )
    number, line = next(numbered)
    if line.lstrip().startswith("["):
        text = "\n".join([line, *(line for _, line in numbered)])
        rows = list(enumerate(parse_form(list[dict[str, Any]], text, path), 1))
    else:
        lines = itertools.chain([(number, line)], numbered)
        rows = [
            (number, parse_form(dict[str, Any], line, f"{path}: line {number}")) for number, line in lines
        ]
    return ExampleTable(path, list(rows[0][1]) if rows else [], rows)


def text_of(value: object, place: str) -> str:
    """Return a value that must be text. Raises UserError if it is not."""
    if not isinstance(value, str):
        raise UserError(f"{place}: {quoted(value)} is not text. Fix it or name another column.")
    return value


def _examples(table: ExampleTable, options: TextOptions) -> Iterator[TextExample]:
    text, second, label = _columns(table, options)
    for number, row in table.rows:
        key = table.key(number)
        label_value = None if label is None else table.value(number, row, label)
        if second is None or label_value != NO_GOLD_LABEL:
            yield TextExample(
                key,
                text_of(table.value(number, row, text), key),
                None if second is None else text_of(table.value(number, row, second), key),
                _label(label_value, key, options),
            )


def _columns(table: ExampleTable, options: TextOptions) -> tuple[str, str | None, str | None]:
    text, second = options.text, options.second
    if text is None:
        pairs = [pair for pair in map(table.usual, PAIRS) if len(pair) == 2]
        if second is None and pairs:
            text, second = pairs[0]
        else:
            text = next((name for name in table.usual(TEXTS) if name != second), None)
    label = options.label if options.label is not None else next(iter(table.usual(LABELS)), None)
    second, label = (None if column is None else table.check(column) for column in (second, label))
    return table.check(text), second, label


def _label(value: object, key: str, options: TextOptions) -> str | float | None:
    if value is None or value == "":
        return None
    if options.regression:
        number = _number(value)
        if not math.isfinite(number):
            raise UserError(
                f"{key}: the label {quoted(value)} is not a number. Fix it, or name another column."
            )
        return number
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        value = str(int(value))
    label = class_name(value) if isinstance(value, str) else None
    if options.labels is not None and label not in options.labels:
        label = next((name for name in options.labels if class_name(name) == label), None)
    if label is None:
        classes = "Numbers need task.regression"
        if options.labels:
            classes = f"There are {', '.join(options.labels)}; task.labels can name others"
        raise UserError(
            f"{key}: the label {quoted(value)} is not a class. Fix it, or name another column. {classes}."
        )
    return label


def class_name(text: str) -> str:
    """Return the name of a class.

    A whole number may have zeros after its point, as pandas writes some columns.
    """
    text = text.strip()
    whole = _WHOLE.fullmatch(text)
    return str(int(whole[1])) if whole else text


def _number(value: object) -> float:
    try:
        return (
            math.nan if isinstance(value, bool) or not isinstance(value, (int, float, str)) else float(value)
        )
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
    "qqp": GlueTask(
        "question1", "question2", ("not_duplicate", "duplicate"), ("f1", "accuracy"), "duplicate"
    ),
    "stsb": GlueTask(*_SENTENCES, (), ("pearson", "spearman")),
    "mnli": GlueTask(*_PREMISE, _NLI, ("accuracy",)),
    "qnli": GlueTask("question", "sentence", _ENTAILED, ("accuracy",)),
    "rte": GlueTask(*_SENTENCES, _ENTAILED, ("accuracy",)),
    "wnli": GlueTask(*_SENTENCES, ("not_entailment", "entailment"), ("accuracy",)),
    "ax": GlueTask(*_PREMISE, _NLI, ("matthews",)),  # the diagnostic set, evaluated with a model of mnli
}
