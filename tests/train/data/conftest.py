"""Small data directories, written by hand as the contract of the shards says."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tokenfree.core.settings_values import to_mapping
from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.completion import content_fingerprint
from tokenfree.preprocess.dataset.manifest import DatasetSplit, Manifest, ShardEntry, save_manifest
from tokenfree.preprocess.job.finish import count
from tokenfree.preprocess.records import schema

PIECES = [
    *("<pad>", "<unk>", "<s>", "</s>"),
    *(f"<0x{byte:02X}>" for byte in range(256)),
    *(f"▁{a}{b}" for a in "abcdef" for b in "aeiou"),  # two characters, at the front of a word
    *("on", "in", "er", "th", "ing", "ers", "ness"),
]
FRONTS, TAILS = range(260, 290), range(290, 297)


class FakeVocabulary:
    """Pieces without a SentencePiece model."""

    size = len(PIECES)

    @property
    def pieces(self) -> list[str]:
        return list(PIECES)


def make_window(rng: np.random.Generator, num_words: int) -> dict[str, Any]:
    """Words of one to three pieces; one word in 20 is é, in two byte pieces."""
    text, ids, starts, ends = "", [], [], []
    for _ in range(num_words):
        text += " " if text else ""
        if rng.random() < 0.05:
            ids += [4 + 0xC3, 4 + 0xA9]
            starts += [len(text)] * 2
            text += "é"
            ends += [len(text)] * 2
            continue
        for piece in [rng.choice(FRONTS), *rng.choice(TAILS, size=rng.integers(0, 3))]:
            ids.append(int(piece))
            starts.append(len(text))
            text += PIECES[piece].lstrip("▁")
            ends.append(len(text))
    return {
        "text": text,
        "codepoints": [ord(character) for character in text],
        "whitespace": [character.isspace() for character in text],
        "subword_ids": ids,
        "subword_starts": starts,
        "subword_ends": ends,
    }


def write_data(
    folder: Path, shards: Sequence[tuple[str, str, int]], num_words: int = 12, seed: int = 0
) -> str:
    """A data directory with a shard for each (split, language, rows); documents are named split:language:number."""
    columns = schema(("document", "language", "text", "codepoints", "whitespace", "subword_ids", "subword_starts",
                      "subword_ends"))  # fmt: skip
    entries: dict[str, list[ShardEntry]] = {"train": [], "validation": []}
    rng = np.random.default_rng(seed)
    numbers: dict[tuple[str, str], int] = {}
    for index, (split, language, num_rows) in enumerate(shards):
        rows = []
        for _ in range(num_rows):
            number = numbers[split, language] = numbers.get((split, language), -1) + 1
            window = make_window(rng, num_words)
            rows.append({"document": f"{split}:{language}:{number}", "language": language, **window})
        path = f"{split}/data-{index:05d}-of-{len(shards):05d}.arrow"
        (folder / split).mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(folder / path), "wb") as sink, pa.ipc.new_stream(sink, columns) as writer:
            for start in range(0, num_rows, 7):  # several batches, the last one short
                writer.write_batch(pa.RecordBatch.from_pylist(rows[start : start + 7], schema=columns))
        content = (folder / path).read_bytes()
        entries[split].append(
            ShardEntry(
                path=path,
                language=language,
                rows=num_rows,
                documents=num_rows,
                characters=sum(len(row["text"]) for row in rows),
                bytes=len(content),
                sha256=hashlib.sha256(content).hexdigest(),
            )
        )
    splits = {split: DatasetSplit(tuple(of)) for split, of in entries.items() if of}
    save_manifest(
        Storage.at(str(folder)),
        Manifest(
            schema_version=1,
            config=to_mapping(PreprocessConfig()),
            config_fingerprint="",
            versions={},
            inputs=(),
            vocabulary_sha256="0" * 64,
            vocabulary_size=len(PIECES),
            splits=splits,
            counters=count((), ()),
            statistics={},
            fingerprint=content_fingerprint(splits, "0" * 64),
        ),
    )
    return str(folder)


SHARDS = [
    *(("train", "de", 23), ("train", "de", 40), ("train", "en", 60), ("train", "en", 31)),
    *(("train", "sw", 3), ("validation", "en", 20), ("validation", "de", 13)),
]


@pytest.fixture(scope="session")
def make_data() -> Callable[..., str]:
    return write_data


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two splits; three languages, of which one has fewer rows than streams."""
    return write_data(tmp_path_factory.mktemp("data"), SHARDS)


@pytest.fixture(scope="session")
def vocabulary() -> FakeVocabulary:
    return FakeVocabulary()
