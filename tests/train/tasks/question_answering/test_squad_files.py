import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.train.tasks.qa_squad import read_squad


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


BROKEN = [
    ("{", "no JSON (Expecting property name"),
    ([], "should be"),
    ({"version": "1.1"}, "data"),
    ({"data": [{}]}, "data.0.paragraphs"),
    ({"data": []}, "holds no questions"),
    (file_of(question(), context=3), "data.0.paragraphs.0.context"),
    (file_of(question(7)), "data.0.paragraphs.0.qas.0.id"),
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
