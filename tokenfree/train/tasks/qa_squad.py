"""Questions about a context, in the format of SQuAD 1.1 and 2.0, TyDi QA's gold passages, MLQA and XQuAD.

Exact match and word F1 follow the official scripts of SQuAD, also for the other sets. All values are shares.
"""

import collections
import dataclasses
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Self

from pydantic import Field, StrictInt
from typing_extensions import TypedDict

from tokenfree.core.errors import UserError
from tokenfree.core.settings import settings
from tokenfree.train.tasks.base import Item, Metrics, Outputs, Predict, Split
from tokenfree.train.tasks.examples.files import parse_form, read_lines
from tokenfree.train.tasks.questions import (
    MINIMAL,
    AnswerTarget,
    Passage,
    QuestionAnswering,
    Readable,
    SpanAnswer,
    UnusableAnswer,
    answer_fields,
    split_raw,
)

# Score if there is no span; JSON has no infinity.
NO_SPAN_SCORE = -1e9
TYDI_LANGUAGES = frozenset(
    ("arabic", "bengali", "english", "finnish", "indonesian", "japanese", "korean", "russian", "swahili", "telugu",
     "thai")
)  # fmt: skip
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class SquadAnswer(TypedDict):
    text: str
    answer_start: StrictInt


class _Question(TypedDict):
    id: str | StrictInt
    question: str
    answers: list[SquadAnswer]
    is_impossible: NotRequired[bool]


class _Paragraph(TypedDict):
    context: str
    qas: list[_Question]


class _Article(TypedDict):
    paragraphs: list[_Paragraph]


class _File(TypedDict):
    data: list[_Article]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)  # compared by identity: contexts are long
class SquadExample:
    key: str  # place in the file, such as "dev.json: data[3].paragraphs[0].qas[2]"
    question_id: str
    question: str
    context: str
    answers: Sequence[SquadAnswer] | None  # all correct answers; empty: unanswerable; None: not annotated


def read_squad(path: str) -> list[SquadExample]:
    """Return the questions of a file in order.

    Raises UserError if the file cannot be read or has another format. Questions that are marked as
    impossible, or have only empty answers, are unanswerable.
    """
    file: _File = parse_form(_File, "".join(read_lines(path)), path)
    examples: dict[str, SquadExample] = {}
    for i, article in enumerate(file["data"]):
        for j, paragraph in enumerate(article["paragraphs"]):
            for k, question in enumerate(paragraph["qas"]):
                key = f"{PurePath(path).name}: data[{i}].paragraphs[{j}].qas[{k}]"
                name, context = str(question["id"]), paragraph["context"]
                answers = [
                    answer
                    for answer in question["answers"]
                    if answer["text"].strip() and not question.get("is_impossible")
                ]
                if name in examples:
                    raise UserError(
                        f"{path}: {key}: id {name!r} is that of {examples[name].key} too. Remove one."
                    )
                for answer in answers:
                    if not 0 <= answer["answer_start"] <= len(context):
                        raise UserError(
                            f"{path}: {key}: answer_start is {answer['answer_start']}, but the context has "
                            f"{len(context)} characters. Fix the offset."
                        )
                examples[name] = SquadExample(key, name, question["question"], context, answers)
    if not examples:
        raise UserError(f"{path}: holds no questions. Give a file in the form of SQuAD.")
    return list(examples.values())


@settings
class Config(QuestionAnswering):
    """Questions about a context, in the format of SQuAD.

    Attributes:
        unanswerable: whether to predict no answer if no span scores above 0; null: if a training question has
            none.
    """

    name: Literal["qa_squad"] = "qa_squad"
    other_windows: Annotated[float, Field(ge=0, le=1)] = 1.0
    unanswerable: bool | None = None

    def examples(self, split: Split, path: str) -> Sequence[SquadExample]:
        return read_squad(path)

    def raw(self, key: str, text: str) -> SquadExample:
        question, context = split_raw(key, text)
        return SquadExample(key, key, question, context.decode("utf-8", "surrogatepass"), None)

    def fitted(self, examples: Sequence[SquadExample]) -> Self:
        if self.unanswerable is not None:
            return self
        return dataclasses.replace(self, unanswerable=not all(example.answers for example in examples))

    def passages(self, example: SquadExample) -> list[Passage]:
        return [Passage(0, 0, _encoded(example.context))]

    def target(self, example: SquadExample, text: Readable) -> AnswerTarget | None:
        if not example.answers:
            return None
        answer, start = example.answers[0]["text"], example.answers[0]["answer_start"]
        begin, end = (len(_encoded(example.context[:at])) for at in (start, start + len(answer)))
        vectors = text.find((begin, end), 0)
        if vectors is None or not example.context.startswith(answer, start):
            raise UnusableAnswer(f"{example.key}: {answer!r} is not at character {start} of the context")
        return AnswerTarget(MINIMAL, vectors)

    def is_annotated(self, example: SquadExample) -> bool:
        return example.answers is not None

    def predictions(
        self, examples: Sequence[SquadExample], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        """Return `key`, `id`, `answer` (empty for none), the best `span`, its `score`, and `gold` if annotated."""
        answers = self.answers(examples, items, outputs)
        return [self._prediction(*pair) for pair in zip(examples, answers, strict=True)]

    def scores(
        self, examples: Sequence[SquadExample], predictions: Sequence[Mapping[str, Any]]
    ) -> Metrics | None:
        """Return exact match and F1, also by answerability and at the best threshold if some questions have no answer.

        For TyDi QA's gold passages, whose ids name the language, the means are over the languages except
        English.
        """
        gold = {e.question_id: [a["text"] for a in e.answers] for e in examples if e.answers is not None}
        if len(gold) < len(examples):
            return None
        answers = {line["id"]: line["answer"] for line in predictions}
        squad_scores = score_squad(gold, answers)
        values = {"f1": squad_scores["all"].f1, "exact_match": squad_scores["all"].exact_match}
        for kind in list(squad_scores)[1:]:
            values |= {
                f"f1/{kind}": squad_scores[kind].f1,
                f"exact_match/{kind}": squad_scores[kind].exact_match,
            }
        if self.unanswerable:
            spans = {line["id"]: "" if line["span"] is None else line["span"]["text"] for line in predictions}
            best = best_with_threshold(gold, spans, {line["id"]: line["score"] for line in predictions})
            values |= {"f1/best_threshold": best.f1, "exact_match/best_threshold": best.exact_match}
        by_language = {
            language: score_squad({key: gold[key] for key in keys}, answers)["all"]
            for language, keys in _languages_of(gold).items()
        }
        if by_language:
            averaged = [of for language, of in by_language.items() if language != "english"] or list(
                by_language.values()
            )
            values |= {
                "exact_match": sum(of.exact_match for of in averaged) / len(averaged),
                "f1": sum(of.f1 for of in averaged) / len(averaged),
                **{f"f1/{language}": of.f1 for language, of in by_language.items()},
            }
        return Metrics(values, "f1")

    def baselines(self, examples: Sequence[SquadExample]) -> Mapping[str, Predict]:
        return {"no answer": lambda others: self.predictions(others, (), ())} if self.unanswerable else {}

    def _prediction(self, example: SquadExample, answer: SpanAnswer | None) -> dict[str, Any]:
        fields = answer_fields(_encoded(example.context), answer)
        score = NO_SPAN_SCORE if answer is None else answer.score
        nothing = {"answer": ""} if self.unanswerable and score <= 0 else {}
        gold = (
            {}
            if example.answers is None
            else {"gold": [gold_answer["text"] for gold_answer in example.answers]}
        )
        return {"key": example.key, "id": example.question_id, **fields, **nothing, "score": score, **gold}


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class SquadScores(NamedTuple):
    """Means over questions: the share of exact matches, and the word F1 with the most similar correct answer."""

    exact_match: float
    f1: float


def normalized(answer: str) -> str:
    """Return an answer in lower case, without ASCII punctuation and articles, with single spaces between words."""
    answer = "".join(character for character in answer.lower() if character not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", answer).split())


def word_f1(gold: str, answer: str) -> float:
    """Return the F1 of the words of both after normalization; 0 if either has none."""
    gold_words, words = normalized(gold).split(), normalized(answer).split()
    common = (collections.Counter(gold_words) & collections.Counter(words)).total()
    return 2 * common / (len(gold_words) + len(words)) if common else 0.0


def score_squad(gold: Mapping[str, Sequence[str]], answers: Mapping[str, str]) -> dict[str, SquadScores]:
    """Return the scores of `all` questions and, if some have no answer, of the `answerable` and the `unanswerable`.

    If all have an answer, the rules are those of SQuAD 1.1, otherwise those of SQuAD 2.0. An empty answer
    means none. A question that is missing in `answers` gets no credit.
    """
    credits = {name: _credits(texts, answers.get(name)) for name, texts in _right_answers(gold).items()}
    scores = {"all": _mean(credits.values())}
    without = {name for name, texts in gold.items() if not texts}
    if without:
        scores["answerable"] = _mean(credits[name] for name in credits if name not in without)
        scores["unanswerable"] = _mean(credits[name] for name in without)
    return scores


def best_with_threshold(
    gold: Mapping[str, Sequence[str]], answers: Mapping[str, str], scores: Mapping[str, float]
) -> SquadScores:
    """Return the F1 at the best threshold of `scores` for answering, and the exact match at that threshold."""
    right = _right_answers(gold)
    ordered = sorted(right, key=lambda name: -scores[name])
    refused = {name: _credits(right[name], "") for name in ordered}
    current = [sum(column) for column in zip(*refused.values(), strict=True)]
    best = list(current)
    for index, name in enumerate(ordered):
        answer_credits = _credits(right[name], answers[name])
        current = [
            total + now - previous
            for total, now, previous in zip(current, answer_credits, refused[name], strict=True)
        ]
        if index + 1 < len(ordered) and scores[ordered[index + 1]] == scores[name]:
            # No threshold separates equal scores.
            continue
        if current[1] > best[1]:
            best = list(current)
    return SquadScores(best[0] / len(right), best[1] / len(right))


def _languages_of(ids: Iterable[str]) -> dict[str, list[str]]:
    ids_by_language: dict[str, list[str]] = {}
    for name in ids:
        language = name.split("-")[0]
        if language not in TYDI_LANGUAGES:
            return {}
        ids_by_language.setdefault(language, []).append(name)
    return ids_by_language


def _right_answers(gold: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the answers of each question.

    In SQuAD 2.0, drop answers without words, and use "" if none is left.
    """
    if all(gold.values()):
        return {name: list(texts) for name, texts in gold.items()}
    return {name: [text for text in texts if normalized(text)] or [""] for name, texts in gold.items()}


def _credits(right: Sequence[str], answer: str | None) -> tuple[float, float]:
    if answer is None:
        return 0.0, 0.0
    exact = max(float(normalized(gold) == normalized(answer)) for gold in right)
    return exact, exact if "" in right else max(word_f1(gold, answer) for gold in right)


def _mean(credits: Iterable[tuple[float, float]]) -> SquadScores:
    credits = list(credits)
    count = max(1, len(credits))
    return SquadScores(sum(exact for exact, _ in credits) / count, sum(f1 for _, f1 in credits) / count)
