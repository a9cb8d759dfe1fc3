"""Sentences of words with tags, from files or datasets: CoNLL, BIO, IOB2, CoNLL-U, JSON lines.

>>> read_tagged("masakhaner/amh/dev.txt")[0].tags[:3]
('O', 'B-LOC', 'O')
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Literal, get_args

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.tasks.examples import bio, conll
from tokenfree.train.tasks.examples.columns import ExampleTable, tag_columns
from tokenfree.train.tasks.examples.example import TaggedExample
from tokenfree.train.tasks.examples.files import base_name, read_text, short_names, shown, split_lines
from tokenfree.train.tasks.examples.huggingface import SCHEME, dataset_table
from tokenfree.train.tasks.examples.tables import json_table, text_of

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
    text = read_text(path, options.encoding)
    is_json = base_name(path).lower().endswith((".json", ".jsonl", ".ndjson")) or text.startswith('{"')
    if options.format == "json" or (options.format is None and is_json):
        return _from_table(json_table(path, name, text), options)
    lines = split_lines(text)
    word, tag = _column(options.words, "words"), _column(options.tags, "tags")
    format = options.format or ("conllu" if base_name(path).lower().endswith(".conllu") else None)
    layout = conll.layout_of(lines, format, word, tag)
    return [
        _Sentence(
            TaggedExample(
                f"{name}:{sentence.lines[0]}",
                tuple(row[layout.word] for row in sentence.rows),
                tuple(row[layout.tag].strip() for row in sentence.rows),
            ),
            [f"{path}: line {number}" for number in sentence.lines],
        )
        for sentence in conll.sentences(path, lines, layout)
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
    spans = bio.are_bio(tags) if options.scheme is None else options.scheme != "words"
    wrong = {tag for tag in tags if spans and not bio.is_bio(tag)}
    unknown = tags.difference(options.labels) if options.labels is not None else set()
    found = []
    for sentence in sentences:
        example, places = sentence.example, sentence.places
        if example.tags is not None and spans:
            _refuse(example, places, wrong, "is neither O nor B-TYPE nor I-TYPE; mend it, or give the scheme words")
            misfits = bio.misfits(example.tags)
            if misfits and options.scheme == "strict_bio":
                first = misfits[0]
                said = f"{shown(example.tags[first])} goes on with no span"
                raise UserError(f"{places[first]}: {said}; write B-, or give the scheme bio, which reads it so")
            changed[MENDED] += len(misfits)
            example = dataclasses.replace(example, tags=bio.mended(example.tags)) if misfits else example
        if options.labels is not None:
            _refuse(example, places, unknown, f"is no tag; mend it, there are {', '.join(options.labels)}")
        found.append(example)
    return found


def _refuse(example: TaggedExample, places: Sequence[str], wrong: set[str], said: str) -> None:
    tags = example.tags or ()
    if wrong and not wrong.isdisjoint(tags):
        first = next(number for number, tag in enumerate(tags) if tag in wrong)
        raise UserError(f"{places[first]}: the tag {shown(tags[first])} of {shown(example.words[first])} {said}")
