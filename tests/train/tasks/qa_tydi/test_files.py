import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.train.tasks.conftest import Write, annotation, record
from tokenfree.core.errors import UserError
from tokenfree.train.tasks.qa_tydi import NO_SPAN, Annotation, read_tydi

PASSAGES = ["Kokemäki on kaupunki.", "Se perustettiin 1869."]


def test_reads_what_a_line_says(write: Write) -> None:
    marked = [annotation(1, (38, 42)), annotation(0, yes_no="yes"), annotation()]
    (example,) = read_tydi(write(record(PASSAGES, annotations=marked, language="Finnish")))
    assert (example.key, example.example_id, example.language, example.question) == (
        "dev.jsonl:1",
        7,
        "finnish",
        "Mikä?",
    )
    assert example.article == "\n".join(PASSAGES).encode()
    assert [example.article[slice(*passage)].decode() for passage in example.passages] == PASSAGES
    assert example.annotations == [
        Annotation(1, (38, 42), "NONE"),
        Annotation(0, NO_SPAN, "YES"),
        Annotation(-1, NO_SPAN, "NONE"),
    ]


def test_reads_gzip_and_files_without_annotations(write: Write, tmp_path: Path) -> None:
    line = record(PASSAGES)
    del line["annotations"]
    (tmp_path / "dev.gz").write_bytes(
        gzip.compress(Path(write(line, "", {**line, "example_id": 8})).read_bytes())
    )
    examples = list(read_tydi(str(tmp_path / "dev.gz")))
    assert [example.key for example in examples] == ["dev.gz:1", "dev.gz:3"]
    assert [example.annotations for example in examples] == [None, None]


def test_every_example_of_the_published_files(test_data: Path) -> None:
    for name, count in {
        "tiny_dev.jsonl.gz": 6,
        "tiny_dev_no_annotations.jsonl.gz": 6,
        "small_gold_annotation.jsonl": 3,
    }.items():
        examples = list(read_tydi(str(test_data / "tydiqa" / name)))
        assert len(examples) == count
        for example in examples:
            for span in example.passages:
                assert example.article[slice(*span)].decode().strip()


def test_a_passage_whose_place_is_not_known_stays_in_the_count(write: Write) -> None:
    line = record(PASSAGES)
    line["passage_answer_candidates"][0]["plaintext_start_byte"] = -1
    (example,) = read_tydi(write(line))
    assert example.passages[0] == NO_SPAN
    assert len(example.passages) == 2


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in record(PASSAGES).items() if key != name}


BROKEN = [
    ("{", "no JSON"),
    ("[1]", "should be"),
    *(
        (without(name), name)
        for name in record(PASSAGES)
        if name not in ("annotations", "document_title", "document_url")
    ),
    (record(PASSAGES, example_id="7"), "example_id"),
    (record(PASSAGES, example_id=True), "example_id"),
    (record(PASSAGES, question_text=None), "question_text"),
    (record(PASSAGES, annotations={}), "annotations"),
    (record(PASSAGES, annotations=[3]), "annotations.0"),
    (record(PASSAGES, annotations=[annotation(0, (3, 99))]), "bytes 3 to 99 are not characters"),
    (record(PASSAGES, annotations=[annotation(0, (9, 3))]), "bytes 9 to 3 are no"),
    (record(PASSAGES, annotations=[annotation(0, (6, 9))]), "bytes 6 to 9 are no"),
    (record(PASSAGES, annotations=[{"passage_answer": {}}]), "annotations.0.passage_answer.candidate_index"),
    (record(PASSAGES, passage_answer_candidates=[{}]), "passage_answer_candidates.0.plaintext_start_byte"),
]


@pytest.mark.parametrize(("line", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_what_is_wrong_is_named_with_its_line(write: Write, line: Any, message: str) -> None:
    path = write(record(PASSAGES, example_id=6), line)
    with pytest.raises(UserError) as error:
        list(read_tydi(path))
    assert str(error.value).startswith(f"{path}: line 2: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_question_that_stands_twice(write: Write) -> None:
    path = write(record(PASSAGES), record(PASSAGES))
    with pytest.raises(UserError, match=r"dev.jsonl: line 2: example_id 7 is that of dev.jsonl:1 too"):
        list(read_tydi(path))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="absent: there is no such file"):
        list(read_tydi(str(tmp_path / "absent")))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(json.dumps(record(PASSAGES)).encode())[:60])
    with pytest.raises(UserError, match=r"cut.gz: cannot be read"):
        list(read_tydi(str(tmp_path / "cut.gz")))
