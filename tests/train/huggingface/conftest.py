"""Tokenizers of CANINE that open quickly."""

import functools
from collections.abc import Iterator
from typing import Any

import pytest

_characters = functools.cache(lambda size: {chr(codepoint): codepoint for codepoint in range(size)})


@pytest.fixture(autouse=True, scope="session")
def one_vocabulary_of_characters() -> Iterator[None]:
    """`CanineTokenizer` makes a dictionary of all 1,114,112 codepoints twice when it opens: a second of each test."""
    try:
        from transformers import CanineTokenizer
    except ImportError:
        yield
        return

    def get_vocab(tokenizer: Any) -> dict[str, int]:
        return _characters(tokenizer.vocab_size) | tokenizer.added_tokens_encoder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CanineTokenizer, "get_vocab", get_vocab)
        yield
