"""Sentences of words with tags: CoNLL, BIO, IOB2, CoNLL-U, JSON lines.

>>> read_tagged("masakhaner/amh/dev.txt")[0].tags[:3]
('O', 'B-LOC', 'O')
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from tokenfree.core.errors import UserError
from tokenfree.train.tasks.examples.files import JSON_LINES, base_name, quoted, read_lines
from tokenfree.train.tasks.examples.texts import SCHEME, ExampleTable, dataset_table, json_table, text_of

TaggedFormat = Literal["conll", "conllu", "json"]
Scheme = Literal["bio", "strict_bio", "words"]
WORDS = ("tokens", "words", "forms")
TAGS = ("ner_tags", "tags", "pos_tags", "upos", "labels")
CONLLU_COLUMNS = 10
_BIO = re.compile(r"O|[BI]-.+")
_BLANK = " \t\ufeff"  # in concatenated files, a byte order mark may be in the middle
# In CoNLL-2003: a line that starts a document and is not part of a sentence.
_DOCUMENT = "-DOCSTART-"
# Number in CoNLL-U of a range of words, or of a word not in the text.
_NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")


@dataclasses.dataclass(frozen=True, slots=True)
class TaggedExample:
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
    previous = ("O", *tags)
    return [
        n
        for n, tag in enumerate(tags)
        if tag[:2] == "I-" and not (previous[n] != "O" and previous[n][2:] == tag[2:])
    ]


def spans(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return the first word, the last word and the type of each span, as conlleval finds them."""
    result: list[tuple[int, int, str]] = []
    previous = "O"
    for n, tag in enumerate(tags):
        if tag != "O":
            goes_on = tag[:2] == "I-" and previous != "O" and previous[2:] == tag[2:]
            result.append((result.pop()[0] if goes_on else n, n, tag[2:]))
        previous = tag
    return result


def read_tagged(path: str, options: TaggedOptions | None = None) -> list[TaggedExample]:
    """Return the sentences of a file or a dataset (`hf:NAME[:CONFIG][@SPLIT]`).

    Raises UserError if it is invalid.
    """
    options = options or TaggedOptions()
    sentences = list(_sentences(path, options))
    if not sentences:
        raise UserError(f"{path}: no sentence is in this file. Give one with a word and its tag per line.")
    is_bio = options.scheme != "words"
    if options.scheme is None:
        is_bio = are_bio(tag for sentence in sentences for tag in sentence.tags or ())
    return [
        dataclasses.replace(one, tags=one.tags and _checked(one, one.tags, options, is_bio))
        for one in sentences
    ]


def _checked(
    sentence: TaggedExample, tags: Sequence[str], options: TaggedOptions, is_bio: bool
) -> tuple[str, ...]:
    """Return the tags of a sentence, with `B-` for each `I-` that continues no span. conlleval finds the same spans."""
    misfits = find_misfits(tags) if is_bio else []
    corrected = list(tags)
    for number in misfits:
        corrected[number] = f"B{tags[number][1:]}"
    for number, tag in enumerate(tags):
        wrong = ""
        if is_bio and not _BIO.fullmatch(tag):
            wrong = "is neither O nor B-TYPE nor I-TYPE. Fix it, or give the scheme words."
        elif number in misfits and options.scheme == "strict_bio":
            wrong = "continues no span. Write B-, or give the scheme bio, which reads it so."
        elif options.labels is not None and tag not in options.labels:
            wrong = f"is not a tag. Fix it, or add it to task.labels. There are {', '.join(options.labels)}."
        if wrong:
            raise UserError(
                f"{sentence.key}: the tag {quoted(tag)} of {quoted(sentence.words[number])} {wrong}"
            )
    return tuple(corrected)


def _sentences(path: str, options: TaggedOptions) -> Iterator[TaggedExample]:
    name = base_name(path)
    ending = name.lower().rpartition(".")[2]
    if path.startswith(SCHEME):
        yield from _from_table(dataset_table(path), options)
    elif options.format == "json" or (options.format is None and f".{ending}" in (*JSON_LINES, ".json")):
        yield from _from_table(json_table(path), options)
    else:
        lines = list(read_lines(path))
        format = options.format or ("conllu" if ending == "conllu" else None)
        layout = Layout.of(lines, format, _column(options.words), _column(options.tags))
        for number, rows in layout.sentences(path, lines):
            words, tags = zip(*((row[layout.word], row[layout.tag].strip()) for row in rows), strict=True)
            yield TaggedExample(f"{name}:{number}", words, tags)


def _column(column: str | None) -> int | None:
    if column is not None and not (column.isascii() and column.isdigit() and int(column[:9]) > 0):
        raise UserError(f"{quoted(column)} is not a column of words or tags. Give its number, from 1.")
    return None if column is None else int(column[:9])


def _from_table(table: ExampleTable, options: TaggedOptions) -> Iterator[TaggedExample]:
    words = table.check(options.words or next(iter(table.usual(WORDS)), None))
    tags = options.tags or next(iter(table.usual(TAGS)), None)
    for number, row in table.rows:
        key = table.key(number)
        row_words = _texts(table.value(number, row, words), key)
        row_tags = None if tags is None else _texts(table.value(number, row, table.check(tags)), key)
        if row_tags is not None and len(row_tags) != len(row_words):
            raise UserError(
                f"{key}: {len(row_words)} words and {len(row_tags)} tags. Each word must have one tag."
            )
        if row_words:
            yield TaggedExample(key, row_words, row_tags)


def _texts(value: object, key: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise UserError(
            f"{key}: {quoted(value)} is not a list. Fix it, or name the columns of words and tags."
        )
    return tuple(text_of(str(one) if type(one) is int else one, key) for one in value)


class Layout(NamedTuple):
    """The separator of a file's columns, and the columns of words and tags (from 0)."""

    separator: str
    has_comments: bool  # whether lines that begin with # are comments; otherwise # is a word
    word: int
    tag: int  # -1: the last column

    @classmethod
    def of(
        cls, lines: list[str], format: str | None, word_column: int | None, tag_column: int | None
    ) -> "Layout":
        """Detect the layout of a file. Columns are separated by tabs if the file has any, else by spaces.

        If the first column counts words from 1, lines that begin with # are comments. The words are then in
        the second column and the tags in the third, else in the first and the last one. Tags of CoNLL-U are
        UPOS.
        """
        separator = "\t" if any("\t" in line.strip(_BLANK) for line in lines) else " "
        # The first sentence, without lines that may be comments.
        first: list[list[str]] = []
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

    def sentences(self, path: str, lines: list[str]) -> Iterator[tuple[int, list[list[str]]]]:
        """Yield the number of a sentence's first line, and its columns by word.

        Raises UserError if columns differ. CoNLL-U lines for ranges of words and for words that are not in
        the text are skipped.
        """
        sentence, first, width = list[list[str]](), 0, 0
        for number, line in enumerate([*lines, ""], 1):
            if not line.strip(_BLANK):
                if sentence:
                    yield first, sentence
                sentence = []
                continue
            row = (line if self.separator == "\t" else line.rstrip(" ")).split(self.separator)
            is_comment = self.has_comments and (line.startswith("#") or _NO_WORD.fullmatch(row[0]))
            if row[0] == _DOCUMENT or is_comment:
                continue
            width = width or len(row)
            columns = self.word, width - 1 if self.tag < 0 else self.tag
            if len(row) != width or max(columns) >= width or columns[0] == columns[1]:
                raise UserError(
                    f"{path}: line {number}: {len(row)} columns, but columns {columns[0] + 1} and {columns[1] + 1} of "
                    f"{width} were expected. Fix the line, or give other columns."
                )
            if not all(row[column].strip() for column in columns):
                raise UserError(
                    f"{path}: line {number}: {quoted(line)} has an empty word or tag. Fix the line."
                )
            first = first if sentence else number
            sentence.append(row)
