"""Hugging Face datasets as a source: saved ones, local files, and what cannot be read."""

from datetime import datetime
from pathlib import Path

import datasets
import pytest

from tokenfree.core.errors import UserError
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.records import Failure, InputSplit, Page
from tokenfree.preprocess.sources.splits import find_inputs, hash_input, plan_splits, read_split
from tokenfree.preprocess.sources.tables import Named

ROWS = {
    "text": [f"Goose {n} walks along the river 鵞鳥." for n in range(50)],
    "id": [f"g{n}" for n in range(50)],
    "language": ["en", "ja"] * 25,
    "length": list(range(50)),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A saved dataset of two splits."""
    folder = str(tmp_path_factory.mktemp("saved") / "geese")
    dataset = datasets.Dataset.from_dict(ROWS)
    datasets.DatasetDict({"train": dataset, "test": dataset.select(range(3))}).save_to_disk(folder)
    return folder


def pages(config: PreprocessConfig) -> list[Page | Failure]:
    splits = [InputSplit.from_json(split.to_json()) for split in plan_splits(config)]
    return [page for split in splits for page in read_split(split)]


@pytest.mark.parametrize("split_bytes", [1000, 1_000_000])
def test_every_row_once_in_order(saved: str, split_bytes: int) -> None:
    found = pages(PreprocessConfig(hf_dataset=(saved,), split_bytes=split_bytes))
    assert [page.text for page in found if isinstance(page, Page)] == ROWS["text"]
    assert [page.id for page in found] == [f"books:geese:{name}" for name in ROWS["id"]]
    assert [page.language for page in found if isinstance(page, Page)] == ROWS["language"]


def test_a_split_and_a_language_may_be_named(saved: str) -> None:
    found = pages(PreprocessConfig(hf_dataset=(f"{saved}@test",), language="de"))
    assert [page.language for page in found if isinstance(page, Page)] == ["de"] * 3


def test_local_files_and_another_text_column(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"body": ["Rain falls.", None, "Rain stops."]}).to_parquet(
        str(tmp_path / "rain.parquet")
    )
    found = pages(PreprocessConfig(hf_dataset=(str(tmp_path),), text_column="body"))
    assert [(type(page), page.id.split(":")[-1]) for page in found] == [
        (Page, "0"),
        (Failure, "1"),
        (Page, "2"),
    ]
    assert [page.reason for page in found if isinstance(page, Failure)] == ["missing_text"]


def test_the_hash_is_of_the_values_and_not_of_the_files(saved: str, tmp_path: Path) -> None:
    datasets.Dataset.from_dict(ROWS).save_to_disk(str(tmp_path / "again"), num_shards=3)
    other = {**ROWS, "text": ["Swan", *ROWS["text"][1:]]}
    datasets.Dataset.from_dict(other).save_to_disk(str(tmp_path / "other"))
    first, again, third = (
        next(iter(find_inputs(PreprocessConfig(hf_dataset=(str(path),)))))
        for path in (saved, tmp_path / "again", tmp_path / "other")
    )
    assert first.size == again.size == third.size == 50
    assert hash_input(first) == hash_input(again) != hash_input(third)
    assert first.modified != third.modified


def test_names() -> None:
    assert Named.parse("wikimedia/wikipedia:20231101.sw@test") == (
        "wikimedia/wikipedia",
        "20231101.sw",
        "test",
    )
    assert Named.parse("bookcorpus") == ("bookcorpus", None, None)
    assert str(Named.parse("a/b:c@d")) == "a/b:c@d"
    assert Named.parse("a/b:c@d").label == "b:c@d"


def test_ids_tell_splits_and_folders_apart(
    saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "geese"
    datasets.Dataset.from_dict({"text": ["Another goose."]}).save_to_disk(str(other))
    monkeypatch.chdir(tmp_path)
    both = (saved, "geese", f"{saved}@test", str(other))
    found = pages(PreprocessConfig(hf_dataset=both))
    assert len(found) == len({page.id for page in found}) == 54
    assert f"books:{other}:0" in {page.id for page in found}
    assert "books:geese@test:g0" in {page.id for page in found}
    assert plan_splits(PreprocessConfig(hf_dataset=both[::-1])) == plan_splits(
        PreprocessConfig(hf_dataset=both)
    )


def test_columns_of_any_type_are_hashed(tmp_path: Path) -> None:
    values = {"text": ["a"], "raw": [b"\xff\xd8"], "labels": [[1, 2]], "when": [datetime(2020, 2, 2)]}
    datasets.Dataset.from_dict(values).save_to_disk(str(tmp_path / "mixed"))
    (file,) = find_inputs(PreprocessConfig(hf_dataset=(f"{tmp_path}/mixed",)))
    size, sha256 = hash_input(file)
    assert size > 0
    assert len(sha256) == 64


@pytest.mark.parametrize(
    ("name", "column", "said"),
    [
        ("{saved}@dev", "text", "no split 'dev'.*@SPLIT"),
        ("{saved}/train@test", "text", "no split 'test'"),
        ("{saved}", "body", "no column 'body', only text, id, language, length; name the one"),
        ("{saved}", "length", "holds int64, not text; name the one"),
        ("{folder}", "text", "cannot be read"),
        ("{folder}/nowhere", "text", "cannot be read"),
        ("{folder}/notes.txt", "text", "cannot be read.*Give a folder"),
        ("s3://bucket/geese", "text", "is an address; copy it here"),
    ],
)
def test_mistakes_are_one_line(saved: str, tmp_path: Path, name: str, column: str, said: str) -> None:
    (tmp_path / "notes.txt").write_text("Honk.")
    (tmp_path / "empty").mkdir()
    spec = name.format(saved=saved, folder=tmp_path if "{folder}/" in name else tmp_path / "empty")
    with pytest.raises(UserError, match=said) as caught:
        plan_splits(PreprocessConfig(hf_dataset=(spec,), text_column=column))
    assert "\n" not in str(caught.value)
