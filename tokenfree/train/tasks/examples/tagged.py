"""Sentences of words with tags: CoNLL, BIO, IOB2, CoNLL-U, JSON lines.

>>> read_tagged("masakhaner/amh/dev.txt")[0].tags[:3]
('O', 'B-LOC', 'O')
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from tokenfree.core.errors import UserError
from tokenfree.train.tasks.examples.files import base_name, read_lines, short_names, shown
from tokenfree.train.tasks.examples.texts import SCHEME, ExampleTable, dataset_table, json_table, tag_columns, text_of


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedExample:
    """A sentence of words, each with its tag."""

    key: str  # where it begins, such as "train.conll:120"
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None  # one a word, in BIO for spans; None: not given
    # The words as a model of words splits them, where their case changed afterwards.
    before: tuple[str, ...] | None = dataclasses.field(default=None, repr=False)


_BIO = re.compile(r"O|[BI]-.+")
_SPANS = re.compile(r"[BI]-.+")


def are_bio(tags: Iterable[str]) -> bool:
    """Whether tags are meant as BIO: one of them, or more, begins or continues a span (POS tags have none such)."""
    return any(_SPANS.fullmatch(tag) for tag in tags)


def is_bio(tag: str) -> bool:
    """Whether this is `O`, `B-TYPE` or `I-TYPE`."""
    return _BIO.fullmatch(tag) is not None


def find_misfits(tags: Sequence[str]) -> list[int]:
    """Where an `I-TYPE` follows neither `B-TYPE` nor `I-TYPE`."""
    before = ("O", *tags)
    return [n for n, tag in enumerate(tags) if tag[:2] == "I-" and not (before[n] != "O" and before[n][2:] == tag[2:])]


def mended(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags with `B-` for each `I-` that goes on with no span: the spans that conlleval finds in them.

    This turns IOB1, in which `B-` stands only between two spans of a type, into BIO (IOB2).
    """
    wrong = set(find_misfits(tags))
    return tuple(f"B{tag[1:]}" if n in wrong else tag for n, tag in enumerate(tags))


def spans(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return the first word, the last word and the type of each span, as conlleval finds them."""
    found: list[tuple[int, int, str]] = []
    before = "O"
    for n, tag in enumerate(tags):
        if tag != "O":
            goes_on = tag[:2] == "I-" and before != "O" and before[2:] == tag[2:]
            begin = found.pop()[0] if goes_on else n
            found.append((begin, n, tag[2:]))
        before = tag
    return found


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


TaggedFormat = Literal["conll", "conllu", "json"]
FORMATS: tuple[TaggedFormat, ...] = get_args(TaggedFormat)
Scheme = Literal["bio", "strict_bio", "words"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
MENDED = "i_without_b"  # counts tags, not examples


@dataclasses.dataclass(frozen=True)
class TaggedOptions:
    """How a file of tagged words is read; what is not given is told by the file."""

    format: TaggedFormat | None = None
    words: str | None = None  # the column of words, by number from 1, of JSON and datasets by name
    tags: str | None = None
    encoding: str | None = None  # UTF-8
    scheme: Scheme | None = None
    """`bio`: spans; an I- that goes on with no span is read as B-, as conlleval does (so IOB1 is read too).
    `strict_bio`: that is refused. `words`: tags of single words, such as parts of speech. By default bio if a tag
    begins with B- or I-.
    """
    labels: Sequence[str] | None = None  # the only tags that are right


def read_tagged(
    paths: str | Sequence[str], options: TaggedOptions | None = None, changed: Counter[str] | None = None
) -> list[TaggedExample]:
    """The sentences of files of any fsspec address or of datasets (`hf:NAME[:CONFIG][@SPLIT]`), in order.

    Args:
        paths: one or more.
        options: how they are read.
        changed: counts the tags I- that were read as B- (`i_without_b`).

    Raises:
        UserError: what is wrong with a file, with its line and the remedy.
    """
    options = options or TaggedOptions()
    if options.scheme not in (None, *SCHEMES):
        raise UserError(f"scheme: there is no {shown(options.scheme)}; give one of {', '.join(SCHEMES)}")
    found: list[TaggedExample] = []
    for path, name in short_names([paths] if isinstance(paths, str) else paths).items():
        sentences = _sentences(path, name, options)
        if not sentences:
            raise UserError(f"{path}: no sentence is in this file; give one with a word and its tag a line")
        found += _checked(sentences, options, Counter() if changed is None else changed)
    if not found:
        raise UserError("data: no file is named; give one with a word and its tag a line")
    return found


class _Sentence:
    """A sentence before its tags are checked: where each word stands is for messages."""

    __slots__ = ("example", "places")

    def __init__(self, example: TaggedExample, places: Sequence[str]) -> None:
        self.example, self.places = example, places


def _sentences(path: str, name: str, options: TaggedOptions) -> list[_Sentence]:
    if path.startswith(SCHEME):
        return _from_table(dataset_table(path), options)
    if options.format not in (None, *FORMATS):
        raise UserError(f"{path}: there is no format {shown(options.format)}; give one of {', '.join(FORMATS)}")
    lines = list(read_lines(path, options.encoding))
    is_json = base_name(path).lower().endswith((".json", ".jsonl", ".ndjson")) or lines[0].startswith('{"')
    if options.format == "json" or (options.format is None and is_json):
        return _from_table(json_table(path, name, iter(lines)), options)
    word, tag = _column(options.words, "words"), _column(options.tags, "tags")
    format = options.format or ("conllu" if base_name(path).lower().endswith(".conllu") else None)
    layout = layout_of(lines, format, word, tag)
    return [
        _Sentence(
            TaggedExample(
                f"{name}:{sentence.lines[0]}",
                tuple(row[layout.word] for row in sentence.rows),
                tuple(row[layout.tag].strip() for row in sentence.rows),
            ),
            [f"{path}: line {number}" for number in sentence.lines],
        )
        for sentence in sentences(path, lines, layout)
    ]


def _column(given: str | None, option: str) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and int(given[:9]) > 0):
        raise UserError(f"{option}: {shown(given)} is no column; give its number, from 1")
    return int(given[:9])


def _from_table(table: ExampleTable, options: TaggedOptions) -> list[_Sentence]:
    words, tags = tag_columns(table, options.words, options.tags)
    found = []
    for number, row in table.rows:
        place = table.place(number)
        columns = [words] if tags is None else [words, tags]
        values = [_texts(row.get(column), place, column) for column in columns]
        if len(values[0]) != len(values[-1]):
            said = f"{len(values[0])} {words} and {len(values[-1])} {tags}"
            raise UserError(f"{place}: {said}; each word must have one tag")
        if values[0]:
            given = None if tags is None else values[-1]
            found.append(_Sentence(TaggedExample(table.key(number), values[0], given), [place] * len(values[0])))
    return found


def _texts(value: object, place: str, column: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        said = f"column {shown(column)} holds {shown(value)}, no list"
        raise UserError(f"{place}: {said}; mend it, or name the columns of words and tags")
    return tuple(text_of(str(one) if type(one) is int else one, place, column) for one in value)


def _checked(sentences: list[_Sentence], options: TaggedOptions, changed: Counter[str]) -> list[TaggedExample]:
    tags = {tag for sentence in sentences for tag in sentence.example.tags or ()}
    spans = are_bio(tags) if options.scheme is None else options.scheme != "words"
    wrong = {tag for tag in tags if spans and not is_bio(tag)}
    unknown = tags.difference(options.labels) if options.labels is not None else set()
    found = []
    for sentence in sentences:
        example, places = sentence.example, sentence.places
        if example.tags is not None and spans:
            _refuse(example, places, wrong, "is neither O nor B-TYPE nor I-TYPE; mend it, or give the scheme words")
            misfits = find_misfits(example.tags)
            if misfits and options.scheme == "strict_bio":
                first = misfits[0]
                said = f"{shown(example.tags[first])} goes on with no span"
                raise UserError(f"{places[first]}: {said}; write B-, or give the scheme bio, which reads it so")
            changed[MENDED] += len(misfits)
            example = dataclasses.replace(example, tags=mended(example.tags)) if misfits else example
        if options.labels is not None:
            _refuse(example, places, unknown, f"is no tag; mend it, there are {', '.join(options.labels)}")
        found.append(example)
    return found


def _refuse(example: TaggedExample, places: Sequence[str], wrong: set[str], said: str) -> None:
    tags = example.tags or ()
    if wrong and not wrong.isdisjoint(tags):
        first = next(number for number, tag in enumerate(tags) if tag in wrong)
        raise UserError(f"{places[first]}: the tag {shown(tags[first])} of {shown(example.words[first])} {said}")
