"""Small real data directories, and a recipe that trains on one in seconds."""

import pydoc_data.topics as topics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from tests.windows import build_windows
from tokenfree.core.files import hash_file
from tokenfree.core.settings import build, merge
from tokenfree.core.settings_values import fingerprint, to_mapping
from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig, WindowConfig
from tokenfree.preprocess.dataset.completion import content_fingerprint
from tokenfree.preprocess.dataset.manifest import DatasetSplit, Manifest, ShardEntry, save_manifest
from tokenfree.preprocess.features.vocabulary import Vocabulary, train_vocabulary
from tokenfree.preprocess.job.finish import count
from tokenfree.preprocess.records import SCHEMA_VERSION, Document
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.inference.predictor import Predictor

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


@torch.no_grad()
def teach(predictor: Predictor, *answers: int) -> None:
    """Let the head find these classes certain, the first most, whatever it is given."""
    output: Any = predictor._model.head.output
    output.weight.zero_()
    output.bias.zero_()
    for rank, answer in enumerate(answers):
        output.bias[answer] = 40.0 - 10 * rank


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A data directory of the interpreter's help topics: 40 documents to train on, 5 to validate, 300 subwords."""
    texts = [(name, text[:2000]) for name, text in sorted(topics.topics.items())[:45]]
    return write_corpus(tmp_path_factory.mktemp("corpus"), texts, max_characters=48, vocabulary=400)


@pytest.fixture(scope="session")
def other_corpus(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Other topics, in shorter windows, with the vocabulary of `corpus`."""
    texts = [(name, text[:1000]) for name, text in sorted(topics.topics.items())[45:70]]
    model = Path(corpus, "vocabulary", "subwords.model").read_bytes()
    return write_corpus(tmp_path_factory.mktemp("other"), texts, max_characters=30, model=model)


@pytest.fixture(scope="session")
def long_corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All 79 topics, whole: 400 windows of 1,200 characters to train on, of some 20 sentences each."""
    texts = sorted(topics.topics.items())
    return write_corpus(tmp_path_factory.mktemp("long"), texts, max_characters=1200, vocabulary=1000)


@pytest.fixture(scope="session")
def make_recipe() -> MakeRecipe:
    """Makes a recipe: eight steps of a model of width 16, with dropout, checkpoints after steps 3, 6 and 8.

    Keywords are keys of `train`, or whole parts of `model` or `objective`.
    """

    def make(
        *, model: Mapping[str, Any] | None = None, objective: Mapping[str, Any] | None = None, **train: Any
    ) -> PretrainRecipe:
        over = {"model": model or {}, "objective": objective or {}, "train": train}
        return build(PretrainRecipe, merge(RECIPE, over), source="test")

    return make


SUBWORDS: dict[str, Any] = {
    "embedder": {"name": "subword_table", "size": 600},
    "downsampler": {"name": "identity"},
    "upsampler": {"name": "identity"},
}
BYTES: dict[str, Any] = {**SUBWORDS, "embedder": {"name": "byte_table", "max_characters": 64}}
WORDS: dict[str, Any] = {
    "character_width": 8,
    "embedder": {"name": "word_bytes"},
    "downsampler": {"name": "word_pooling", "max_words": 36, "bytes_per_word": 4},
    "trunk": {**RECIPE["model"]["trunk"], "layer": {"name": "pre_ln"}},
    "upsampler": {"name": "subword_queries"},
}


@pytest.fixture(scope="session")
def make_recipe_for() -> MakeRecipe:
    """Makes a recipe for an objective, given as its mapping, with a model that fits it; keywords are of `train`."""

    def make(objective: Mapping[str, Any], **train: Any) -> PretrainRecipe:
        over = {"masked_subwords": SUBWORDS, "byte2word": WORDS, "masked_bytes": BYTES}.get(
            objective["name"], {}
        )
        words = {"bytes_per_word": 4} if objective["name"] == "byte2word" else {}
        length = {"length": 144} if words else {}
        mapping = {
            "model": {**RECIPE["model"], **over},
            "objective": {**objective, **words},
            "train": {**RECIPE["train"], **length, **train},
        }
        return build(PretrainRecipe, mapping, source="test")

    return make


def write_corpus(
    folder: Path,
    texts: Sequence[tuple[str, str]],
    *,
    max_characters: int,
    vocabulary: int = 400,
    model: bytes | None = None,
) -> str:
    """A data directory of (name, text), of which the first five are to validate; the path of `folder`.

    Its vocabulary is `model`, or else one that is trained.
    """
    documents = [Document(f"help:{name}", "en", name, text) for name, text in texts]
    config = PreprocessConfig(
        window=WindowConfig(max_characters=max_characters),
        vocabulary=VocabularyConfig(size=vocabulary, required_characters="none"),
    )
    model = model or train_vocabulary([document.text for document in documents], config.vocabulary, 0)
    subwords = Vocabulary(model)
    (folder / "vocabulary").mkdir()
    (folder / "vocabulary" / "subwords.model").write_bytes(model)
    splits = {
        name: DatasetSplit((_write_shard(folder, name, chosen, config, subwords),))
        for name, chosen in (("train", documents[5:]), ("validation", documents[:5]))
    }
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        config=to_mapping(config),
        config_fingerprint=fingerprint(config),
        versions={},
        inputs=(),
        vocabulary_sha256=subwords.sha256,
        vocabulary_size=subwords.size,
        splits=splits,
        counters=count((), ()),
        statistics={},
        fingerprint=content_fingerprint(splits, subwords.sha256),
    )
    save_manifest(Storage.at(str(folder)), manifest)
    return str(folder)


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
        sha256=hash_file(folder / path),
    )
