"""The vocabulary of a folder is read only as it was written."""

import hashlib
import json
from pathlib import Path

import pytest

from tokenfree.core.errors import UserError
from tokenfree.preprocess.config import VocabularyConfig
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary, train_vocabulary

BYTE_PIECE = b"<0x07>"


@pytest.fixture(scope="module")
def model() -> bytes:
    return train_vocabulary(
        ["The goose argues over bread."],
        VocabularyConfig(size=284, required_characters="none", character_coverage=1.0),
        0,
    )


def write(folder: Path, model: bytes) -> Path:
    path = folder / "vocabulary" / "subwords.model"
    path.parent.mkdir(parents=True)
    path.write_bytes(model)
    return path


def test_a_folder_with_and_without_one(model: bytes, tmp_path: Path) -> None:
    assert load_vocabulary(str(tmp_path)) is None
    write(tmp_path, model)
    found = load_vocabulary(str(tmp_path))
    assert found is not None
    assert found.model == model


def test_any_flipped_bit_is_noticed_beside_a_manifest(model: bytes, tmp_path: Path) -> None:
    path = write(tmp_path, model)
    (tmp_path / "manifest.json").write_text(
        json.dumps({"vocabulary_sha256": hashlib.sha256(model).hexdigest()})
    )
    assert load_vocabulary(str(tmp_path)) is not None
    for place in range(0, len(model), len(model) // 20):
        path.write_bytes(model[:place] + bytes([model[place] ^ 16]) + model[place + 1 :])
        with pytest.raises(
            UserError, match=r"vocabulary/subwords\.model: damaged, its SHA-256 is not that of manifest"
        ):
            load_vocabulary(str(tmp_path))


@pytest.mark.parametrize("piece", [b"<0x08>", b"< x07>"])
def test_what_the_library_refuses_is_one_line(piece: bytes, model: bytes, tmp_path: Path) -> None:
    damaged = model.replace(BYTE_PIECE, piece)
    with pytest.raises(UserError, match=r"not a SentencePiece model"):
        Vocabulary(damaged)
    write(tmp_path, damaged)
    with pytest.raises(
        UserError, match=r"vocabulary/subwords\.model: damaged, it is not a SentencePiece model"
    ):
        load_vocabulary(str(tmp_path))
