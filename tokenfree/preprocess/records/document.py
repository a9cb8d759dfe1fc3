"""The records that travel through preprocessing: a document, and a page that failed, with its reason."""

import hashlib
from dataclasses import dataclass

KEY_BYTES = 16


@dataclass(frozen=True)
class Document:
    """One article or book, clean: `id` is `source:page_id:revision_id` or `source:book`, `language` BCP 47."""

    id: str
    language: str
    title: str
    text: str


@dataclass(frozen=True)
class Failure:
    """One page that could not become a document: kept with its raw text so that it can be replayed."""

    id: str
    reason: str
    text: str


def document_key(text: str) -> bytes:
    """The 16 bytes by which documents are sorted, deduplicated and split: BLAKE2b-128 of the normalised text."""
    return hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest()
