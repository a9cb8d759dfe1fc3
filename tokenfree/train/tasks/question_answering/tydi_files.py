"""Reads questions in the native form of TyDi QA: JSON lines, plain or gzipped, an article and its question a line.

Offsets there are bytes of `document_plaintext` in UTF-8 (Clark et al., TACL 2020; spec: canine, section 6.1).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Literal

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.tasks.examples.files import read_lines
from tokenfree.train.tasks.question_answering.json_fields import WrongField, field

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
