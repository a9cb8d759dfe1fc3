"""Question files: SQuAD 1.1 and 2.0, and the native form of TyDi QA.

Offsets of TyDi QA are bytes of `document_plaintext` in UTF-8 (Clark et al., TACL 2020).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Literal

from tokenfree.core.errors import UserError
from tokenfree.train.tasks.examples.files import read_bytes, read_lines, whole_characters

_KINDS = {str: "a text", int: "an integer", list: "a list", dict: "an object"}


class WrongField(Exception):
    """A field that is missing or has the wrong form."""


def field(record: Any, name: str, kind: type, where: str, form: str) -> Any:
    """The field `name` of an object; a text is of whole characters.

    Args:
        record: the object.
        name: of the field.
        kind: str, int, list or dict.
        where: the place of the object in its file or line; "" for the whole.
        form: of the file that is wanted, such as "a file in the form of SQuAD".

    Raises:
        WrongField: there is none, or it is of another kind.
    """
    if not isinstance(record, dict):
        raise WrongField(f"{where or 'the file'} is to be an object, not a {type(record).__name__}; give {form}")
    full = f"{where}.{name}" if where else name
    if name not in record:
        raise WrongField(f"has no {full}; give {form}")
    value = record[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise WrongField(f"{full} is to be {_KINDS[kind]}, not {json.dumps(value)[:40]}")
    return whole_characters(value) if isinstance(value, str) else value


_SQUAD_FORM = "a file in the form of SQuAD"


@dataclasses.dataclass(frozen=True, slots=True)
class SquadAnswer:
    """An answer and the character of the context at which it begins."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)  # the same is what is one object: contexts are long
class SquadExample:
    """A question and the context that may answer it."""

    key: str  # where it stands, such as "dev.json: data[3].paragraphs[0].qas[2]"
    question_id: str
    question: str
    context: str
    answers: tuple[SquadAnswer, ...] | None  # all that count as right; none where there is no answer; None: not given


def encoded(text: str) -> bytes:
    """UTF-8, in whose bytes spans are given."""
    return text.encode("utf-8", "surrogatepass")


def read_squad(path: str) -> list[SquadExample]:
    """The questions of a file, in its order.

    Raises:
        UserError: the file cannot be read or has another form; the place and the field are named.
    """
    raw = read_bytes(path)
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: no JSON ({error}); give {_SQUAD_FORM}") from None
    try:
        examples = list(_examples(PurePath(path).name, document))
    except WrongField as wrong:
        raise UserError(f"{path}: {wrong}") from None
    if not examples:
        raise UserError(f"{path}: holds no questions; give {_SQUAD_FORM}")
    return examples


def _examples(name: str, document: Any) -> Iterator[SquadExample]:
    seen: dict[str, str] = {}
    for where, article in _each(document, "data", ""):
        for place, paragraph in _each(article, "paragraphs", where):
            context = _squad_field(paragraph, "context", str, place)
            for here, question in _each(paragraph, "qas", place):
                example = SquadExample(
                    f"{name}: {here}",
                    _squad_field(question, "id", str, here),
                    _squad_field(question, "question", str, here),
                    context,
                    tuple(_answer(*each, context) for each in _each(question, "answers", here)),
                )
                if example.question_id in seen:
                    twice = f"{here}.id: {example.question_id!r} is that of {seen[example.question_id]} too"
                    raise WrongField(f"{twice}; leave one of the two out")
                seen[example.question_id] = here
                yield example


def _answer(where: str, answer: Any, context: str) -> SquadAnswer:
    text, start = _squad_field(answer, "text", str, where), _squad_field(answer, "answer_start", int, where)
    if not 0 <= start <= len(context):
        raise WrongField(f"{where}.answer_start is {start}, but the context has {len(context)} characters")
    return SquadAnswer(text, start)


def _each(record: Any, name: str, where: str) -> Iterator[tuple[str, Any]]:
    full = f"{where}.{name}" if where else name
    yield from ((f"{full}[{index}]", value) for index, value in enumerate(_squad_field(record, name, list, where)))


def _squad_field(record: Any, name: str, kind: type, where: str) -> Any:
    return field(record, name, kind, where, _SQUAD_FORM)


YesNo = Literal["YES", "NO", "NONE"]
Span = tuple[int, int]  # begin and end in bytes
NO_SPAN: Span = (-1, -1)
_FORM = "a file of TyDi QA's primary tasks"


@dataclasses.dataclass(frozen=True, slots=True)
class Annotation:
    """What one annotator marked."""

    passage: int  # its index among the candidates; -1: no passage answers the question
    span: Span  # of the minimal answer in the article, or `NO_SPAN`
    yes_no: YesNo


@dataclasses.dataclass(frozen=True, slots=True, eq=False)  # the same is what is one object: articles are long
class TydiExample:
    """A question and the article that may answer it."""

    key: str  # where it stands, such as "dev.jsonl.gz:3"
    example_id: int
    language: str  # in lower case
    question: str
    article: bytes  # UTF-8
    passages: tuple[Span, ...]  # the candidates; `NO_SPAN` for one whose place is not known
    annotations: tuple[Annotation, ...] | None  # None: the file has none


def read_tydi(path: str) -> Iterator[TydiExample]:
    """The examples of a file, in its order.

    Raises:
        UserError: the file cannot be read, or a line is no example; file, line and field are named.
    """
    seen: dict[int, str] = {}
    name = PurePath(path).name
    for number, record in read_json_lines(path):
        key = f"{name}:{number}"
        try:
            example = _example(key, record)
        except WrongField as wrong:
            raise UserError(f"{path}:{number}: {wrong}") from None
        if example.example_id in seen:
            raise UserError(
                f"{path}:{number}: example_id {example.example_id} stands in {seen[example.example_id]} too; "
                "leave one of the two out"
            )
        seen[example.example_id] = key
        yield example
    if not seen:
        raise UserError(f"{path}: holds no questions; give {_FORM}")


def read_json_lines(path: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects of a file of JSON lines at any address, gzipped or not, each with its line (from 1).

    Raises:
        UserError: the file cannot be read, or a line is no JSON object.
    """
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            yield number, _object(line, path, number)


def _object(line: str, path: str, number: int) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}:{number}: no JSON ({error}); each line is to be an object") from None
    if not isinstance(record, dict):
        raise UserError(f"{path}:{number}: each line is to be a JSON object, not a {type(record).__name__}")
    return record


def _example(key: str, record: Mapping[str, Any]) -> TydiExample:
    article = _field(record, "document_plaintext", str).encode("utf-8", "surrogatepass")
    candidates = _field(record, "passage_answer_candidates", list)
    passages = tuple(
        _span(candidate, article, f"passage_answer_candidates[{index}]") for index, candidate in enumerate(candidates)
    )
    annotations = None
    if record.get("annotations") is not None:
        annotations = tuple(
            _annotation(value, article, len(passages), f"annotations[{index}]")
            for index, value in enumerate(_field(record, "annotations", list))
        )
    return TydiExample(
        key,
        _field(record, "example_id", int),
        _field(record, "language", str).lower(),
        _field(record, "question_text", str),
        article,
        passages,
        annotations,
    )


def _annotation(value: Any, article: bytes, num_passages: int, where: str) -> Annotation:
    passage = _field(_field(value, "passage_answer", dict, where), "candidate_index", int, f"{where}.passage_answer")
    if passage >= num_passages:
        raise WrongField(
            f"{where}.passage_answer.candidate_index is {passage}, but there are {num_passages} candidates"
        )
    span = _span(_field(value, "minimal_answer", dict, where), article, f"{where}.minimal_answer")
    yes_no = _field(value, "yes_no_answer", str, where).upper()
    if yes_no not in ("YES", "NO", "NONE"):
        raise WrongField(f"{where}.yes_no_answer is {yes_no!r}; it is to be YES, NO or NONE")
    return Annotation(max(passage, -1), span, yes_no)


def _span(value: Any, article: bytes, where: str) -> Span:
    begin, end = (_field(value, f"plaintext_{side}_byte", int, where) for side in ("start", "end"))
    if begin < 0 or end < 0:
        return NO_SPAN
    if not begin <= end <= len(article):
        raise WrongField(f"{where} has bytes {begin} to {end}, but document_plaintext has {len(article)}")
    for side, offset in (("start", begin), ("end", end)):
        if offset < len(article) and article[offset] & 0xC0 == 0x80:
            raise WrongField(
                f"{where}: plaintext_{side}_byte {offset} is inside of a character; offsets are bytes of UTF-8"
            )
    return begin, end


def _field(record: Any, name: str, kind: type, where: str = "") -> Any:
    return field(record, name, kind, where, _FORM)
