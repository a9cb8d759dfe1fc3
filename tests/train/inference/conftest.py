"""Runs whose encoders write vectors."""

from pathlib import Path
from typing import Any

import datasets
import pytest

from tests.train.conftest import MakeRecipe
from tokenfree.train.inference import corpus as corpus_module
from tokenfree.train.pretrain import pretrain

TEXTS = [
    "The len() of an empty list is 0.",
    "",
    "日本語 and e\u0301, 👩\u200d💻",
    "a" * 70,  # longer than the model of 64 positions reads
    " ",
    "Sentences end. They begin again. " * 9,
    *(f"line {number}, of {'many ' * (number % 7)}words" for number in range(40)),
]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def rows(folder: Path) -> Any:
    dataset = datasets.load_from_disk(str(folder))
    assert dataset["number"][:] == list(range(len(dataset)))
    return dataset


@pytest.fixture(scope="session")
def canine(corpus: str, make_recipe: MakeRecipe, tmp_path_factory: pytest.TempPathFactory) -> str:
    run = str(tmp_path_factory.mktemp("canine") / "run")
    pretrain(make_recipe(steps=2), corpus, run)
    return run


@pytest.fixture(scope="session")
def byte2word(corpus: str, make_recipe_for: MakeRecipe, tmp_path_factory: pytest.TempPathFactory) -> str:
    run = str(tmp_path_factory.mktemp("byte2word") / "run")
    pretrain(make_recipe_for({"name": "byte2word"}, steps=2), corpus, run)
    return run


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return str(path)


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of a few hundred characters."""
    monkeypatch.setattr(corpus_module, "SHARD_CHARACTERS", {"texts": 300, "words": 300, "characters": 300})
