"""Predictions and scores of TyDi QA's primary tasks, as the official script defines them.

The definitions are those of the official script, including its quirks with missing predictions. All values are shares
from 0 to 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tokenfree.core.errors import UserError
from tokenfree.train.tasks.qa.files import NO_SPAN, Annotation, Span, TydiExample, YesNo, read_json_lines
from tokenfree.train.tasks.qa.windows import SpanAnswer


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


LEAST_ANNOTATORS = 2  # that have to have found an answer, so that there counts as one
NOT_AVERAGED = "english"


class TydiGold(NamedTuple):
    """What was annotated of one question."""

    example_id: int
    language: str
    annotations: Sequence[Annotation]


@dataclasses.dataclass(frozen=True, slots=True)
class BestF1:
    """The best F1 over all thresholds of the score; answers with a score below it count as none."""

    f1: float = 0.0
    precision: float = 0.0
    recall: float = 0.0
    threshold: float | None = 0.0  # None of a mean


class TaskScores(NamedTuple):
    """Of the two tasks."""

    passage: BestF1
    minimal: BestF1


class TydiScores(NamedTuple):
    """By language, and the means over the languages without English, of f1, precision and recall."""

    languages: Mapping[str, TaskScores]
    macro: TaskScores


class _Outcome(NamedTuple):
    has_gold: bool
    has_answer: bool
    credit: float  # 0 to 1
    score: float


def score_tydi(gold: Iterable[TydiGold], predictions: Iterable[TydiPrediction]) -> TydiScores:
    """The scores of all languages that have predictions.

    A question without a prediction in its language counts as answered, at score 0, if it has no answer.
    """
    gold_by_language: dict[str, list[TydiGold]] = {}
    for example in gold:
        gold_by_language.setdefault(example.language, []).append(example)
    found_by_language: dict[str, dict[int, TydiPrediction]] = {}
    for prediction in predictions:
        found_by_language.setdefault(prediction.language, {})[prediction.example_id] = prediction
    languages = {
        language: _task_scores(gold_by_language.get(language, []), found)
        for language, found in sorted(found_by_language.items())
    }
    averaged = [scores for language, scores in languages.items() if language != NOT_AVERAGED]
    macro = TaskScores(_mean([scores.passage for scores in averaged]), _mean([scores.minimal for scores in averaged]))
    return TydiScores(languages, macro)


def byte_overlap_f1(gold: Span, answer: Span) -> float:
    """F1 of the bytes of two spans that are not empty."""
    common = min(gold[1], answer[1]) - max(gold[0], answer[0])
    return 0.0 if common <= 0 else 2 * common / (gold[1] - gold[0] + answer[1] - answer[0])


def best_f1(outcomes: Iterable[tuple[bool, bool, float, float]]) -> BestF1:
    """The best F1 of a sweep over the thresholds.

    Args:
        outcomes: of each question whether it has an answer, whether one was given, its credit from 0 to 1, its score.
    """
    ordered = sorted((_Outcome(*outcome) for outcome in outcomes), key=lambda outcome: -outcome.score)
    num_gold = sum(outcome.has_gold for outcome in ordered)
    credit, num_answers, best = 0.0, 0, BestF1()
    for index, outcome in enumerate(ordered):
        credit += outcome.credit
        num_answers += outcome.has_answer
        if index + 1 < len(ordered) and ordered[index + 1].score == outcome.score:
            continue  # no threshold lies between equals
        precision = credit / num_answers if num_answers else 0.0
        recall = credit / num_gold if num_gold else 0.0
        f1 = 2 * precision * recall / (precision + recall) if credit else 0.0
        if f1 > best.f1:
            best = BestF1(f1, precision, recall, outcome.score)
    return best


def _task_scores(gold: Sequence[TydiGold], found: Mapping[int, TydiPrediction]) -> TaskScores:
    pairs = [(example.annotations, found.get(example.example_id)) for example in gold]
    return TaskScores(best_f1(_passage(*pair) for pair in pairs), best_f1(_minimal(*pair) for pair in pairs))


def _passage(annotations: Sequence[Annotation], prediction: TydiPrediction | None) -> _Outcome:
    gold = [annotation.passage for annotation in annotations if annotation.passage >= 0]
    has_gold = len(gold) >= LEAST_ANNOTATORS
    if prediction is None:
        return _Outcome(has_gold, not has_gold, 0.0, 0.0)
    right = has_gold and prediction.passage in gold
    return _Outcome(has_gold, prediction.passage >= 0, float(right), prediction.passage_score)


def _minimal(annotations: Sequence[Annotation], prediction: TydiPrediction | None) -> _Outcome:
    spans = [annotation.span for annotation in annotations if annotation.span != NO_SPAN]
    answered = sum(annotation.span != NO_SPAN or annotation.yes_no != "NONE" for annotation in annotations)
    has_gold = answered >= LEAST_ANNOTATORS
    if prediction is None:
        return _Outcome(has_gold, not has_gold, 0.0, 0.0)
    credit = 0.0
    if has_gold and prediction.yes_no != "NONE":
        credit = float(any(annotation.yes_no == prediction.yes_no for annotation in annotations))
    elif has_gold and prediction.span != NO_SPAN:
        credit = max((byte_overlap_f1(span, prediction.span) for span in spans), default=0.0)
    has_answer = prediction.span != NO_SPAN or prediction.yes_no != "NONE"
    return _Outcome(has_gold, has_answer, credit, prediction.span_score)


def _mean(scores: Sequence[BestF1]) -> BestF1:
    count = max(1, len(scores))
    f1, precision, recall = (
        sum(getattr(score, name) for score in scores) / count for name in ("f1", "precision", "recall")
    )
    return BestF1(f1, precision, recall, None)
