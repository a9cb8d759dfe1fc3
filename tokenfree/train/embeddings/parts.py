"""Which texts make a shard: a function of the texts alone, so that any worker makes the same of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

VectorsOf = Literal["texts", "words", "characters"]
SHARD_CHARACTERS = {"texts": 1 << 18, "words": 1 << 16, "characters": 1 << 16}  # 200 MB of vectors of width 768
SHARD_TEXTS = 4096


class Part(NamedTuple):
    """The texts of one shard."""

    number: int  # of the shard, from 0
    first: int  # the number of its first text in the corpus, from 0
    texts: list[str]

    @property
    def sha256(self) -> str:
        """Of the texts and where they are cut."""
        digest = hashlib.sha256()
        for text in self.texts:
            content = text.encode()
            digest.update(b"%d\n" % len(content) + content)
        return digest.hexdigest()


def parts(texts: Iterable[str], vectors: VectorsOf) -> Iterator[Part]:
    """Consecutive texts together until they have enough characters, or are enough texts."""
    number = first = size = 0
    held: list[str] = []
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= SHARD_CHARACTERS[vectors] or len(held) == SHARD_TEXTS:
            yield Part(number, first, held)
            number, first, size, held = number + 1, first + len(held), 0, []
    if held:
        yield Part(number, first, held)
