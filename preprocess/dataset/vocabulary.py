"""The subword vocabulary of a data directory: where it lies, and how it is read."""

from __future__ import annotations

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.features.vocabulary import Vocabulary

MODEL, VOCABULARY = "vocabulary/subwords.model", "vocabulary/subwords.vocab"


def load_vocabulary(data: str) -> Vocabulary | None:
    """The subword vocabulary of a data directory (a path or any fsspec address), None where it has none.

    Raises:
        UserError: the file of the vocabulary is no SentencePiece model, or there is no file system for the address.
    """
    try:
        return Vocabulary.load(Storage.at(data).read_bytes(MODEL))
    except FileNotFoundError:
        return None
