"""Answers to questions of TyDi QA, as its official prediction file has them: a JSON object a line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.tasks.question_answering.spans import SpanAnswer
from tokenfree.train.tasks.question_answering.tydi_files import NO_SPAN, Span, TydiExample, YesNo, read_json_lines


@dataclasses.dataclass(frozen=True, slots=True)
class TydiPrediction:
    """What is answered to one question. Scores order the answers of different questions by how sure they are."""

    example_id: int
    language: str
    passage: int = -1  # -1: none
    passage_score: float = 0.0
    span: Span = NO_SPAN  # bytes of the article
    span_score: float = 0.0
    yes_no: YesNo = "NONE"

    def to_json(self) -> dict[str, Any]:
        """The official form."""
        return {
            "example_id": self.example_id,
            "language": self.language,
            "passage_answer_index": self.passage,
            "passage_answer_score": self.passage_score,
            "minimal_answer": {"start_byte_offset": self.span[0], "end_byte_offset": self.span[1]},
            "minimal_answer_score": self.span_score,
            "yes_no_answer": self.yes_no,
        }


def tydi_prediction(example: TydiExample, answer: SpanAnswer | None) -> TydiPrediction:
    """The prediction for a question: the answer, and the first passage that it is in, else the passage 0.

    Args:
        example: of the question.
        answer: None: the question stays without one.
    """
    if answer is None:
        return TydiPrediction(example.example_id, example.language)
    begin, end = answer.span
    within = (
        index
        for index, (first, last) in enumerate(example.passages)
        if (first, last) != NO_SPAN and first <= begin and end <= last
    )
    return TydiPrediction(
        example.example_id, example.language, next(within, 0), answer.score, answer.span, answer.score
    )


def read_predictions(path: str) -> list[TydiPrediction]:
    """The predictions of a file in the official form.

    Raises:
        UserError: the file cannot be read, or a line is no prediction; file, line and field are named.
    """
    found: dict[int, TydiPrediction] = {}
    for number, record in read_json_lines(path):
        try:
            prediction = prediction_of(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            told = f"has no {error}" if isinstance(error, KeyError) else str(error)
            raise UserError(f"{path}:{number}: no prediction for TyDi QA: {told}") from None
        if prediction.example_id in found:
            raise UserError(
                f"{path}:{number}: a second prediction for example_id {prediction.example_id}; leave one out"
            )
        found[prediction.example_id] = prediction
    return list(found.values())


def prediction_of(record: Mapping[str, Any]) -> TydiPrediction:
    """The prediction that an object of the official form is.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is none.
    """
    minimal = record.get("minimal_answer", {})
    begin, end = (int(minimal.get(f"{side}_byte_offset", -1)) for side in ("start", "end"))
    if (begin < 0) != (end < 0) or begin > end:
        raise ValueError(f"minimal_answer goes from byte {begin} to {end}")
    yes_no = str(record.get("yes_no_answer", "NONE")).upper()
    if yes_no not in ("YES", "NO", "NONE"):
        raise ValueError(f"yes_no_answer is {yes_no!r}; it is to be YES, NO or NONE")
    if yes_no != "NONE" and begin >= 0:
        raise ValueError(f"yes_no_answer is {yes_no} and there is a minimal_answer; leave one of the two out")
    return TydiPrediction(
        int(record["example_id"]),
        str(record["language"]).lower(),
        max(-1, int(record.get("passage_answer_index", -1))),
        float(record["passage_answer_score"]),
        (begin, end) if begin >= 0 else NO_SPAN,
        float(record["minimal_answer_score"]),
        yes_no,
    )
