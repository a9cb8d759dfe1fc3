"""Progress of a job on any runner, from what is committed in the output directory. Workers are not asked."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.manifest import Manifest
from tokenfree.preprocess.features.vocabulary_process import TrainingProgress
from tokenfree.preprocess.job.job import RUNS, SHARDS, PreprocessJob
from tokenfree.preprocess.job.read import splits_to_read
from tokenfree.preprocess.job.steps import find_plan, shard_sidecar, training_progress
from tokenfree.preprocess.shards.sorted_runs import split_of_run

Stage = Literal["read", "vocabulary", "build", "finish", "complete"]  # in order
_ORDER: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True)
class Progress:
    """Progress of a job: `done` of `total` splits ("read") or shards ("build"), with their input bytes and characters.

    `bytes` counts decompressed input when reading, and files when building. `training` is the progress of the
    vocabulary's training while it runs. "complete" means that nothing was left to do. `failed` counts pages, and
    `dropped` counts those left out by reason. Both cover the runs that this command has seen, so they miss them if it
    starts with the shards.
    """

    stage: Stage
    done: int
    total: int
    bytes: int
    characters: int
    training: TrainingProgress | None = None
    failed: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)


class Watcher:
    """A context manager that calls `report` from a thread while the block runs.

    It reports new progress, or the last one again to keep a clock next to it running. Progress never decreases, even
    while the job removes the files that are counted.
    """

    def __init__(self, job: PreprocessJob, report: Callable[[Progress], None]) -> None:
        self.storage: Storage = job.storage
        self.report = report
        self.splits = splits_to_read(job)
        self.seconds = 0.3 if self.storage.is_local else 5.0
        self.runs: dict[str, _Seen] = {}
        self.shards: dict[str, _Seen] = {}
        self.last: Progress | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def look(self) -> Progress:
        """Return the current progress."""
        plan = find_plan(self.storage)
        if plan is None:
            self._count(RUNS, self.runs, _of_run, lambda name: split_of_run(name.removesuffix(".json")) in self.splits)
            done = len({split_of_run(name) for name, run in self.runs.items() if run.last})
            stage = "read" if done < len(self.splits) else "vocabulary"
            progress = self._with_pages(_progress(stage, self.runs, done, len(self.splits)))
            return progress if stage == "read" else replace(progress, training=training_progress(self.storage))
        paths = [shard.path for shard in plan.shards]
        sidecars = {shard_sidecar(path) for path in paths}
        for dataset_split in {path.partition("/")[0] for path in paths}:
            folder = f"{SHARDS}/{dataset_split}"
            self._count(folder, self.shards, _of_shard, lambda name, folder=folder: f"{folder}/{name}" in sidecars)
        done = len(self.shards)
        stage = "build" if done < len(paths) else "finish"
        return self._with_pages(_progress(stage, self.shards, done, len(paths)))

    def _with_pages(self, progress: Progress) -> Progress:
        dropped: Counter[str] = Counter()
        for run in self.runs.values():
            dropped.update(run.dropped)
        return replace(progress, failed=sum(run.failed for run in self.runs.values()), dropped=dict(dropped))

    def _watch(self) -> None:
        while True:
            # An error means that the file system is busy, or that the job has just removed its work. Look again later.
            with contextlib.suppress(OSError):
                self.last = furthest(self.last, self.look())
                self.report(self.last)
            if self._stop.wait(self.seconds):
                return

    def _count(
        self,
        folder: str,
        seen: dict[str, _Seen],
        measure: Callable[[Any], _Seen],
        is_wanted: Callable[[str], bool],
    ) -> None:
        for name in self.storage.names(folder):
            sidecar = f"{folder}/{name}"
            if sidecar not in seen and name.endswith(".json") and is_wanted(name):
                values = self.storage.read_json(sidecar)
                if values is not None:
                    with contextlib.suppress(KeyError, TypeError, AttributeError):  # damaged: its step builds it again
                        seen[sidecar] = measure(values)


def at_the_end(stage: Stage, manifest: Manifest) -> Progress:
    """Return the progress of a job whose manifest is written."""
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    size = sum(shard.bytes for shard in shards)
    lost = _lost_pages(manifest.counters)
    return Progress(stage, len(shards), len(shards), size, manifest.counters["characters"], None, *lost)


def furthest(before: Progress | None, now: Progress) -> Progress:
    """Return the later of two observations, unless it shows less because the job was removing its work."""
    if before is not None and (_ORDER.index(now.stage), now.done) < (_ORDER.index(before.stage), before.done):
        return before
    return now


class _Seen(NamedTuple):
    """A committed run or shard. The run that is `last` ends its split. `failed` and `dropped` count pages."""

    bytes: int
    characters: int
    last: bool = True
    failed: int = 0
    dropped: Mapping[str, int] = MappingProxyType({})


def _progress(stage: Stage, seen: dict[str, _Seen], done: int, total: int) -> Progress:
    found = seen.values()
    return Progress(stage, done, total, sum(one.bytes for one in found), sum(one.characters for one in found))


def _of_run(sidecar: Any) -> _Seen:
    characters = sum(batch["characters"] for batch in sidecar["file"]["batches"])
    return _Seen(sidecar["input_bytes"], characters, sidecar["last"], *_lost_pages(sidecar["counters"]))


def _of_shard(sidecar: Any) -> _Seen:
    return _Seen(sidecar["entry"]["bytes"], sidecar["entry"]["characters"])


def _lost_pages(counters: Mapping[str, Any]) -> tuple[int, dict[str, int]]:
    """Return the number of failed pages, and the numbers of pages left out by reason."""
    names = {"redirect": "redirects", "other_namespace": "other_namespaces", "duplicate": "duplicates"}
    dropped = {reason: counters[name] for reason, name in names.items() if counters.get(name)}
    return sum(counters["failed"].values()), {**counters["filtered"], **dropped}
