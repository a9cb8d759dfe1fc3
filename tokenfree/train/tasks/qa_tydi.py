"""TyDi QA's primary tasks: which passage of an article answers a question, and which bytes of it are the answer.

As in CANINE's code (https://arxiv.org/abs/2103.06874, section 4.1): windows over the marked
passages, the answer of the first annotator with one, and neither yes nor no is ever answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from tokenfree.core.settings import settings
from tokenfree.train.tasks.base import Item, Outputs, Split
from tokenfree.train.tasks.metrics import Metrics
from tokenfree.train.tasks.qa.files import TydiExample, read_tydi
from tokenfree.train.tasks.qa.task import QuestionAnswering, shown, split_raw
from tokenfree.train.tasks.qa.tydi import NOT_AVERAGED, TydiGold, prediction_of, score_tydi, tydi_prediction
from tokenfree.train.tasks.qa.windows import NUM_TYPES, AnswerTarget, Passage, Readable, tydi_passages, tydi_target


@settings
class Config(QuestionAnswering):
    """TyDi QA's primary tasks, in its own format.

    Attributes:
        max_passages: passages of an article that are read.
    """

    name: Literal["qa_tydi"] = "qa_tydi"
    max_passages: Annotated[int, Field(ge=1, le=45)] = 45

    markers = True
    num_types = NUM_TYPES
    trains_pooled = True

    def examples(self, split: Split, path: str | None) -> Sequence[TydiExample]:
        assert path is not None, "the task needs files"
        return list(read_tydi(path))

    def raw(self, key: str, text: str) -> TydiExample:
        """A question and, behind a tab, a text of one passage."""
        question, article = split_raw(key, text)
        return TydiExample(key, 0, "", question, article, ((0, len(article)),), None)

    def passages(self, example: TydiExample) -> list[Passage]:
        """See `QuestionAnswering.passages`."""
        return tydi_passages(example, self.max_passages)

    def target(self, example: TydiExample, text: Readable) -> AnswerTarget | None:
        """See `QuestionAnswering.target`."""
        return tydi_target(example, text, self.max_passages)

    def is_annotated(self, example: TydiExample) -> bool:
        """See `QuestionAnswering.is_annotated`."""
        return example.annotations is not None

    def predictions(
        self, examples: Sequence[TydiExample], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        """Lines of the official form, with `key`, the `answer` as text, empty for none, and its `span`: `text`, `start`
        and `end` in characters, `start_byte` and `end_byte`; null for none.
        """
        answers = self.answers(examples, items, outputs)
        return [
            {"key": example.key, **tydi_prediction(example, answer).to_json()} | shown(example.article, answer)
            for example, answer in zip(examples, answers, strict=True)
        ]

    def scores(self, examples: Sequence[TydiExample], predictions: Sequence[Mapping[str, Any]]) -> Metrics | None:
        """F1, precision and recall of both tasks: means over the languages without English, and F1 of each language.

        Of questions in English alone the means are those of English.
        """
        gold = [TydiGold(e.example_id, e.language, e.annotations) for e in examples if e.annotations is not None]
        if len(gold) < len(examples):
            return None
        scores = score_tydi(gold, map(prediction_of, predictions))
        mean = scores.languages[NOT_AVERAGED] if set(scores.languages) == {NOT_AVERAGED} else scores.macro
        values: dict[str, float] = {}
        for task in ("minimal", "passage"):
            for name in ("f1", "precision", "recall"):
                values[f"{task}_{name}"] = getattr(getattr(mean, task), name)
            for language, of_language in scores.languages.items():
                values[f"{task}_f1/{language}"] = getattr(of_language, task).f1
        return Metrics(values, "minimal_f1")
