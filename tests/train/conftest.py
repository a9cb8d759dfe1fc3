"""A small real data directory, and a recipe that trains on it in seconds."""

import pydoc_data.topics as topics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from preprocess.config import PreprocessConfig, VocabularyConfig, WindowConfig
from preprocess.document import Document
from preprocess.features import build_windows
from preprocess.manifest import DatasetSplit, Manifest, ShardEntry, content_fingerprint, save_manifest
from preprocess.schema import SCHEMA_VERSION
from preprocess.settings import build, fingerprint, merge, to_mapping
from preprocess.storage import Storage, hash_file
from preprocess.vocabulary import Vocabulary, train_vocabulary
from train.config import PretrainRecipe

MakeRecipe = Callable[..., PretrainRecipe]

RECIPE: dict[str, Any] = {
    "model": {
        "width": 16,
        "embedder": {"name": "codepoint_hash", "buckets": 64, "max_characters": 64},
        "trunk": {"layers": 1, "heads": 2, "inner_width": 32, "dropout": 0.1},
    },
    "train": {
        "steps": 8,
        "global_batch": 8,
        "length": 64,
        "learning_rate": 0.01,
        "streams": 2,
        "checkpoint_every_steps": 3,
        "checkpoint_every_seconds": None,
        "validate_every_steps": 4,
        "validation_windows": 8,
        "threads": 1,
    },
}


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data directory of the interpreter's help topics: 40 documents to train on, 5 to validate, 300 subwords."""
    folder = tmp_path_factory.mktemp("corpus")
    documents = [Document(f"help:{name}", "en", name, text[:2000]) for name, text in sorted(topics.topics.items())[:45]]
    config = PreprocessConfig(window=WindowConfig(max_characters=48), vocabulary=VocabularyConfig(size=400))
    model = train_vocabulary([document.text for document in documents], config.vocabulary, 0)
    vocabulary = Vocabulary(model)
    (folder / "vocabulary").mkdir()
    (folder / "vocabulary" / "subwords.model").write_bytes(model)
    splits = {
        name: DatasetSplit((_write_shard(folder, name, chosen, config, vocabulary),))
        for name, chosen in (("train", documents[5:]), ("validation", documents[:5]))
    }
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        config=to_mapping(config),
        config_fingerprint=fingerprint(config),
        versions={},
        inputs=(),
        vocabulary_sha256=vocabulary.sha256,
        vocabulary_size=vocabulary.size,
        splits=splits,
        counters={},
        statistics={},
        fingerprint=content_fingerprint(splits, vocabulary.sha256),
    )
    save_manifest(Storage.at(str(folder)), manifest)
    return str(folder)


@pytest.fixture(scope="session")
def make_recipe() -> MakeRecipe:
    """Makes a recipe: eight steps of a model of width 16, with dropout, checkpoints after steps 3, 6 and 8.

    Keywords are keys of `train`, or whole parts of `model`.
    """

    def make(*, model: Mapping[str, Any] | None = None, **train: Any) -> PretrainRecipe:
        return build(PretrainRecipe, merge(RECIPE, {"model": model or {}, "train": train}), source="test")

    return make


def _write_shard(
    folder: Path, split: str, documents: list[Document], config: PreprocessConfig, vocabulary: Vocabulary
) -> ShardEntry:
    windows = build_windows(documents, config, vocabulary)
    path = f"{split}/data-00000-of-00001.arrow"
    (folder / split).mkdir()
    with pa.OSFile(str(folder / path), "wb") as sink, pa.ipc.new_stream(sink, windows.schema) as writer:
        writer.write_batch(windows)
    return ShardEntry(
        path=path,
        language="en",
        rows=windows.num_rows,
        documents=len(documents),
        characters=sum(len(document.text) for document in documents),
        bytes=(folder / path).stat().st_size,
        sha256=hash_file(str(folder / path)),
    )
