"""The subword vocabulary of a data directory: where it lies, and how it is read."""

from __future__ import annotations

import hashlib

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.dataset.manifest import MANIFEST
from tokenfree.preprocess.features.vocabulary import Vocabulary

MODEL, VOCABULARY = "vocabulary/subwords.model", "vocabulary/subwords.vocab"


def load_vocabulary(data: str) -> Vocabulary | None:
    """The subword vocabulary of a data directory or a run (a path or any fsspec address), None where it has none.

    Raises:
        UserError: the file of the vocabulary is not the one of the manifest, or no SentencePiece model; or there is no
            file system for the address.
    """
    storage = Storage.at(data)
    try:
        model = storage.read_bytes(MODEL)
    except FileNotFoundError:
        return None
    manifest = storage.read_json(MANIFEST)  # a run has none
    sha256 = manifest.get("vocabulary_sha256") if isinstance(manifest, dict) else None
    if sha256 is not None and sha256 != hashlib.sha256(model).hexdigest():
        raise UserError(f"{data}/{MODEL}: damaged, its SHA-256 is not that of {MANIFEST}; copy the file again")
    try:
        return Vocabulary.load(model)
    except UserError:
        raise UserError(f"{data}/{MODEL}: damaged, it is no SentencePiece model; copy the file again") from None
