"""The answer that is learned of a question, of the several that are right."""

from __future__ import annotations

from tokenfree.train.tasks.question_answering.readable import Readable
from tokenfree.train.tasks.question_answering.squad_files import SquadExample, encoded
from tokenfree.train.tasks.question_answering.tydi_files import NO_SPAN, TydiExample
from tokenfree.train.tasks.question_answering.windows import MINIMAL, PASSAGE, AnswerTarget


class UnusableAnswer(Exception):
    """An annotated answer that is not where it is said to be; the question is left out of training."""


def tydi_target(example: TydiExample, text: Readable, max_passages: int) -> AnswerTarget | None:
    """The minimal answer in the first of the passages that have one, else the first passage that answers.

    As in CANINE's code, answers of yes and no are learned as passages, and what lies behind `max_passages` as none.

    Args:
        text: what is read of the article, of no more than `max_passages` passages.

    Raises:
        UnusableAnswer: the minimal answer is empty or not within its passage.
    """
    marked = [a for a in example.annotations or () if 0 <= a.passage < max_passages]
    marked.sort(key=lambda annotation: annotation.passage)  # stable: of one passage, the first annotator's
    minimal = next((annotation for annotation in marked if annotation.span != NO_SPAN), None)
    chosen = minimal or next(iter(marked), None)
    if chosen is None:
        return None
    if minimal is None:
        passage = text.passages.get(chosen.passage)
        return AnswerTarget(PASSAGE, passage) if passage else None
    vectors = text.find(minimal.span, minimal.passage)
    if vectors is None:
        raise UnusableAnswer(f"{example.key}: the minimal answer is not in passage {minimal.passage}")
    return AnswerTarget(MINIMAL, vectors)


def squad_target(example: SquadExample, text: Readable) -> AnswerTarget | None:
    """The first answer, None where the context does not answer.

    Args:
        text: the context, as passage 0.

    Raises:
        UnusableAnswer: it is empty, or not what the context has there.
    """
    if not example.answers:
        return None
    answer = example.answers[0]
    begin, end = (len(encoded(example.context[:at])) for at in (answer.start, answer.start + len(answer.text)))
    vectors = text.find((begin, end), 0)
    if vectors is None or not example.context.startswith(answer.text, answer.start):
        raise UnusableAnswer(f"{example.key}: {answer.text!r} is not at character {answer.start} of the context")
    return AnswerTarget(MINIMAL, vectors)
