"""Progress of a job on any runner: what is committed under the output directory is counted, no worker is asked."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.features.vocabulary_process import TrainingProgress
from tokenfree.preprocess.job.build_step import shard_sidecar
from tokenfree.preprocess.job.plan_step import find_plan
from tokenfree.preprocess.job.preprocess_job import RUNS, SHARDS, PreprocessJob
from tokenfree.preprocess.job.read_step import run_names
from tokenfree.preprocess.job.vocabulary_step import training_progress

Stage = Literal["read", "vocabulary", "build", "finish", "complete"]  # in the order in which they come
_ORDER: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True)
class Progress:
    """How far a job is: `done` of `total` splits ("read") or shards ("build") with their input bytes and characters.

    `bytes` counts decompressed input when reading, files when building; `training` is how far the vocabulary is, while
    it is trained. "complete" means that nothing was left to do.
    """

    stage: Stage
    done: int
    total: int
    bytes: int
    characters: int
    training: TrainingProgress | None = None


class Watcher:
    """Calls `report` from a thread of its own while the `with` block runs: with new progress, or the last one again so
    that a clock beside it goes on. Progress never goes back, also not while the job removes what is counted."""

    def __init__(self, job: PreprocessJob, report: Callable[[Progress], None]) -> None:
        self.storage: Storage = job.storage
        self.report = report
        self.run_names = {f"{RUNS}/{name}.json" for name in run_names(job)}
        self.seconds = 0.3 if self.storage.is_local else 5.0
        self.runs: dict[str, tuple[int, int]] = {}
        self.shards: dict[str, tuple[int, int]] = {}
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
        """The progress at this moment."""
        plan = find_plan(self.storage)
        if plan is None:
            self._count(RUNS, self.runs, _of_run, self.run_names)
            stage = "read" if len(self.runs) < len(self.run_names) else "vocabulary"
            progress = _progress(stage, self.runs, len(self.run_names))
            return progress if stage == "read" else replace(progress, training=training_progress(self.storage))
        paths = [shard.path for shard in plan.shards]
        sidecars = {shard_sidecar(path) for path in paths}
        for dataset_split in {path.partition("/")[0] for path in paths}:
            self._count(f"{SHARDS}/{dataset_split}", self.shards, _of_shard, sidecars)
        stage = "build" if len(self.shards) < len(paths) else "finish"
        return _progress(stage, self.shards, len(paths))

    def _watch(self) -> None:
        while True:
            # An error here means that the file system is busy, or the job has just removed its work: look again later.
            with contextlib.suppress(OSError):
                self.last = furthest(self.last, self.look())
                self.report(self.last)
            if self._stop.wait(self.seconds):
                return

    def _count(
        self,
        folder: str,
        seen: dict[str, tuple[int, int]],
        measure: Callable[[Any], tuple[int, int]],
        wanted: set[str],
    ) -> None:
        for name in self.storage.names(folder):
            sidecar = f"{folder}/{name}"
            if sidecar in wanted - seen.keys():
                values = self.storage.read_json(sidecar)
                if values is not None:
                    seen[sidecar] = measure(values)


def furthest(before: Progress | None, now: Progress) -> Progress:
    """The later of two looks at one job, unless it shows less: then the job was removing its work meanwhile."""
    if before is not None and (_ORDER.index(now.stage), now.done) < (_ORDER.index(before.stage), before.done):
        return before
    return now


def _progress(stage: Stage, seen: dict[str, tuple[int, int]], total: int) -> Progress:
    sizes, characters = zip(*seen.values(), strict=True) if seen else ((), ())
    return Progress(stage, len(seen), total, sum(sizes), sum(characters))


def _of_run(sidecar: Any) -> tuple[int, int]:
    return sidecar["input_bytes"], sum(batch["characters"] for batch in sidecar["file"]["batches"])


def _of_shard(sidecar: Any) -> tuple[int, int]:
    return sidecar["entry"]["bytes"], sidecar["entry"]["characters"]
