"""The text on which the vocabulary is trained: a prefix, in key order, of the training documents of each language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preprocess.config import VocabularyConfig
from preprocess.merge import Merge
from preprocess.plan import TRAIN, VALIDATION, Place
from preprocess.runs import KEY_SPACE, RunBatch
from preprocess.storage import Storage

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


def sample_texts(
    storage: Storage,
    places: Mapping[Place, list[RunBatch]],
    config: VocabularyConfig,
    moved: tuple[str, str] | None = None,
) -> Iterator[str]:
    """Texts of the training split, the same on any runner; the last text of a language is cut at its quota.

    `places` are the batches of each (dataset split, language); `moved` is the key that changes its split, and the split
    it goes to (see `moved_key`).
    """
    key, moved_to = moved or (None, None)
    # Where a text is moved into the training split, it is all there is of it.
    only, without, source = (key, None, VALIDATION) if moved_to == TRAIN else (None, key, TRAIN)
    batches = {language: found for (split, language), found in places.items() if split == source}
    characters = {language: sum(batch.characters for batch in found) for language, found in batches.items()}
    quotas = sample_quotas(characters, config.sample_characters, config.smoothing)
    for language, quota in sorted(quotas.items()):
        high = KEY_SPACE if only else min(KEY_SPACE, max(1, int(KEY_SPACE * (MARGIN * quota / characters[language]))))
        for _, document in Merge(storage, batches[language], 0, high, only=only, without=without):
            yield document.text[:quota]
            quota -= len(document.text)
            if quota <= 0:
                break
