"""Columns with custom names in JSON lines, Parquet and datasets; other files are recognised."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenfree.core.errors import UserError
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Failure, Page
from tokenfree.preprocess.sources.splits import plan_splits, read_split

ROWS = [
    {
        "body": "Seven geese.",
        "key": "g7",
        "lang": "en",
        "text": "not this",
        "language": "ja",
        "id": "nor this",
    },
    {"body": "Сім гусей.", "key": "g8", "lang": "uk", "text": "not this", "language": "ja", "id": "nor this"},
]
OWN = {"text_column": "body", "id_column": "key", "language_column": "lang"}
FOUND = [("g7", "en", "Seven geese."), ("g8", "uk", "Сім гусей.")]


def as_json_lines(folder: Path) -> dict[str, Any]:
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return {"books": (str(folder / "a.jsonl"),)}


def as_parquet(folder: Path) -> dict[str, Any]:
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "a.parquet")
    return {"books": (str(folder / "a.parquet"),)}


def as_dataset(folder: Path) -> dict[str, Any]:
    datasets.Dataset.from_list(ROWS).save_to_disk(str(folder / "saved"))
    return {"hf_dataset": (str(folder / "saved"),)}


Written = Callable[[Path], dict[str, Any]]
FORMS: list[Written] = [as_json_lines, as_parquet, as_dataset]


def configured(settings: dict[str, Any]) -> PreprocessConfig:
    return PreprocessConfig(**settings)


def read(**settings: Any) -> list[Page | Failure]:
    return [page for split in plan_splits(PreprocessConfig(**settings)) for page in read_split(split)]


@pytest.mark.parametrize("written", FORMS)
def test_columns_of_other_names(written: Written, tmp_path: Path) -> None:
    found = [page for page in read(**written(tmp_path), **OWN) if isinstance(page, Page)]
    assert [(page.id.rpartition(":")[2], page.language, page.text) for page in found] == FOUND
    forced = read(**written(tmp_path), **OWN, language="cy")
    assert {page.language for page in forced if isinstance(page, Page)} == {"cy"}


ROLES = ("text", "id", "language")


@pytest.mark.parametrize(
    ("written", "role"), [(as_json_lines, "text"), *((form, role) for form in FORMS[1:] for role in ROLES)]
)  # a line of JSON may lack its id and language
def test_a_column_that_is_not_there_is_named_with_those_that_are(
    written: Written, role: str, tmp_path: Path
) -> None:
    told = rf"(a\.|saved).*'none'.*body, key, lang.*the {role}: --{role}_column NAME"
    with pytest.raises(UserError, match=told):
        plan_splits(configured({**written(tmp_path), f"{role}_column": "none"}))


@pytest.mark.parametrize("written", [as_parquet, as_dataset])
@pytest.mark.parametrize("role", ["text", "language"])
def test_a_column_without_text_is_refused(
    written: Written, role: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setitem(ROWS[0], "number", 1)
    monkeypatch.setitem(ROWS[1], "number", 2)
    with pytest.raises(UserError, match=rf"column 'number' holds int64, not text; .*--{role}_column NAME"):
        plan_splits(configured({**written(tmp_path), f"{role}_column": "number"}))
    numbered = read(**written(tmp_path), id_column="number")
    assert [page.id.rpartition(":")[2] for page in numbered] == ["1", "2"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('[\n{"text": "a"}\n]\n', "no line has a field 'text', write one JSON object a line"),
        ('\n\n{\n"text": "a"\n}\n', "no line has a field 'text', write one"),
        (
            '\ufeff{"text": "a"}\n{"text": "b"}\n'.encode("utf-16-le"),
            "no line has a field 'text', .* in UTF-8",
        ),
        (
            'oops\n\n{"body": "a", "key": 1}\n',
            "no line has a field 'text', only body, key; .*--text_column NAME",
        ),
    ],
)
def test_json_lines_of_another_form(content: str | bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError, match=f"books: {path}: {told}"):
        plan_splits(PreprocessConfig(books=(str(path),)))


def test_a_line_without_text_is_no_reason_to_refuse_the_others(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "a"}\nnonsense\n{"text": "b"}\n')
    reasons = [page.reason if isinstance(page, Failure) else page.text for page in read(books=(str(path),))]
    assert reasons == ["missing_text", "bad_json", "b"]
    # The first line is longer than what is read.
    path.write_text('{"text": "' + "x" * 300_000 + '"}\n{"body": "a"}\n')
    assert len(read(books=(str(path),))) == 2


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a.zip", r"\*\.zip is not read"),
        ("a.CSV", r"\*\.csv is not read.*--hf-dataset"),
    ],
)
def test_files_that_are_no_books_are_refused_by_their_ending(name: str, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"a,b\n")
    (tmp_path / "good.txt").write_text("Good.")
    (tmp_path / "settings.json").write_text('{"text": "Settings."}')
    with pytest.raises(UserError, match=told):
        plan_splits(PreprocessConfig(books=(str(tmp_path / name),)))
    assert len(read(books=(str(tmp_path),))) == 1  # a folder may hold what it likes


@pytest.mark.parametrize(
    "kind", [pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.large_string()]
)
def test_text_columns_of_other_types(kind: pa.DataType, tmp_path: Path) -> None:
    texts = pa.array(["Seven geese.", "Nobody wins.", "Seven geese."]).cast(kind)
    pq.write_table(pa.table({"text": texts, "id": ["a", "b", "c"]}), tmp_path / "a.parquet")
    pages = read(books=(str(tmp_path / "a.parquet"),))
    assert [page.text for page in pages] == texts.cast(pa.string()).to_pylist()
