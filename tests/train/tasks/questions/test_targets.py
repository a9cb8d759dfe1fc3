import pytest

from tests.train.tasks.conftest import Write, annotation, article_of, characters, record, text_of
from tokenfree.train.tasks.qa_squad import Config as QaSquad
from tokenfree.train.tasks.qa_squad import SquadAnswer, SquadExample
from tokenfree.train.tasks.qa_tydi import Config as QaTydi
from tokenfree.train.tasks.qa_tydi import TydiExample, read_tydi
from tokenfree.train.tasks.questions import (
    MINIMAL,
    PASSAGE,
    AnswerTarget,
    Passage,
    Readable,
    UnusableAnswer,
    readable,
)

PASSAGES = ["Äiti on 🙂.", "日本語", "Se on 1869."]


def marked(write: Write, *annotations: object) -> TydiExample:
    return next(read_tydi(write(record(PASSAGES, annotations=list(annotations)))))


def test_the_first_passage_with_a_minimal_answer_is_learned(write: Write) -> None:
    example = marked(
        write, annotation(0), annotation(2, (31, 35)), annotation(1, (15, 18)), annotation(1, (18, 21))
    )
    article = article_of(example)
    target = QaTydi().target(example, article)
    assert target is not None
    assert target.kind == MINIMAL
    assert text_of(article.read.symbols[target.vectors.start : target.vectors.stop]) == "日"
    article = article_of(example, 1)
    assert QaTydi(max_passages=1).target(example, article) == AnswerTarget(PASSAGE, article.passages[0])


def test_yes_and_no_are_learned_as_passages_and_none_as_none(write: Write) -> None:
    example = marked(write, annotation(2, yes_no="YES"), annotation(1, yes_no="NO"), annotation())
    article = article_of(example)
    assert QaTydi().target(example, article) == AnswerTarget(PASSAGE, article.passages[1])
    assert QaTydi(max_passages=1).target(example, article_of(example, 1)) is None
    assert QaTydi().target(marked(write, annotation()), article) is None


@pytest.mark.parametrize("span", [(0, 3), (15, 15), (15, 30)])
def test_an_answer_outside_of_its_passage_is_told(write: Write, span: tuple[int, int]) -> None:
    example = marked(write, annotation(1, span))
    with pytest.raises(UnusableAnswer, match=r"dev.jsonl:1: the minimal answer is not in passage 1"):
        QaTydi().target(example, article_of(example))


def right(text: str, start: int) -> SquadAnswer:
    return {"text": text, "answer_start": start}


def squad(*answers: SquadAnswer) -> SquadExample:
    return SquadExample("dev.json: data[0]", "a", "Mikä?", "Äiti on 🙂.", answers)


def context() -> Readable:
    return readable([Passage(0, 0, "Äiti on 🙂.".encode())], characters(64), markers=False)


def test_of_squad_the_first_answer_is_learned() -> None:
    target = QaSquad().target(squad(right("🙂", 8), right("Äiti", 0)), context())
    assert target == AnswerTarget(MINIMAL, range(8, 9))
    assert QaSquad().target(squad(), context()) is None


@pytest.mark.parametrize("answer", [right("🙂", 7), right("", 3), right("..", 9)])
def test_an_answer_that_is_not_in_the_context_is_told(answer: SquadAnswer) -> None:
    with pytest.raises(
        UnusableAnswer, match=r"dev.json: data\[0\]: '.*' is not at character \d of the context"
    ):
        QaSquad().target(squad(answer), context())
