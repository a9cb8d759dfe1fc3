"""Sentences of words with tags: CoNLL, BIO, IOB2, CoNLL-U, JSON lines.

>>> read_tagged("masakhaner/amh/dev.txt")[0].tags[:3]
('O', 'B-LOC', 'O')
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from tokenfree.core.errors import UserError
from tokenfree.train.tasks.examples.files import JSON_LINES, base_name, read_lines, shown
from tokenfree.train.tasks.examples.texts import SCHEME, ExampleTable, dataset_table, json_table, text_of

TaggedFormat = Literal["conll", "conllu", "json"]
Scheme = Literal["bio", "strict_bio", "words"]
WORDS = ("tokens", "words", "forms")
TAGS = ("ner_tags", "tags", "pos_tags", "upos", "labels")
FIXED = "i_without_b"  # counts tags, not examples
CONLLU_COLUMNS = 10
_BIO = re.compile(r"O|[BI]-.+")
_BLANK = " \t\ufeff"  # in concatenated files, a byte order mark may be in the middle
_DOCUMENT = "-DOCSTART-"  # in CoNLL-2003: a line that starts a document and is not part of a sentence
_NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")  # number in CoNLL-U of a range of words, or of a word not in the text


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedExample:
    """A sentence of words, each with its tag."""

    key: str  # place in the file, such as "train.conll:120"
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None  # one per word, in BIO for spans; None: not given
    # The words as a model of words splits them, if their case changed afterwards.
    before: tuple[str, ...] | None = dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True)
class TaggedOptions:
    """Options for reading a file of tagged words. Options that are None are detected."""

    format: TaggedFormat | None = None
    words: str | None = None  # column of words: a number from 1, or a name in JSON and datasets
    tags: str | None = None
    encoding: str | None = None  # None: UTF-8
    scheme: Scheme | None = None
    """`bio`: spans; an I- without a span of its type begins one, as in conlleval, so IOB1 is read too. `strict_bio`:
    such an I- is refused. `words`: tags of single words, such as parts of speech. By default bio if a tag begins with
    B- or I-.
    """
    labels: Sequence[str] | None = None  # the only valid tags


def are_bio(tags: Iterable[str]) -> bool:
    """Return True if the tags look like BIO: at least one begins or continues a span."""
    return any(tag != "O" and _BIO.fullmatch(tag) for tag in tags)


def find_misfits(tags: Sequence[str]) -> list[int]:
    """Return the indices where an `I-TYPE` follows neither `B-TYPE` nor `I-TYPE`."""
    before = ("O", *tags)
    return [n for n, tag in enumerate(tags) if tag[:2] == "I-" and not (before[n] != "O" and before[n][2:] == tag[2:])]


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


class _Sentence(NamedTuple):
    """Words and tags before they are checked, with the place of each word for messages."""

    key: str
    words: Sequence[str]
    tags: Sequence[str] | None
    places: Sequence[str]


def read_tagged(
    path: str, options: TaggedOptions | None = None, changed: Counter[str] | None = None
) -> list[TaggedExample]:
    """Return the sentences of a file of any fsspec address or of a dataset (`hf:NAME[:CONFIG][@SPLIT]`), in order.

    Args:
        path: Address of the file or dataset.
        options: Options for reading it.
        changed: Counter to which the number of I- tags read as B- is added, as `i_without_b`.

    Raises:
        UserError: The file is invalid. The message names the line and the fix.
    """
    options = options or TaggedOptions()
    changed = Counter() if changed is None else changed
    sentences = _sentences(path, options)
    if not sentences:
        raise UserError(f"{path}: no sentence is in this file. Give one with a word and its tag per line.")
    everything = (tag for sentence in sentences for tag in sentence.tags or ())
    is_bio = are_bio(everything) if options.scheme is None else options.scheme != "words"
    found: list[TaggedExample] = []
    for sentence in sentences:
        given = sentence.tags
        tags = None if given is None else tuple(_checked(sentence, given, options, is_bio, changed))
        found.append(TaggedExample(sentence.key, tuple(sentence.words), tags))
    return found


def _checked(
    sentence: _Sentence, tags: Sequence[str], options: TaggedOptions, is_bio: bool, changed: Counter[str]
) -> Iterator[str]:
    """Yield the tags of a sentence, with `B-` for each `I-` that continues no span. conlleval finds the same spans."""
    misfits = set(find_misfits(tags)) if is_bio else set[int]()
    if options.scheme != "strict_bio":
        changed[FIXED] += len(misfits)
    for number, (tag, word, place) in enumerate(zip(tags, sentence.words, sentence.places, strict=True)):
        wrong = ""
        if is_bio and not _BIO.fullmatch(tag):
            wrong = "is neither O nor B-TYPE nor I-TYPE. Fix it, or give the scheme words."
        elif number in misfits and options.scheme == "strict_bio":
            wrong = "continues no span. Write B-, or give the scheme bio, which reads it so."
        elif options.labels is not None and tag not in options.labels:
            wrong = f"is no tag. Fix it. There are {', '.join(options.labels)}."
        if wrong:
            raise UserError(f"{place}: the tag {shown(tag)} of {shown(word)} {wrong}")
        yield f"B{tag[1:]}" if number in misfits else tag


def _sentences(path: str, options: TaggedOptions) -> list[_Sentence]:
    if path.startswith(SCHEME):
        return _from_table(dataset_table(path), options)
    lines = list(read_lines(path, options.encoding))
    name = base_name(path)
    is_json = name.lower().endswith((*JSON_LINES, ".json")) or lines[0].startswith('{"')
    if options.format == "json" or (options.format is None and is_json):
        return _from_table(json_table(path, iter(lines)), options)
    format = options.format or ("conllu" if name.lower().endswith(".conllu") else None)
    layout = Layout.of(lines, format, _column(options.words, "words"), _column(options.tags, "tags"))
    return [
        _Sentence(
            f"{name}:{rows[0][0]}",
            [row[layout.word] for _, row in rows],
            [row[layout.tag].strip() for _, row in rows],
            [f"{path}: line {number}" for number, _ in rows],
        )
        for rows in layout.sentences(path, lines)
    ]


def _column(given: str | None, option: str) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and int(given[:9]) > 0):
        raise UserError(f"{option}: {shown(given)} is no column. Give its number, from 1.")
    return int(given[:9])


def _from_table(table: ExampleTable, options: TaggedOptions) -> list[_Sentence]:
    words = options.words if options.words is not None else next(iter(table.usual(WORDS)), None)
    tags = options.tags if options.tags is not None else next(iter(table.usual(TAGS)), None)
    table.check((words, tags), "words")
    found = []
    for number, row in table.rows:
        place = table.place(number)
        columns = [column for column in (words, tags) if column is not None]
        values = [_texts(row.get(column), place, column) for column in columns]
        if len(values[0]) != len(values[-1]):
            said = f"{len(values[0])} {words} and {len(values[-1])} {tags}"
            raise UserError(f"{place}: {said}. Each word must have one tag.")
        if values[0]:
            given = None if tags is None else values[-1]
            found.append(_Sentence(table.key(number), values[0], given, [place] * len(values[0])))
    return found


def _texts(value: object, place: str, column: str) -> list[str]:
    if not isinstance(value, list):
        said = f"column {shown(column)} holds {shown(value)}, no list"
        raise UserError(f"{place}: {said}. Fix it, or name the columns of words and tags.")
    return [text_of(str(one) if type(one) is int else one, place, column) for one in value]


class Layout(NamedTuple):
    """The separator of a file's columns, and the columns of words and tags (from 0)."""

    separator: str
    has_comments: bool  # whether lines that begin with # are comments; otherwise # is a word
    word: int
    tag: int  # -1: the last column

    @classmethod
    def of(cls, lines: list[str], format: str | None, word_column: int | None, tag_column: int | None) -> Layout:
        """Detect the layout of a file.

        If the first column counts words from 1, the words are in another one, and lines that begin with # are comments.
        Columns are separated by tabs if the file has any, else by spaces.

        Args:
            lines: Lines of the file.
            format: `conllu` or `conll`; None to detect CoNLL-U by its ten columns.
            word_column: Column of the words, from 1. Default: the first, or the second if the first one counts.
            tag_column: Column of the tags, from 1. Default: UPOS in CoNLL-U, the third if the first one counts, or the
                last.
        """
        separator = "\t" if any("\t" in line.strip(_BLANK) for line in lines) else " "
        first: list[list[str]] = []  # the first sentence, without lines that may be comments
        for line in lines:
            if line.strip(_BLANK) and not line.startswith("#"):
                first.append(line.split(separator))
            elif first and not line.startswith("#"):
                break
        numbers = [row[0] for row in first if not _NO_WORD.fullmatch(row[0])]
        num_columns = len(first[0]) if first else 1
        counts = num_columns > 2 and numbers == [str(number) for number in range(1, len(numbers) + 1)]
        counted = counts or format == "conllu"
        is_conllu = format == "conllu" or (format is None and counts and num_columns == CONLLU_COLUMNS)
        word = word_column - 1 if word_column else int(counted)
        tag = tag_column - 1 if tag_column else 3 if is_conllu else 2 if counted else -1
        return cls(separator, counted, word, tag)

    def sentences(self, path: str, lines: list[str]) -> Iterator[list[tuple[int, list[str]]]]:
        """Yield the sentences of a file: for each word, the number and the columns of its line.

        CoNLL-U lines for ranges of words and for words that are not in the text are skipped.

        Raises:
            UserError: A line lacks a column, or the numbers of columns differ.
        """
        sentence: list[tuple[int, list[str]]] = []
        width = 0
        for number, line in enumerate([*lines, ""], 1):
            if not line.strip(_BLANK):
                if sentence:
                    yield sentence
                sentence = []
                continue
            if self.has_comments and line.startswith("#"):
                continue
            row = (line if self.separator == "\t" else line.rstrip(" ")).split(self.separator)
            if row[0] == _DOCUMENT or (self.has_comments and _NO_WORD.fullmatch(row[0])):
                continue
            width = width or len(row)
            self._check(f"{path}: line {number}", line, row, width)
            sentence.append((number, row))

    def _check(self, place: str, line: str, row: list[str], width: int) -> None:
        if len(row) != width:
            what = "column" if len(row) == 1 else "columns"
            said = f"{len(row)} {what} in {shown(line)}, and the first word has {width}"
            raise UserError(f"{place}: {said}. Fix the line.")
        tag = width - 1 if self.tag < 0 else self.tag
        for column, what in ((self.word, "word"), (tag, "tag")):
            if column >= width:
                said = f"there is no column {column + 1} for the {what}, only {width}"
                raise UserError(f"{place}: {said}. Give another one.")
            if not row[column].strip():
                said = f"the {what} in column {column + 1} of {shown(line)} is empty"
                raise UserError(f"{place}: {said}. Fix the line.")
        if self.word == tag:
            said = f"words and tags are both column {tag + 1} of {shown(line)}"
            raise UserError(f"{place}: {said}. Give the columns of words and tags, or a file of at least two columns.")
