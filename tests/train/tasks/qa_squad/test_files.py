import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.train.tasks.qa_squad import Config, read_squad


def file_of(*questions: Any, context: Any = "Kokemäki on kaupunki.", version: str = "1.1") -> dict[str, Any]:
    paragraphs = [{"context": context, "qas": list(questions)}]
    return {"version": version, "data": [{"title": "title", "paragraphs": paragraphs}]}


def question(name: Any = "a", *answers: Any, **fields: Any) -> dict[str, Any]:
    return {"id": name, "question": "Mikä?", "answers": list(answers)} | fields


def write(tmp_path: Path, document: Any) -> str:
    path = tmp_path / "dev.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


ANSWER = {"text": "kaupunki", "answer_start": 12}


def test_reads_questions_with_and_without_answers(tmp_path: Path) -> None:
    impossible = question("b", is_impossible=True, plausible_answers=[ANSWER])
    path = write(tmp_path, file_of(question("a", ANSWER, ANSWER), impossible, version="v2.0"))
    first, second = read_squad(path)
    assert (first.question_id, first.question, first.context) == ("a", "Mikä?", "Kokemäki on kaupunki.")
    assert first.answers == [ANSWER, ANSWER]
    assert second.answers == []
    assert second.key == "dev.json: data[0].paragraphs[0].qas[1]"
    (tmp_path / "dev.json.gz").write_bytes(gzip.compress(Path(path).read_bytes()))
    assert [example.question_id for example in read_squad(str(tmp_path / "dev.json.gz"))] == ["a", "b"]


@pytest.mark.parametrize("start", [0, -1])
@pytest.mark.parametrize("fields", [{"is_impossible": True}, {"is_impossible": False}, {}])
def test_read_squad_takes_an_empty_answer_as_none(tmp_path: Path, start: int, fields: dict[str, Any]) -> None:
    empty = question(2, {"text": "", "answer_start": start}, **fields)
    first, second = read_squad(write(tmp_path, file_of(question(1, ANSWER), empty)))
    assert (first.question_id, second.question_id) == ("1", "2")
    assert (first.answers, second.answers) == ([ANSWER], [])
    task = Config().fitted([first, second])
    assert task.unanswerable
    predictions = [{"id": "1", "answer": "kaupunki"}, {"id": "2", "answer": ""}]
    predictions = [{**line, "span": None, "score": 0.0} for line in predictions]
    scores = task.scores([first, second], predictions)
    assert scores is not None
    assert (scores.values["f1"], scores.values["f1/unanswerable"]) == (1.0, 1.0)


def test_read_squad_takes_no_answer_of_an_impossible_question(tmp_path: Path) -> None:
    (example,) = read_squad(write(tmp_path, file_of(question("a", ANSWER, is_impossible=True))))
    assert example.answers == []


BROKEN = [
    ("{", "no JSON (Expecting property name"),
    ([], "should be"),
    ({"version": "1.1"}, "data"),
    ({"data": [{}]}, "data.0.paragraphs"),
    ({"data": []}, "holds no questions"),
    (file_of(question(), context=3), "data.0.paragraphs.0.context"),
    (file_of(question(7.5)), "data.0.paragraphs.0.qas.0.id"),
    (file_of(question(True)), "data.0.paragraphs.0.qas.0.id"),
    (
        file_of(question(7), question("7")),
        "qas[1]: id '7' is that of dev.json: data[0].paragraphs[0].qas[0] too",
    ),
    (file_of({"id": "a", "question": "?"}), "data.0.paragraphs.0.qas.0.answers"),
    (file_of(question("a", {"text": "x"})), "data.0.paragraphs.0.qas.0.answers.0.answer_start"),
    (
        file_of(question("a", {"text": "x", "answer_start": 99})),
        "data[0].paragraphs[0].qas[0]: answer_start is 99, but the context has 21 characters",
    ),
    (file_of(question(), question()), "qas[1]: id 'a' is that of dev.json: data[0].paragraphs[0].qas[0] too"),
]


@pytest.mark.parametrize(("document", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, document: Any, message: str) -> None:
    path = write(tmp_path, document)
    with pytest.raises(UserError) as error:
        read_squad(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="absent: there is no such file"):
        read_squad(str(tmp_path / "absent"))
