"""The plan of shards: which key range of which runs becomes which file. A function of the documents alone."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from preprocess.config import PreprocessConfig
from preprocess.merge import Merge, contains_document, overlaps
from preprocess.runs import KEY_SPACE, Run, RunBatch, validation_draw
from preprocess.storage import Storage

TRAIN, VALIDATION = "train", "validation"
SPLITS = (TRAIN, VALIDATION)
Place = tuple[str, str]  # dataset split, language


@dataclass(frozen=True)
class ShardTask:
    """One shard to build: documents of `batches` with `low <= position < high`, perhaps `only` or `without` one key."""

    path: str
    split: str
    language: str
    low: int
    high: int
    only: str | None
    without: str | None
    batches: tuple[RunBatch, ...]

    def content(self) -> dict[str, Any]:
        """What decides the bytes of the shard; not how the inputs were cut into runs."""
        return {name: value for name, value in vars(self).items() if name != "batches"}

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)

    def documents(self, storage: Storage) -> Merge:
        """The documents of the shard in order, each with its key."""
        return Merge(storage, self.batches, self.low, self.high, only=self.only, without=self.without)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ShardTask:
        """The task that `to_json` described."""
        return cls(**{**values, "batches": tuple(RunBatch(**batch) for batch in values["batches"])})


def moved_key(runs: Sequence[Run], validation_fraction: float) -> tuple[str, str] | None:
    """The key (hex) of the one text that changes its split in a tiny corpus, and the split it goes to; mostly None.

    Where no text drew validation, that with the lowest draw goes there, if there are at least two texts. Where no text
    drew train, that with the highest draw goes there.
    """
    filled = {batch.split for run in runs for batch in run.file.batches}
    keys = [key for run in runs for key in (run.file.lowest, run.file.highest) if key]
    if not keys or (VALIDATION not in filled and not validation_fraction):
        return None
    ordered = sorted(keys, key=lambda key: (validation_draw(bytes.fromhex(key)), key))
    if TRAIN not in filled:
        return ordered[-1], TRAIN
    return (ordered[0], VALIDATION) if VALIDATION not in filled and ordered[0] != ordered[-1] else None


def batches_by_place(runs: Sequence[Run]) -> dict[Place, list[RunBatch]]:
    """The batches of all runs for each (dataset split, language), in the order of their names."""
    places: dict[Place, list[RunBatch]] = defaultdict(list)
    for batch in sorted(
        (batch for run in runs for batch in run.file.batches), key=lambda batch: (batch.run, batch.start)
    ):
        places[batch.split, batch.language].append(batch)
    return dict(sorted(places.items()))


def plan_shards(storage: Storage, runs: Sequence[Run], config: PreprocessConfig) -> list[ShardTask]:
    """The shards of all splits and languages in order, without those that would be empty."""
    moved, moved_to = moved_key(runs, config.validation_fraction) or (None, None)
    tasks: dict[str, list[ShardTask]] = {split: [] for split in SPLITS}
    for (split, language), batches in batches_by_place(runs).items():
        wanted = config.shards or -(-sum(batch.characters for batch in batches) // config.shard_characters)
        without = moved if moved_to != split else None
        bounds = [KEY_SPACE * i // wanted for i in range(wanted + 1)]
        for low, high in itertools.pairwise(bounds):
            if contains_document(storage, batches, low, high, without):
                tasks[split].append(_task(split, language, batches, low, high, without=without))
        if moved and moved_to and moved_to != split:
            low = int(moved[:16], 16)
            task = _task(moved_to, language, batches, low, low + 1, only=moved)
            tasks[moved_to] += [task] if any(True for _ in task.documents(storage)) else []
    return [task for split in SPLITS for task in _numbered(tasks[split])]


def _task(
    split: str,
    language: str,
    batches: list[RunBatch],
    low: int,
    high: int,
    only: str | None = None,
    without: str | None = None,
) -> ShardTask:
    near = tuple(batch for batch in batches if overlaps(batch, low, high))
    return ShardTask("", split, language, low, high, only, without, near)


def _numbered(tasks: list[ShardTask]) -> list[ShardTask]:
    return [
        dataclasses.replace(task, path=f"{task.split}/data-{number:05}-of-{len(tasks):05}.arrow")
        for number, task in enumerate(tasks)
    ]
