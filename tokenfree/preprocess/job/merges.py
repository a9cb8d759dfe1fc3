"""Join many sorted runs into fewer files, level by level (an external merge sort).

A shard reads its key range from every run. From `MERGED_RUNS` runs on, groups of as many are merged first, so
that a shard reads few long pieces. The result of a group is one file for each of several equal key ranges,
which different workers write. Each merged file is committed like a run. The files of a level are removed when
all files of the next one are committed, so the text is on the disk twice at most.

    _work/merging.json       the level under way or ended, see `Merging`
    _work/merged/L-G.json    the files that level L joins in its group G
    _work/merged/L-G-R.*     documents of the group in its key range R, and the sidecar
"""

import itertools
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import checked, hash_of, sealed_record, write_sealed
from tokenfree.preprocess.job.job import (
    MERGED,
    MERGING,
    RUNS,
    Merging,
    PreprocessJob,
    concurrently,
    find_merging,
    required,
)
from tokenfree.preprocess.job.read import SKETCHES, all_runs, num_runs
from tokenfree.preprocess.shards.merge import Merge
from tokenfree.preprocess.shards.plan import sources_by_draw
from tokenfree.preprocess.shards.sorted_runs import (
    KEY_SPACE,
    Partition,
    SortedFile,
    SortedRun,
    write_batches,
)

MERGED_RUNS = 256  # runs in a group, and the number of runs from which on they are merged
LEVELS = 2  # enough for sixteen million runs
FILE_BYTES = 512 * 1024 * 1024  # of a merged file, approximately
BATCH_BYTES = 500_000  # of its batches: more than in a run, for fewer requests


@dataclass(frozen=True)
class MergedRun:
    """A committed merge, as its sidecar describes it."""

    file: SortedFile


def plan_merges(job: PreprocessJob) -> int:
    """Plan the next level of merges, unless one is under way, and return its number of tasks: 0 if the runs are few.

    Raises UserError if the disk has not enough space, and JobError if a run is gone.
    """
    storage, level = job.storage, find_merging(job)
    if level is not None:
        groups = _merged_groups(job, level)
        if groups is None:
            return sum(level.ranges)
        _end(job, level)
    elif num_runs(job) < MERGED_RUNS:
        return 0
    else:
        groups = [(run.file,) for run in all_runs(job) if run.file.parts]
    number, count = 1 if level is None else level.number + 1, -(-len(groups) // MERGED_RUNS)
    if len(groups) < MERGED_RUNS or number > LEVELS:
        return 0
    bounds = [len(groups) * group // count for group in range(count + 1)]
    joined = [tuple(itertools.chain(*groups[start:stop])) for start, stop in itertools.pairwise(bounds)]
    sizes = [sum(file.bytes for file in files) for files in joined]
    _check_space(storage, sum(sizes))
    for group, files in enumerate(joined):
        storage.write_json(f"{_name(number, group)}.json", [asdict(file) for file in files])
    ranges = tuple(-(-size // FILE_BYTES) for size in sizes)
    _write(job, Merging(job.reading_fingerprint, job.splits, number, ranges))
    return sum(ranges)


def merge_runs(job: PreprocessJob, index: int) -> str:
    """Merge one key range of a group, unless an earlier attempt did, and return the name of the result.

    Raises JobError if the level is not planned, and DamagedFileError if a run is damaged.
    """
    storage, level = job.storage, find_merging(job)
    if level is None:
        raise JobError(f"{job.url}/{MERGING}: gone or damaged; run the job again")
    group = int(np.searchsorted(np.cumsum(level.ranges), index, side="right"))
    number = index - sum(level.ranges[:group])
    name = _name(level.number, group, number)
    done = sealed_record(MergedRun, storage, f"{name}.json")
    if done is None or hash_of(storage, done.file.path) != done.file.sha256:
        files = checked(tuple[SortedFile, ...], required(storage, f"{_name(level.number, group)}.json"))
        low, high = (KEY_SPACE * edge // level.ranges[group] for edge in (number, number + 1))
        merged = write_batches(storage, f"{name}.arrow", _batches(storage, files, low, high))
        write_sealed(storage, f"{name}.json", asdict(MergedRun(merged)))
    return name


def sorted_files(job: PreprocessJob, runs: Iterable[SortedRun]) -> tuple[SortedFile, ...]:
    """Return the files of the documents of all runs, after the last merge.

    Raises JobError if a merged one is gone.
    """
    level = find_merging(job)
    if level is None:
        return tuple(run.file for run in runs if run.file.parts)
    groups = _merged_groups(job, level)
    if groups is None:
        raise JobError(f"{job.url}/{MERGED}: a merged run is gone; run the job again")
    _end(job, level)
    return tuple(itertools.chain(*groups))


def merged_names(job: PreprocessJob) -> list[str]:
    """Return the names of the sidecars of all committed merges, which begin with the numbers of their levels."""
    return [name for name in job.storage.names(MERGED) if name.endswith(".json") and name.count("-") == 2]


def _name(level: int, *numbers: int) -> str:
    return "-".join([f"{MERGED}/{level}", *(f"{number:05}" for number in numbers)])


def _merged_groups(job: PreprocessJob, level: Merging) -> list[tuple[SortedFile, ...]] | None:
    storage = job.storage
    names = [
        f"{_name(level.number, group, number)}.json"
        for group, ranges in enumerate(level.ranges)
        for number in range(ranges)
    ]
    if not set(names) <= {f"{MERGED}/{name}" for name in storage.names(MERGED)}:
        return None
    merged = concurrently(storage, lambda name: sealed_record(MergedRun, storage, name), names)
    files = [run.file for run in merged if run is not None]
    if len(files) < len(names):
        return None
    remaining = iter(files)
    return [tuple(itertools.islice(remaining, ranges)) for ranges in level.ranges]


def _end(job: PreprocessJob, level: Merging) -> None:
    """Remove the files that a level has joined."""
    _write(job, replace(level, ended=True))
    folder, stem = (RUNS, "") if level.number == 1 else (MERGED, f"{level.number - 1}-")
    names = [
        f"{folder}/{name}"
        for name in job.storage.names(folder)
        if name.startswith(stem) and name.endswith(".arrow") and not name.endswith(SKETCHES)
    ]
    job.storage.remove(*names)


def _write(job: PreprocessJob, level: Merging) -> None:
    write_sealed(job.storage, MERGING, asdict(level))


def _check_space(storage: Storage, needed: int) -> None:
    if not storage.is_local:
        return
    free = shutil.disk_usage(storage.path("")).free
    if free < needed:
        raise UserError(
            f"{storage.url}: merging the runs needs {needed:,} bytes and {free:,} are free; free {needed - free:,} "
            "more and run the same command again"
        )


def _batches(
    storage: Storage, files: Iterable[SortedFile], low: int, high: int
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    for partition, sources in sorted(sources_by_draw(files).items()):
        for table in Merge(storage, sources, [(low, high)]).tables():
            lengths = pc.binary_length(table["text"])  # pyright: ignore[reportAttributeAccessIssue]
            starts = np.flatnonzero(np.diff(np.cumsum(lengths.to_numpy()) // BATCH_BYTES, prepend=-1))
            for start, stop in itertools.pairwise([*starts.tolist(), table.num_rows]):
                yield partition, table.slice(start, stop - start).combine_chunks().to_batches()[0]
