"""Plan the shards: which key range of which runs becomes which file.

Also choose the text for the vocabulary.
"""

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.documents.near_duplicates import dropped_keys
from tokenfree.preprocess.shards.merge import Merge, contains_document, overlaps
from tokenfree.preprocess.shards.sorted_runs import (
    DATASET_SPLITS,
    KEY_SPACE,
    TRAIN,
    VALIDATION,
    KeyRange,
    Partition,
    Partitioning,
    SortedRun,
    SortedRunBatch,
    clipped,
    key_position,
    validation_draw,
)


@dataclass(frozen=True)
class DocumentSet:
    """The documents of one language in `batches` that lie in ascending `ranges`, except those in the file `gone`."""

    ranges: tuple[KeyRange, ...]
    batches: tuple[SortedRunBatch, ...]
    gone: str | None = None

    @property
    def characters(self) -> int:
        """Characters of all texts in the batches, including those out of range and duplicates."""
        return sum(batch.characters for batch in self.batches)

    def between(self, low: int, high: int) -> Self:
        """Return the documents at positions from `low` up to, but excluding, `high`."""
        ranges = clipped(self.ranges, low, high)
        near = tuple(batch for batch in self.batches if any(overlaps(batch, *part) for part in ranges))
        return dataclasses.replace(self, ranges=ranges, batches=near)

    def is_empty(self, storage: Storage) -> bool:
        """Return True if there is no document. Reads data only if the sidecars of the runs cannot tell."""
        return not contains_document(storage, self.batches, self.ranges, self._gone_keys(storage))

    def merged(self, storage: Storage) -> Merge:
        return Merge(storage, self.batches, self.ranges, self._gone_keys(storage))

    def _gone_keys(self, storage: Storage) -> np.ndarray | None:
        if self.gone is None or not self.batches:
            return None
        return dropped_keys(storage, self.gone, self.batches[0].language)


@dataclass(frozen=True)
class ShardTask:
    """One shard to build from documents of one partition."""

    path: str
    partition: Partition
    documents: DocumentSet

    def content(self) -> dict[str, Any]:
        """Return what decides the bytes of the shard, which excludes how the inputs were cut into runs."""
        return {"path": self.path, "partition": [*self.partition], "ranges": self.documents.ranges}


def decide_partitioning(
    runs: Sequence[SortedRun], validation_fraction: float, extremes: Sequence[str] | None = None
) -> Partitioning:
    """Return the rule that assigns the documents of all runs to train and validation.

    If no text drew validation, the text with the lowest draw moves there, provided that there are at least
    two texts. If no text drew train, the text with the highest draw moves there. `extremes` has the keys
    (hex) with the lowest and the highest draw, if some documents of the runs were dropped.
    """
    plain = Partitioning(validation_fraction)
    if extremes is None:
        extremes = [key for run in runs for key in (run.file.lowest, run.file.highest) if key]
    keys = [bytes.fromhex(key) for key in extremes]
    filled = {plain.drawn_split(key) for key in keys}
    if not keys or (VALIDATION not in filled and not validation_fraction):
        return plain
    ordered = sorted(keys, key=lambda key: (validation_draw(key), key))
    if TRAIN not in filled:
        return dataclasses.replace(plain, moved=key_position(ordered[-1]), moved_to=TRAIN)
    if VALIDATION not in filled and ordered[0] != ordered[-1]:
        return dataclasses.replace(plain, moved=key_position(ordered[0]), moved_to=VALIDATION)
    return plain


def partitions(
    runs: Sequence[SortedRun], rule: Partitioning, dropped_file: str | None = None
) -> dict[Partition, DocumentSet]:
    """Return the documents of all runs but those in `dropped_file`, by sorted partition, which may be empty."""
    documents: dict[Partition, DocumentSet] = {}
    for (drawn_split, language), batches in _by_draw(runs).items():
        if rule.moved is not None and drawn_split == rule.moved_to:
            # All of them were dropped, or none would have been moved there.
            continue
        for dataset_split in DATASET_SPLITS:
            ranges = rule.ranges(dataset_split, drawn_split)
            if ranges:
                documents[Partition(dataset_split, language)] = DocumentSet(ranges, batches, dropped_file)
    return dict(sorted(documents.items()))


def _by_draw(runs: Sequence[SortedRun]) -> dict[Partition, tuple[SortedRunBatch, ...]]:
    drawn: dict[Partition, list[SortedRunBatch]] = defaultdict(list)
    for batch in sorted(
        (batch for run in runs for batch in run.file.batches), key=lambda batch: (batch.run, batch.start)
    ):
        drawn[Partition(batch.drawn_split, batch.language)].append(batch)
    return {partition: tuple(batches) for partition, batches in drawn.items()}


def plan_shards(
    storage: Storage, documents: Mapping[Partition, DocumentSet], config: PreprocessConfig
) -> list[ShardTask]:
    """Return the shards of all partitions in order, without empty ones."""
    shards: dict[str, list[tuple[Partition, DocumentSet]]] = {name: [] for name in DATASET_SPLITS}
    for partition, part in _parts(documents, config):
        if not part.is_empty(storage):
            shards[partition.dataset_split].append((partition, part))
    return [
        ShardTask(f"{name}/data-{number:05}-of-{len(parts):05}.arrow", partition, part)
        for name, parts in shards.items()
        for number, (partition, part) in enumerate(parts)
    ]


def dropped_without_shard(
    storage: Storage,
    runs: Sequence[SortedRun],
    rule: Partitioning,
    documents: Mapping[Partition, DocumentSet],
    config: PreprocessConfig,
) -> tuple[int, int]:
    """Return the duplicates and near-duplicates in ranges where no document stays, which no shard counts."""
    (dropped_file,) = {whole.gone for whole in documents.values()}
    if dropped_file is None:
        return 0, 0
    without = [part for _, part in _parts(documents, config) if part.is_empty(storage)]
    for (drawn_split, _), batches in _by_draw(runs).items():
        if rule.moved is not None and drawn_split == rule.moved_to:
            without.append(DocumentSet(((0, KEY_SPACE),), batches, dropped_file))
    duplicates = near_duplicates = 0
    for part in without:
        merge = part.merged(storage)
        # Counts duplicates, also under python -O.
        is_empty = not any(True for _ in merge)
        assert is_empty, "a document stays in a part without a shard"
        duplicates += merge.duplicates
        near_duplicates += merge.near_duplicates
    return duplicates, near_duplicates


def _parts(
    documents: Mapping[Partition, DocumentSet], config: PreprocessConfig
) -> Iterator[tuple[Partition, DocumentSet]]:
    """Yield the documents of each partition in equal key ranges. A range with documents becomes a shard."""
    for partition, whole in documents.items():
        num_shards = config.shards or -(-whole.characters // config.shard_characters)
        bounds = [KEY_SPACE * i // num_shards for i in range(num_shards + 1)]
        for low, high in itertools.pairwise(bounds):
            yield partition, whole.between(low, high)


# A key range holds approximately its share of characters, so read a little more and stop at the quota.
MARGIN = 1.1


def sample_quotas(characters: Mapping[str, int], total: int, smoothing: float) -> dict[str, int]:
    """Return the characters to take of each language, in proportion to `characters ** smoothing`, `total` in all.

    A language with fewer characters than its quota gives all of them. The others share what is missing.
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
    """Return the number of characters that `sample_texts` yields."""
    return min(
        config.sample_characters,
        sum(part.characters for (name, _), part in documents.items() if name == TRAIN),
    )


def sample_texts(
    storage: Storage, documents: Mapping[Partition, DocumentSet], config: VocabularyConfig
) -> Iterator[str]:
    """Yield training texts by language in the order of their keys (on any runner), up to the language's quota."""
    training = {language: part for (name, language), part in documents.items() if name == TRAIN}
    characters = {language: part.characters for language, part in training.items()}
    quotas = sample_quotas(characters, config.sample_characters, config.smoothing)
    for language, quota in sorted(quotas.items()):
        yield from _prefix(storage, training[language], quota)


def _prefix(storage: Storage, documents: DocumentSet, quota: int) -> Iterator[str]:
    """Yield the first `quota` characters of documents in the order of their keys.

    Reads one key range at a time.
    """
    share = MARGIN * quota / documents.characters
    low, high = 0, min(KEY_SPACE, max(1, int(KEY_SPACE * share)))
    # A single text that was moved here lies anywhere.
    if all(end - first == 1 for first, end in documents.ranges):
        high = KEY_SPACE
    while low < high and quota > 0:
        for _, document in documents.between(low, high).merged(storage):
            yield document.text[:quota]
            quota -= len(document.text)
            if quota <= 0:
                return
        low, high = high, min(KEY_SPACE, 2 * high)
