"""How good answers to TyDi QA's primary tasks are: F1 of passages and of minimal answers at the best threshold.

The definitions are those of the official script, its quirks with missing predictions included (spec: canine, section
6.1). All values are shares, from 0 to 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tokenfree.train.tasks.question_answering.tydi_files import NO_SPAN, Annotation, Span
from tokenfree.train.tasks.question_answering.tydi_predictions import TydiPrediction

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
