"""Questions about a context, in the form of SQuAD 1.1 and 2.0; so come TyDi QA's gold passages, MLQA and XQuAD too."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import Self

from tokenfree.core.settings import settings
from tokenfree.train.tasks.base import Item, Outputs, Split
from tokenfree.train.tasks.metrics import Metrics
from tokenfree.train.tasks.qa.files import SquadExample, encoded, read_squad
from tokenfree.train.tasks.qa.squad import Rules, best_with_threshold, languages_of, mean_of_languages, score_squad
from tokenfree.train.tasks.qa.task import QuestionAnswering, shown, split_raw
from tokenfree.train.tasks.qa.windows import AnswerTarget, Passage, Readable, SpanAnswer, squad_target

LEAST_SCORE = -1e9  # of no span at all; JSON has no infinity


@settings
class Config(QuestionAnswering):
    """Questions about a context, in the form of SQuAD.

    Attributes:
        unanswerable: whether nothing may be the answer: where no span has a score above 0; null: if so in training.
        rules: of comparing answers: `squad`, as SQuAD and TyDi QA's gold passages have them for every language, or the
            language whose rules in MLQA they are.
    """

    name: Literal["qa_squad"] = "qa_squad"
    other_windows: Annotated[float, Field(ge=0, le=1)] = 1.0
    unanswerable: bool | None = None
    rules: Rules = "squad"

    def examples(self, split: Split, path: str | None) -> Sequence[SquadExample]:
        assert path is not None, "the task needs files"
        return read_squad(path)

    def raw(self, key: str, text: str) -> SquadExample:
        """A question and, behind a tab, its context."""
        question, context = split_raw(key, text)
        return SquadExample(key, key, question, context.decode("utf-8", "surrogatepass"), None)

    def fitted(self, examples: Sequence[SquadExample]) -> Self:
        if self.unanswerable is not None:
            return self
        return dataclasses.replace(self, unanswerable=not all(example.answers for example in examples))

    def passages(self, example: SquadExample) -> list[Passage]:
        """The context."""
        return [Passage(0, 0, encoded(example.context))]

    def target(self, example: SquadExample, text: Readable) -> AnswerTarget | None:
        """See `QuestionAnswering.target`."""
        return squad_target(example, text)

    def is_annotated(self, example: SquadExample) -> bool:
        """See `QuestionAnswering.is_annotated`."""
        return example.answers is not None

    def predictions(
        self, examples: Sequence[SquadExample], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        """`key`, `id`, the `answer` as text, empty for nothing, and the `score` of the best `span`: `text`, `start` and
        `end` in characters, `start_byte` and `end_byte`; `gold` where given.
        """
        answers = self.answers(examples, items, outputs)
        return [self._prediction(*each) for each in zip(examples, answers, strict=True)]

    def scores(self, examples: Sequence[SquadExample], predictions: Sequence[Mapping[str, Any]]) -> Metrics | None:
        """Exact match and F1.

        Where questions have no answer, also of those with and without one, and the best that a threshold of the score
        gives. Of TyDi QA's gold passages, whose ids name the language, the means are over languages without English.
        """
        gold = {e.question_id: [a.text for a in e.answers] for e in examples if e.answers is not None}
        if len(gold) < len(examples):
            return None
        answers = {line["id"]: line["answer"] for line in predictions}
        found = score_squad(gold, answers, self.rules)
        values = {"f1": found["all"].f1, "exact_match": found["all"].exact_match}
        for kind in list(found)[1:]:
            values |= {f"f1/{kind}": found[kind].f1, f"exact_match/{kind}": found[kind].exact_match}
        if self.unanswerable:
            spans = {line["id"]: "" if line["span"] is None else line["span"]["text"] for line in predictions}
            best, _ = best_with_threshold(gold, spans, {line["id"]: line["score"] for line in predictions}, self.rules)
            values |= {"f1/best_threshold": best.f1, "exact_match/best_threshold": best.exact_match}
        languages = languages_of(gold)
        if languages:
            of_each = {
                name: score_squad({key: gold[key] for key in keys}, answers, self.rules)["all"]
                for name, keys in languages.items()
            }
            mean = mean_of_languages(of_each)
            values |= {"exact_match": mean.exact_match, "f1": mean.f1}
            values |= {f"f1/{name}": scores.f1 for name, scores in of_each.items()}
        return Metrics(values, "f1")

    def _prediction(self, example: SquadExample, answer: SpanAnswer | None) -> dict[str, Any]:
        found = shown(encoded(example.context), answer)
        score = LEAST_SCORE if answer is None else answer.score
        nothing = {"answer": ""} if self.unanswerable and score <= 0 else {}
        gold = {} if example.answers is None else {"gold": [each.text for each in example.answers]}
        return {"key": example.key, "id": example.question_id, **found, **nothing, "score": score, **gold}
