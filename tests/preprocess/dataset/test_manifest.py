"""The manifest: read back as it was written, refused when it is not ours to read, reconciled."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tokenfree.core.errors import UserError
from tokenfree.core.settings_values import to_mapping
from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.completion import content_fingerprint
from tokenfree.preprocess.dataset.manifest import (
    DatasetSplit,
    Manifest,
    ShardEntry,
    load_manifest,
    load_vocabulary,
    save_manifest,
)

SHARD = ShardEntry("train/data-00000-of-00001.arrow", "en", 3, 2, 5000, 90_000, "ab" * 32)
COUNTERS: dict[str, Any] = {
    "pages": 10, "documents": 2, "redirects": 3, "other_namespaces": 1, "duplicates": 1, "filtered": {"empty": 2},
    "failed": {"bad_xml": 1}, "windows": 3, "characters": 5000, "subwords": 1200,
}  # fmt: skip


def manifest(**other: Any) -> Manifest:
    values: dict[str, Any] = {
        "schema_version": 1,
        "config": to_mapping(PreprocessConfig()),
        "config_fingerprint": "00",
        "versions": {"python": "3.11"},
        "inputs": ({"path": "dump.xml", "size": 1, "sha256": "00"},),
        "vocabulary_sha256": None,
        "vocabulary_size": None,
        "splits": {"train": DatasetSplit((SHARD,))},
        "counters": COUNTERS,
        "statistics": {},
        "fingerprint": content_fingerprint({"train": DatasetSplit((SHARD,))}, None),
    }
    return Manifest(**{**values, **other})


def test_the_representation_names_splits_and_fingerprint() -> None:
    assert repr(manifest(splits={"train": DatasetSplit((SHARD,))}, fingerprint="ab")) == (
        "Manifest(train: 2 documents, 3 windows, 5,000 characters; fingerprint=ab)"
    )


def test_a_manifest_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    save_manifest(Storage.at(str(tmp_path)), manifest())
    found = load_manifest(str(tmp_path))
    assert found == manifest()
    split = found.splits["train"]
    assert (split.rows, split.documents, split.characters) == (3, 2, 5000)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no manifest.json there"),
        ("{", "damaged, it is not JSON"),
        ('{"schema_version": 2}', "schema version 2 is not known here (known: 1)"),
        ("[]", "schema version None"),
        ('{"schema_version": 1}', "damaged, config: is missing (and 9 more)"),
        ("[" * 100_000, "damaged, it is not JSON"),
    ],
)
def test_what_cannot_be_read_is_one_line_with_the_remedy(
    tmp_path: Path, content: str | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        load_manifest(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_file_has_no_vocabulary(tmp_path: Path) -> None:
    file = tmp_path / "texts.tsv"
    file.touch()
    assert load_vocabulary(str(file)) is None  # so that the missing manifest is reported


def test_the_file_is_the_same_bytes_for_the_same_manifest(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_manifest(Storage.at(str(tmp_path / name)), manifest())
    assert (tmp_path / "a" / "manifest.json").read_bytes() == (tmp_path / "b" / "manifest.json").read_bytes()
    splits = json.loads((tmp_path / "a" / "manifest.json").read_text())["splits"]
    assert splits["train"]["shards"][0] == asdict(SHARD)
