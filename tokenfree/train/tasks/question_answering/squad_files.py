"""Reads questions in the form of SQuAD 1.1 and 2.0, in which TyDi QA's gold passages, MLQA and XQuAD come too."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.tasks.examples.files import read_bytes
from tokenfree.train.tasks.question_answering.json_fields import WrongField, field

_FORM = "a file in the form of SQuAD"


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
        raise UserError(f"{path}: no JSON ({error}); give {_FORM}") from None
    try:
        examples = list(_examples(PurePath(path).name, document))
    except WrongField as wrong:
        raise UserError(f"{path}: {wrong}") from None
    if not examples:
        raise UserError(f"{path}: holds no questions; give {_FORM}")
    return examples


def _examples(name: str, document: Any) -> Iterator[SquadExample]:
    seen: dict[str, str] = {}
    for where, article in _each(document, "data", ""):
        for place, paragraph in _each(article, "paragraphs", where):
            context = _field(paragraph, "context", str, place)
            for here, question in _each(paragraph, "qas", place):
                example = SquadExample(
                    f"{name}: {here}",
                    _field(question, "id", str, here),
                    _field(question, "question", str, here),
                    context,
                    tuple(_answer(*each, context) for each in _each(question, "answers", here)),
                )
                if example.question_id in seen:
                    twice = f"{here}.id: {example.question_id!r} is that of {seen[example.question_id]} too"
                    raise WrongField(f"{twice}; leave one of the two out")
                seen[example.question_id] = here
                yield example


def _answer(where: str, answer: Any, context: str) -> SquadAnswer:
    text, start = _field(answer, "text", str, where), _field(answer, "answer_start", int, where)
    if not 0 <= start <= len(context):
        raise WrongField(f"{where}.answer_start is {start}, but the context has {len(context)} characters")
    return SquadAnswer(text, start)


def _each(record: Any, name: str, where: str) -> Iterator[tuple[str, Any]]:
    full = f"{where}.{name}" if where else name
    yield from ((f"{full}[{index}]", value) for index, value in enumerate(_field(record, name, list, where)))


def _field(record: Any, name: str, kind: type, where: str) -> Any:
    return field(record, name, kind, where, _FORM)
