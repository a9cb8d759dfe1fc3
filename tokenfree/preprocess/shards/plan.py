"""Plan the shards: which key range of which runs becomes which file.

Also choose the text for the vocabulary.
"""

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig
from tokenfree.preprocess.documents.near_duplicates import dropped_keys
from tokenfree.preprocess.shards.merge import FilePart, Merge, occupied
from tokenfree.preprocess.shards.sorted_runs import (
    DATASET_SPLITS,
    KEY_SPACE,
    TRAIN,
    VALIDATION,
    KeyRange,
    Partition,
    Partitioning,
    SortedFile,
    SortedRun,
    clipped,
    key_position,
    validation_draw,
)


@dataclass(frozen=True)
class DocumentSet:
    """The documents of one language in `sources` that lie in ascending `ranges`, except those in the file `dropped`."""

    sources: tuple[FilePart, ...]
    ranges: tuple[KeyRange, ...]
    dropped: str | None = None

    @property
    def characters(self) -> int:
        """Characters of all texts in the sources, including those out of range and duplicates."""
        return sum(part.characters for _, part in self.sources)

    def merged(self, storage: Storage) -> Merge:
        return Merge(storage, self.sources, self.ranges, self._dropped_keys(storage))

    def occupied(self, storage: Storage, ranges: Sequence[KeyRange]) -> np.ndarray:
        """Return which of the ascending ranges, whatever the set's own, have a document, bool [ranges]."""
        return occupied(storage, self.sources, ranges, self._dropped_keys(storage))

    def _dropped_keys(self, storage: Storage) -> np.ndarray | None:
        if self.dropped is None or not self.sources:
            return None
        return dropped_keys(storage, self.dropped, self.sources[0].part.language)


@dataclass(frozen=True)
class ShardTask:
    """One shard to build from the documents of a partition at positions in ascending `ranges`.

    Its fields decide the bytes of the shard, which do not depend on how the inputs were cut into runs.
    """

    path: str
    partition: Partition
    ranges: tuple[KeyRange, ...]


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
        extremes = [key for run in runs for key in (run.lowest, run.highest) if key]
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
    files: Iterable[SortedFile], rule: Partitioning, dropped_file: str | None = None
) -> dict[Partition, DocumentSet]:
    """Return the documents of all files but those in `dropped_file`, by sorted partition, which may be empty."""
    documents: dict[Partition, DocumentSet] = {}
    for (drawn_split, language), sources in sources_by_draw(files).items():
        if drawn_split == rule.moved_to:
            # All of them were dropped, or none would have been moved there.
            continue
        for dataset_split in DATASET_SPLITS:
            ranges = rule.ranges(dataset_split, drawn_split)
            if ranges:
                documents[Partition(dataset_split, language)] = DocumentSet(sources, ranges, dropped_file)
    return dict(sorted(documents.items()))


def sources_by_draw(files: Iterable[SortedFile]) -> dict[Partition, tuple[FilePart, ...]]:
    drawn: dict[Partition, list[FilePart]] = defaultdict(list)
    for file in files:
        for part in file.parts:
            drawn[Partition(part.drawn_split, part.language)].append(FilePart(file.path, part))
    return {partition: tuple(sources) for partition, sources in drawn.items()}


def plan_shards(
    storage: Storage, documents: Mapping[Partition, DocumentSet], config: PreprocessConfig
) -> tuple[list[ShardTask], list[DocumentSet]]:
    """Return the shards of all partitions in order, and the parts of partitions that get none, because they are empty.

    The documents of each partition are divided into equal key ranges. A range with documents becomes a shard.
    """
    shards: dict[str, list[tuple[Partition, tuple[KeyRange, ...]]]] = {name: [] for name in DATASET_SPLITS}
    empty = []
    for partition, whole in documents.items():
        num_shards = config.shards or -(-whole.characters // config.shard_characters)
        bounds = [KEY_SPACE * number // num_shards for number in range(num_shards + 1)]
        parts = [clipped(whole.ranges, low, high) for low, high in itertools.pairwise(bounds)]
        ranges = [one for part in parts for one in part]
        occupied_ranges = set(itertools.compress(ranges, whole.occupied(storage, ranges)))
        for part in parts:
            if occupied_ranges.isdisjoint(part):
                empty.append(dataclasses.replace(whole, ranges=part))
            else:
                shards[partition.dataset_split].append((partition, part))
    tasks = [
        ShardTask(f"{name}/data-{number:05}-of-{len(parts):05}.arrow", partition, ranges)
        for name, parts in shards.items()
        for number, (partition, ranges) in enumerate(parts)
    ]
    return tasks, empty


def dropped_without_shard(
    storage: Storage,
    files: Iterable[SortedFile],
    rule: Partitioning,
    empty: Sequence[DocumentSet],
    dropped_file: str | None,
) -> tuple[int, int]:
    """Return the duplicates and near-duplicates where no document stays, which no shard counts."""
    if dropped_file is None:
        return 0, 0
    without = [
        DocumentSet(sources, ((0, KEY_SPACE),), dropped_file)
        for (drawn_split, _), sources in sources_by_draw(files).items()
        if drawn_split == rule.moved_to
    ]
    duplicates = near_duplicates = 0
    for part in (*empty, *without):
        merge = part.merged(storage)
        # Counts duplicates, also under python -O.
        is_empty = not any(True for _ in merge)
        assert is_empty, "a document stays in a part without a shard"
        duplicates += merge.duplicates
        near_duplicates += merge.near_duplicates
    return duplicates, near_duplicates


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
        inside = dataclasses.replace(documents, ranges=clipped(documents.ranges, low, high))
        for _, document in inside.merged(storage):
            yield document.text[:quota]
            quota -= len(document.text)
            if quota <= 0:
                return
        low, high = high, min(KEY_SPACE, 2 * high)
