"""A small corpus in several languages and scripts, and quick settings, for the tests of the pipeline."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig

WORDS = {
    "en": "the rain falls on quiet hills and old boats while seven geese argue about bread",
    "uk": "дощ падає на тихі пагорби поки сім гусей сперечаються про хліб і човни",
    "ja": "雨 が 静か な 丘 に 降り 七羽 の 雁 は パン を 論じる",
}


def write_corpus(path: Path, num_documents: int = 60, seed: int = 0) -> list[dict[str, str]]:
    """JSON lines of short documents; every tenth repeats the text of the one before it under another id."""
    draw = random.Random(seed)
    rows: list[dict[str, str]] = []
    for number in range(num_documents):
        language = ("en", "en", "uk", "ja")[number % 4]
        sentences = [
            " ".join(draw.choices(WORDS[language].split(), k=8)) + "." for _ in range(draw.randint(3, 30))
        ]
        row = {"id": f"d{number}", "language": language, "text": " ".join(sentences)}
        if number % 10 == 9:
            row = {**rows[-1], "id": f"d{number}"}
        rows.append(row)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return rows


def quick_config(*books: Path | str, **settings: Any) -> PreprocessConfig:
    """Settings with which a job takes a second or two."""
    quick: dict[str, Any] = {
        "vocabulary": VocabularyConfig(
            size=320, required_characters="none", sample_characters=20_000, character_coverage=0.98
        ),
        "shard_characters": 8_000,
        "validation_fraction": 0.2,
    }
    return PreprocessConfig(books=tuple(map(str, books)), **{**quick, **settings})


def shard_files(output: Path) -> dict[str, bytes]:
    """Return the bytes of every file that readers of the data see, except the manifest."""
    folders = ("train", "validation", "vocabulary", "failures")
    files = [file for folder in folders for file in (output / folder).rglob("*") if file.is_file()]
    return {str(file.relative_to(output)): file.read_bytes() for file in sorted(files)}


@pytest.fixture(scope="session")
def make_corpus() -> Callable[..., list[dict[str, str]]]:
    """Writes a corpus of JSON lines and returns its rows."""
    return write_corpus


@pytest.fixture(scope="session")
def make_config() -> Callable[..., PreprocessConfig]:
    """Quick settings for the given books."""
    return quick_config


@pytest.fixture(scope="session")
def read_shards() -> Callable[[Path], dict[str, bytes]]:
    """The bytes of all shards and of the vocabulary, by name."""
    return shard_files


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 60 documents, six of them duplicates."""
    path = tmp_path_factory.mktemp("corpus") / "books.jsonl"
    write_corpus(path)
    return path


@pytest.fixture(scope="session")
def made(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus as shards, made in one process; tests must not change it."""
    output = tmp_path_factory.mktemp("made") / "data"
    run_preprocess(quick_config(corpus), str(output))
    return output


@pytest.fixture
def write_rows() -> Callable[[Path, Sequence[dict[str, str]]], Path]:
    """Writes rows as JSON lines."""

    def write(path: Path, rows: Sequence[dict[str, str]]) -> Path:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write
