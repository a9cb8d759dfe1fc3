"""TyDi QA's primary tasks: which passage of an article answers a question, and which bytes of it are the answer.

Windows, targets and decoding follow CANINE's code (https://arxiv.org/abs/2103.06874, section 4.1). Yes or no
is never predicted. Offsets are bytes of `document_plaintext` in UTF-8. Predictions and scores match the
official script.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

from pydantic import Field, StrictInt
from typing_extensions import TypedDict

from tokenfree.core.errors import UserError
from tokenfree.core.settings import settings
from tokenfree.train.tasks.base import Item, Metrics, Outputs, Split
from tokenfree.train.tasks.examples.files import parse_form, read_lines
from tokenfree.train.tasks.questions import (
    MINIMAL,
    NUM_TYPES,
    PASSAGE,
    AnswerTarget,
    Passage,
    QuestionAnswering,
    Readable,
    Span,
    SpanAnswer,
    UnusableAnswer,
    answer_fields,
    split_raw,
)

NO_SPAN: Span = (-1, -1)
# Annotators who must have found an answer for the question to count as answerable.
MIN_ANNOTATORS = 2
NOT_AVERAGED = "english"
TASKS = ("minimal", "passage")


class _Bytes(TypedDict):
    plaintext_start_byte: StrictInt
    plaintext_end_byte: StrictInt


class _PassageAnswer(TypedDict):
    candidate_index: StrictInt


class _Annotation(TypedDict):
    passage_answer: _PassageAnswer
    minimal_answer: _Bytes
    yes_no_answer: str


class _Line(TypedDict):
    example_id: StrictInt
    language: str
    question_text: str
    document_plaintext: str
    passage_answer_candidates: list[_Bytes]
    annotations: NotRequired[list[_Annotation] | None]


class Annotation(NamedTuple):
    passage: int  # index among the candidates; -1: no passage answers the question
    span: Span  # minimal answer in the article, or `NO_SPAN`
    yes_no: str  # YES, NO or NONE


@dataclasses.dataclass(frozen=True, slots=True, eq=False)  # compared by identity: articles are long
class TydiExample:
    key: str  # place in the file, such as "dev.jsonl.gz:3"
    example_id: int
    language: str  # in lower case
    question: str
    article: bytes  # UTF-8
    passages: Sequence[Span]  # candidates; `NO_SPAN` for one whose place is unknown
    annotations: Sequence[Annotation] | None  # None: the file has none


def read_tydi(path: str) -> Iterator[TydiExample]:
    """Yield the examples of a file in order.

    Raises UserError if it cannot be read or a line is not an example.
    """
    seen: dict[int, str] = {}
    for number, text in enumerate(read_lines(path), 1):
        if not text.strip():
            continue
        key, place = f"{PurePath(path).name}:{number}", f"{path}: line {number}"
        line: _Line = parse_form(_Line, text, place)
        name, article = line["example_id"], line["document_plaintext"].encode("utf-8", "surrogatepass")
        if name in seen:
            raise UserError(f"{place}: example_id {name} is that of {seen[name]} too. Remove one of the two.")
        seen[name] = key
        passages = [_span(candidate, article, place) for candidate in line["passage_answer_candidates"]]
        raw = line.get("annotations")
        annotations = None if raw is None else [_annotation(annotation, article, place) for annotation in raw]
        yield TydiExample(
            key, name, line["language"].lower(), line["question_text"], article, passages, annotations
        )
    if not seen:
        raise UserError(f"{path}: holds no questions. Give a file of TyDi QA's primary tasks.")


def _annotation(value: _Annotation, article: bytes, place: str) -> Annotation:
    passage = max(value["passage_answer"]["candidate_index"], -1)
    return Annotation(passage, _span(value["minimal_answer"], article, place), value["yes_no_answer"].upper())


def _span(value: _Bytes, article: bytes, place: str) -> Span:
    begin, end = value["plaintext_start_byte"], value["plaintext_end_byte"]
    if begin < 0 or end < 0:
        return NO_SPAN
    is_inside = any(at < len(article) and article[at] & 0xC0 == 0x80 for at in (begin, end))
    if is_inside or not begin <= end <= len(article):
        raise UserError(
            f"{place}: bytes {begin} to {end} are not characters of document_plaintext. Fix the offsets."
        )
    return begin, end


@settings
class Config(QuestionAnswering):
    """TyDi QA's primary tasks, in its format.

    Attributes:
        max_passages: maximum number of passages of an article that are read.
    """

    name: Literal["qa_tydi"] = "qa_tydi"
    max_passages: Annotated[int, Field(ge=1, le=45)] = 45

    markers = True
    num_types = NUM_TYPES
    trains_pooled = True

    def examples(self, split: Split, path: str) -> Sequence[TydiExample]:
        return list(read_tydi(path))

    def raw(self, key: str, text: str) -> TydiExample:
        question, article = split_raw(key, text)
        return TydiExample(key, 0, "", question, article, [(0, len(article))], None)

    def passages(self, example: TydiExample) -> list[Passage]:
        return [
            Passage(index, begin, example.article[begin:end])
            for index, (begin, end) in enumerate(example.passages[: self.max_passages])
            if (begin, end) != NO_SPAN and begin < end
        ]

    def target(self, example: TydiExample, text: Readable) -> AnswerTarget | None:
        """Return the minimal answer in the first passage that has one, else the first passage that answers.

        As in CANINE's code, a yes or no is learned as a passage, and an answer after `max_passages` as no
        answer.
        """
        marked = [a for a in example.annotations or () if 0 <= a.passage < self.max_passages]
        # Stable: the first annotator of a passage stays first.
        marked.sort(key=lambda annotation: annotation.passage)
        for annotation in marked:
            if annotation.span != NO_SPAN:
                vectors = text.find(annotation.span, annotation.passage)
                if vectors is None:
                    raise UnusableAnswer(
                        f"{example.key}: the minimal answer is not in passage {annotation.passage}"
                    )
                return AnswerTarget(MINIMAL, vectors)
        passage = text.passages.get(marked[0].passage) if marked else None
        return AnswerTarget(PASSAGE, passage) if passage else None

    def is_annotated(self, example: TydiExample) -> bool:
        return example.annotations is not None

    def predictions(
        self, examples: Sequence[TydiExample], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        answers = self.answers(examples, items, outputs)
        return [
            {
                "key": example.key,
                **official_prediction(example, answer),
                **answer_fields(example.article, answer),
            }
            for example, answer in zip(examples, answers, strict=True)
        ]

    def scores(
        self, examples: Sequence[TydiExample], predictions: Sequence[Mapping[str, Any]]
    ) -> Metrics | None:
        """Return F1, precision and recall of both tasks, and the F1 of each language.

        The values of a task are means over the languages except English, unless all questions are in English.
        """
        if any(example.annotations is None for example in examples):
            return None
        by_language = score_tydi(examples, predictions)
        averaged = [name for name in by_language if name != NOT_AVERAGED] or list(by_language)
        values: dict[str, float] = {}
        for task in TASKS:
            for name in BestF1._fields:
                of_languages = [getattr(by_language[language][task], name) for language in averaged]
                values[f"{task}_{name}"] = sum(of_languages) / max(1, len(of_languages))
            values |= {f"{task}_f1/{language}": scores[task].f1 for language, scores in by_language.items()}
        return Metrics(values, "minimal_f1")


def official_prediction(example: TydiExample, answer: SpanAnswer | None) -> dict[str, Any]:
    """Return an answer (None for no answer) in the official format, with the first passage that contains it, else 0."""
    passage, (begin, end), score = -1, NO_SPAN, 0.0
    if answer is not None:
        (begin, end), score = answer
        held = (
            n
            for n, (first, last) in enumerate(example.passages)
            if first != -1 and first <= begin and end <= last
        )
        passage = next(held, 0)
    return {
        "example_id": example.example_id,
        "language": example.language,
        "passage_answer_index": passage,
        "passage_answer_score": score,
        "minimal_answer": {"start_byte_offset": begin, "end_byte_offset": end},
        "minimal_answer_score": score,
        "yes_no_answer": "NONE",
    }


class BestF1(NamedTuple):
    """The best F1 over all score thresholds. Answers that score below the threshold count as no answer."""

    f1: float = 0.0
    precision: float = 0.0
    recall: float = 0.0


class Outcome(NamedTuple):
    has_gold: bool
    has_answer: bool
    credit: float  # 0 to 1
    score: float


def score_tydi(
    gold: Iterable[TydiExample], predictions: Iterable[Mapping[str, Any]]
) -> dict[str, dict[str, BestF1]]:
    """Return the scores of both `TASKS` for each language of the `predictions`, which have the official format.

    As in the official script, a question without a prediction counts as answered, with score 0, if it has no
    answer.
    """
    by_language: dict[str, dict[int, Mapping[str, Any]]] = {}
    for line in predictions:
        by_language.setdefault(line["language"].lower(), {})[line["example_id"]] = line
    asked: dict[str, list[TydiExample]] = {language: [] for language in sorted(by_language)}
    for example in gold:
        asked.get(example.language, []).append(example)
    return {
        language: {
            task: best_f1(
                judge(example.annotations or (), by_language[language].get(example.example_id))
                for example in of
            )
            for task, judge in (("minimal", _minimal), ("passage", _passage))
        }
        for language, of in asked.items()
    }


def byte_overlap_f1(gold: Span, answer: Span) -> float:
    common = min(gold[1], answer[1]) - max(gold[0], answer[0])
    return 0.0 if common <= 0 else 2 * common / (gold[1] - gold[0] + answer[1] - answer[0])


def best_f1(outcomes: Iterable[Outcome]) -> BestF1:
    ordered = sorted(outcomes, key=lambda outcome: -outcome.score)
    num_gold = sum(outcome.has_gold for outcome in ordered)
    credit, num_answers, best = 0.0, 0, BestF1()
    for index, outcome in enumerate(ordered):
        credit += outcome.credit
        num_answers += outcome.has_answer
        if index + 1 < len(ordered) and ordered[index + 1].score == outcome.score:
            # No threshold separates equal scores.
            continue
        precision = credit / num_answers if num_answers else 0.0
        recall = credit / num_gold if num_gold else 0.0
        f1 = 2 * precision * recall / (precision + recall) if credit else 0.0
        if f1 > best.f1:
            best = BestF1(f1, precision, recall)
    return best


def _passage(annotations: Sequence[Annotation], line: Mapping[str, Any] | None) -> Outcome:
    gold = [annotation.passage for annotation in annotations if annotation.passage >= 0]
    has_gold = len(gold) >= MIN_ANNOTATORS
    if line is None:
        return Outcome(has_gold, not has_gold, 0.0, 0.0)
    answered = line["passage_answer_index"]
    return Outcome(
        has_gold, answered >= 0, float(has_gold and answered in gold), line["passage_answer_score"]
    )


def _minimal(annotations: Sequence[Annotation], line: Mapping[str, Any] | None) -> Outcome:
    spans = [annotation.span for annotation in annotations if annotation.span != NO_SPAN]
    has_gold = sum(a.span != NO_SPAN or a.yes_no != "NONE" for a in annotations) >= MIN_ANNOTATORS
    if line is None:
        return Outcome(has_gold, not has_gold, 0.0, 0.0)
    span = line["minimal_answer"]["start_byte_offset"], line["minimal_answer"]["end_byte_offset"]
    yes_no, credit = line["yes_no_answer"], 0.0
    if has_gold and yes_no != "NONE":
        credit = float(any(annotation.yes_no == yes_no for annotation in annotations))
    elif has_gold and span[0] >= 0:
        credit = max((byte_overlap_f1(gold_span, span) for gold_span in spans), default=0.0)
    return Outcome(has_gold, span[0] >= 0 or yes_no != "NONE", credit, line["minimal_answer_score"])
