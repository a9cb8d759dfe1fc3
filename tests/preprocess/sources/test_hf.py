"""Hugging Face datasets as a source: saved ones, local files, and what cannot be read."""

from pathlib import Path

import datasets
import pytest

from preprocess.config import PreprocessConfig
from preprocess.document import Failure
from preprocess.errors import UserError
from preprocess.sources import Page, Split, hash_inputs, plan_splits, read_split
from preprocess.sources.hf import Named

ROWS = {
    "text": [f"Goose {n} walks along the river 鵞鳥." for n in range(50)],
    "id": [f"g{n}" for n in range(50)],
    "language": ["en", "ja"] * 25,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A saved dataset of two splits."""
    folder = str(tmp_path_factory.mktemp("saved") / "geese")
    dataset = datasets.Dataset.from_dict(ROWS)
    datasets.DatasetDict({"train": dataset, "test": dataset.select(range(3))}).save_to_disk(folder)
    return folder


def pages(config: PreprocessConfig) -> list[Page | Failure]:
    splits = [Split.from_json(split.to_json()) for split in plan_splits(config)]
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
    assert [(type(page), page.id.split(":")[-1]) for page in found] == [(Page, "0"), (Failure, "1"), (Page, "2")]
    assert [page.reason for page in found if isinstance(page, Failure)] == ["missing_text"]


def test_the_hash_is_of_the_values_and_not_of_the_files(saved: str, tmp_path: Path) -> None:
    datasets.Dataset.from_dict(ROWS).save_to_disk(str(tmp_path / "again"), num_shards=3)
    other = {**ROWS, "text": ["Swan", *ROWS["text"][1:]]}
    datasets.Dataset.from_dict(other).save_to_disk(str(tmp_path / "other"))
    paths = [f"hf-dataset:{path}" for path in (saved, tmp_path / "again", tmp_path / "other")]
    hashes = {entry["path"]: entry["sha256"] for entry in hash_inputs(paths)}
    assert hashes[paths[0]] == hashes[paths[1]] != hashes[paths[2]]


def test_names() -> None:
    assert Named.parse("wikimedia/wikipedia:20231101.sw@train") == ("wikimedia/wikipedia", "20231101.sw", "train")
    assert Named.parse("bookcorpus") == ("bookcorpus", None, "train")


@pytest.mark.parametrize(
    ("name", "column", "said"),
    [
        ("{saved}@dev", "text", "no split 'dev', only train, test"),
        ("{saved}", "body", "no column 'body', only text, id"),
        ("{empty}", "text", "cannot be read"),
    ],
)
def test_mistakes_are_one_line(saved: str, tmp_path: Path, name: str, column: str, said: str) -> None:
    spec = name.format(saved=saved, empty=tmp_path)
    with pytest.raises(UserError, match=said) as caught:
        plan_splits(PreprocessConfig(hf_dataset=(spec,), text_column=column))
    assert "\n" not in str(caught.value)
