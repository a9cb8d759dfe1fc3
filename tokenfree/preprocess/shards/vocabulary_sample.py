"""The text on which the vocabulary is trained: a prefix, in key order, of the training documents of each language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.config import VocabularyConfig
from tokenfree.preprocess.shards.partitioning import KEY_SPACE, TRAIN, Partition
from tokenfree.preprocess.shards.plan import DocumentSet

MARGIN = 1.1  # a key range holds about its share of characters, so read a little more and stop at the quota


def sample_quotas(characters: Mapping[str, int], total: int, smoothing: float) -> dict[str, int]:
    """Characters to take of each language, in proportion to `characters ** smoothing`; `total` in all.

    A language that has less than its quota gives all it has, and the rest is divided again among the others.
    """
    quotas: dict[str, int] = {}
    left = {language: count for language, count in sorted(characters.items()) if count}
    budget = float(total)
    while left:
        weight = sum(count**smoothing for count in left.values())
        small = {name: n for name, n in left.items() if n <= budget * n**smoothing / weight}
        if not small:
            return {**quotas, **{name: int(budget * n**smoothing / weight) for name, n in left.items()}}
        quotas |= small
        budget -= sum(small.values())
        left = {name: n for name, n in left.items() if name not in small}
    return quotas


def sample_size(documents: Mapping[Partition, DocumentSet], config: VocabularyConfig) -> int:
    """Characters of all that `sample_texts` gives."""
    return min(
        config.sample_characters, sum(found.characters for (name, _), found in documents.items() if name == TRAIN)
    )


def sample_texts(
    storage: Storage, documents: Mapping[Partition, DocumentSet], config: VocabularyConfig
) -> Iterator[str]:
    """Texts of the training split, language by language in the order of their keys: the same on any runner. The last
    text of a language is cut at its quota of characters."""
    training = {language: found for (name, language), found in documents.items() if name == TRAIN}
    characters = {language: found.characters for language, found in training.items()}
    quotas = sample_quotas(characters, config.sample_characters, config.smoothing)
    for language, quota in sorted(quotas.items()):
        yield from _prefix(storage, training[language], quota)


def _prefix(storage: Storage, documents: DocumentSet, quota: int) -> Iterator[str]:
    """The first `quota` characters of documents in the order of their keys, however few these are.

    Keys are read a range at a time, the first of which holds about as many characters as are wanted: with few long
    documents it may hold none of them.
    """
    share = MARGIN * quota / documents.characters
    # A single text that was moved here may lie anywhere; it is all there is.
    low, high = 0, KEY_SPACE if documents.is_one_text else min(KEY_SPACE, max(1, int(KEY_SPACE * share)))
    while low < high and quota > 0:
        for _, document in documents.between(low, high).merged(storage):
            yield document.text[:quota]
            quota -= len(document.text)
            if quota <= 0:
                return
        low, high = high, min(KEY_SPACE, 2 * high)
