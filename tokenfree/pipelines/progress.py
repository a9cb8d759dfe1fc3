"""Progress of a job on any runner, from what is committed in the output directory. Workers are not asked."""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self, get_args

from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.manifest import Manifest
from tokenfree.preprocess.job.job import RUNS, SHARDS, PreprocessJob, find_merging
from tokenfree.preprocess.job.merges import merged_names
from tokenfree.preprocess.job.steps import find_plan, shard_sidecar
from tokenfree.preprocess.shards.sorted_runs import runs_name, split_of_run

Stage = Literal["read", "merge", "vocabulary", "build", "finish", "complete"]  # in order
_ORDER: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True)
class Progress:
    """Progress of a job: `done` of `total` splits ("read"), merges or shards ("build"), and their bytes and characters.

    `bytes` counts decompressed input when reading, and files when building. "complete" means that nothing was
    left to do. `too_short` is the share of the pages read that `filters.min_characters` dropped.
    """

    stage: Stage
    done: int
    total: int
    bytes: int
    characters: int
    too_short: float = field(default=0.0, compare=False)


class _Totals(NamedTuple):
    """A committed run or shard. The run that is `last` ends its split."""

    bytes: int
    characters: int
    last: bool = True
    pages: int = 0
    too_short: int = 0


class Watcher:
    """A context manager that calls `report` from a thread while the block runs.

    It reports new progress, or the last one again to keep a clock next to it running. Progress never
    decreases, even while the job removes the files that are counted.
    """

    def __init__(self, job: PreprocessJob, report: Callable[[Progress], None]) -> None:
        self.job = job
        self.storage: Storage = job.storage
        self.report = report
        self.splits = {runs_name(line) for line in job.split_lines()}
        self.seconds = 0.3 if self.storage.is_local else 5.0
        self.runs: dict[str, _Totals] = {}
        self.shards: dict[str, _Totals] = {}
        self.last: Progress | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def look(self) -> Progress:
        plan = find_plan(self.storage)
        if plan is None:
            self._count(
                RUNS, self.runs, _of_run, lambda name: split_of_run(name.removesuffix(".json")) in self.splits
            )
            done = len({split_of_run(name) for name, run in self.runs.items() if run.last})
            level = find_merging(self.job)
            if level is not None and not level.ended:
                merged = merged_names(self.job)
                remaining = sum(level.ranges) - sum(name.startswith(f"{level.number}-") for name in merged)
                return _progress("merge", self.runs, len(merged), len(merged) + remaining)
            stage = "read" if done < len(self.splits) else "vocabulary"
            return _progress(stage, self.runs, done, len(self.splits))
        paths = [shard.path for shard in plan.shards]
        sidecars = {shard_sidecar(path) for path in paths}
        for dataset_split in {path.partition("/")[0] for path in paths}:
            folder = f"{SHARDS}/{dataset_split}"
            self._count(
                folder, self.shards, _of_shard, lambda name, folder=folder: f"{folder}/{name}" in sidecars
            )
        done = len(self.shards)
        stage = "build" if done < len(paths) else "finish"
        return _progress(stage, self.shards, done, len(paths))

    def _watch(self) -> None:
        while True:
            start = time.monotonic()
            # An error means that the file system is busy, or that the job has just removed its work. Look
            # again later.
            with contextlib.suppress(OSError):
                self.last = furthest(self.last, self.look())
                self.report(self.last)
            # A directory of many files takes long to list.
            if self._stop.wait(max(self.seconds, 10 * (time.monotonic() - start))):
                return

    def _count(
        self,
        folder: str,
        seen: dict[str, _Totals],
        measure: Callable[[Any], _Totals],
        is_counted: Callable[[str], bool],
    ) -> None:
        for name in self.storage.names(folder):
            sidecar = f"{folder}/{name}"
            if sidecar not in seen and name.endswith(".json") and is_counted(name):
                values = self.storage.read_json(sidecar)
                if values is not None:
                    # Damaged: its step builds it again.
                    with contextlib.suppress(KeyError, TypeError, AttributeError):
                        seen[sidecar] = measure(values)


def at_the_end(stage: Stage, manifest: Manifest) -> Progress:
    shards = manifest.shards
    return Progress(
        stage, len(shards), len(shards), sum(shard.bytes for shard in shards), manifest.counters["characters"]
    )


def furthest(previous: Progress | None, now: Progress) -> Progress:
    """Return the later of two observations, unless it shows less because the job was removing its work."""
    if previous is not None and (_ORDER.index(now.stage), now.done) < (
        _ORDER.index(previous.stage),
        previous.done,
    ):
        return previous
    return now


def _progress(stage: Stage, seen: dict[str, _Totals], done: int, total: int) -> Progress:
    totals = seen.values()
    return Progress(
        stage,
        done,
        total,
        sum(one.bytes for one in totals),
        sum(one.characters for one in totals),
        sum(one.too_short for one in totals) / max(1, sum(one.pages for one in totals)),
    )


def _of_run(sidecar: Any) -> _Totals:
    characters = sum(part["characters"] for part in sidecar["file"]["parts"])
    counters = sidecar["counters"]
    too_short = counters["filtered"].get("too_short", 0)
    return _Totals(sidecar["input_bytes"], characters, sidecar["last"], counters["pages"], too_short)


def _of_shard(sidecar: Any) -> _Totals:
    return _Totals(sidecar["entry"]["bytes"], sidecar["entry"]["characters"])
