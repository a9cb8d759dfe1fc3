"""How the cost of planning, merging and building grows with the text, from gigabytes to ten terabytes.

The runs are synthetic: their sidecars and indexes are what reading a Wikipedia dump would have written, and their
documents do not exist. The code that plans merges and shards is the product's own, on a store in memory that
counts requests and bytes. What merges and shards would read is computed by the product's `Merge.pieces` for a
sample of them, because all of them would take as long as a real job's listing.

    python -m benchmarks.scale            # 1 GB to 10 TB
    python -m benchmarks.scale --quick    # 10 GB to 1 TB, in five minutes
    python -m benchmarks.scale 10 3000    # these sizes, in GB

Prints a row for each size, then the exponent of each column (the slope of a straight line through logarithms), and
exits with 1 where one exceeds 1.1.
"""

import argparse
import contextlib
import hashlib
import json
import math
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tokenfree.core.settings_values import fingerprint
from tokenfree.core.storage import NewFile, Storage
from tokenfree.core.stored_files import checked, write_sealed
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.documents.extract import PageCounters
from tokenfree.preprocess.job import merges
from tokenfree.preprocess.job.job import MERGED, RUNS, TASKS, PreprocessJob, find_merging
from tokenfree.preprocess.job.read import all_runs
from tokenfree.preprocess.job.steps import TASKS_A_FILE, TaskFile, cached_documents, load_plan, make_plan
from tokenfree.preprocess.shards.merge import FilePart, Merge
from tokenfree.preprocess.shards.plan import sources_by_draw
from tokenfree.preprocess.shards.sorted_runs import (
    BATCH_CHARACTERS,
    INDEX,
    KEY_SPACE,
    SortedFile,
    SortedPart,
    SortedRun,
    commit_run,
    run_name,
    runs_name,
)

SIZES = (1, 10, 100, 1000, 10_000)  # GB of text
QUICK = SIZES[1:4]
LIMIT = 1.1  # of an exponent
# Of English Wikipedia: 32 MiB of a dump give this much text, in articles of this length.
RUN_BYTES, DOCUMENT_BYTES = 15_000_000, 1_500
KINDS = 16  # different runs
SAMPLE = 32  # merges of a level, and shards
COLUMNS = ("document", "language", "text")  # no vocabulary is trained


class Store:
    """Files in memory. Those of documents have only a size."""

    def __init__(self) -> None:
        self.folders: dict[str, dict[str, bytes | int]] = {}
        self.indexes: dict[tuple[str, int], tuple[int, int, int, int, int]] = {}  # arguments of `index_bytes`
        self.requests = self.read = self.written = self.files = 0

    def put(self, name: str, content: bytes | int) -> None:
        folder, _, base = name.rpartition("/")
        self.folders.setdefault(folder, {})[base] = content
        self.files += 1
        self.written += content if isinstance(content, int) else len(content)

    def get(self, name: str) -> bytes | int:
        folder, _, base = name.rpartition("/")
        try:
            return self.folders[folder][base]
        except KeyError:
            raise FileNotFoundError(name) from None


STORES: dict[str, Store] = {}


@dataclass(frozen=True)
class CountingStorage(Storage):
    """A directory in a `Store`."""

    @cached_property
    def store(self) -> Store:
        return STORES.setdefault(self.url, Store())

    def size(self, name: str) -> int | None:
        self.store.requests += 1
        with contextlib.suppress(FileNotFoundError):
            content = self.store.get(name)
            return content if isinstance(content, int) else len(content)
        return None

    def names(self, folder: str = "") -> list[str]:
        names = sorted(self.store.folders.get(folder, ()))
        self.store.requests += 1 + len(names) // 1000
        return names

    def read_bytes(self, name: str) -> bytes:
        self.store.requests += 1
        content = self.store.get(name)
        assert isinstance(content, bytes)
        self.store.read += len(content)
        return content

    def write_bytes(self, name: str, data: bytes) -> NewFile:
        self.store.requests += 1
        self.store.put(name, data)
        return NewFile(name, len(data), hashlib.sha256(data).hexdigest())

    def remove(self, *names: str) -> None:
        self.store.requests += 1 + len(names) // 1000
        for name in names:
            folder, _, base = name.rpartition("/")
            self.store.folders.get(folder, {}).pop(base, None)

    def read_ranges(self, ranges: list[tuple[str, int, int]]) -> list[pa.Buffer]:
        """Return indexes, the only ranges that are read here."""
        self.store.requests += len(ranges)
        self.store.read += sum(end - start for _, start, end in ranges)
        return [pa.py_buffer(index_bytes(*self.store.indexes[name, start])) for name, start, _ in ranges]


def index_bytes(seed: int, low: int, high: int, size: int, batch_bytes: int) -> bytes:
    """Return the index of batches with `size` bytes of documents at positions from `low` up to `high`."""
    count = math.ceil(size / batch_bytes)
    index = np.zeros(count, INDEX)
    edges = low + np.sort(np.random.default_rng(seed).random(2 * count)) * float(high - low)
    index["first"][:, 0], index["last"][:, 0] = edges[::2], edges[1::2]
    index["start"] = batch_bytes * np.arange(count)
    index["end"] = index["start"] + batch_bytes
    return index.tobytes()


@dataclass(frozen=True)
class SyntheticJob(PreprocessJob):
    """A job whose splits are read."""

    num_runs: int = 0

    @property
    def storage(self) -> Storage:
        return CountingStorage(self.url)

    def split_lines(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.num_runs)))


def sorted_file(
    store: Store, path: str, seed: int, low: int, high: int, size: int, batch_bytes: int
) -> SortedFile:
    """Put a file of one language into the store, which keeps no more than what its indexes follow from."""
    parts, end = [], size
    for drawn_split, share in (("train", 0.99), ("validation", 0.01)):
        described = (seed, low, high, max(1, round(size * share)), batch_bytes)
        data = index_bytes(*described)
        index = np.frombuffer(data, INDEX)
        first, last = (
            f"{int(index[edge][row, 0]):016x}{0:016x}" for edge, row in (("first", 0), ("last", -1))
        )
        store.indexes[path, end] = described
        counts = described[3] // DOCUMENT_BYTES, described[3]
        parts.append(
            SortedPart(drawn_split, "en", *counts, first, last, end, end + len(data), zlib.crc32(data))
        )
        end += len(data)
    store.put(path, end)
    return SortedFile(path, end, tuple(parts), f"{0:064x}")


def write_runs(job: SyntheticJob) -> None:
    """Write what reading would have left."""
    store, counters = STORES.setdefault(job.url, Store()), PageCounters(pages=1).to_json()
    for number, line in enumerate(job.split_lines()):
        name = run_name(runs_name(line), 0)
        file = sorted_file(
            store, f"{RUNS}/{name}.arrow", number % KINDS, 0, KEY_SPACE, RUN_BYTES, BATCH_CHARACTERS
        )
        run_fingerprint = fingerprint({"reading": job.reading_fingerprint, "split": line})
        lowest, highest = f"{0:016x}{1:016x}", f"{0:016x}{KEY_SPACE - 1:016x}"
        commit_run(job.storage, RUNS, SortedRun(name, run_fingerprint, 0, counters, 0, file, lowest, highest))


def read_pieces(storage: Storage, sources: Sequence[FilePart], low: int, high: int) -> tuple[int, int]:
    """Return the requests and bytes with which documents at positions from `low` up to `high` would be read."""
    requests = size = 0
    for _, pieces in Merge(storage, sources).pieces(low, high):
        requests += len(pieces)
        size += sum(int(piece.batches["end"][-1] - piece.batches["start"][0]) for piece in pieces)
    return requests, size


def merge_level(job: SyntheticJob, count: int) -> None:
    """Count what the merges of a level would read, by a sample, and write their results."""
    storage, store, level = job.storage, STORES[job.url], find_merging(job)
    assert level is not None
    sample = set(np.linspace(0, count - 1, SAMPLE, dtype=int).tolist())
    tasks = [(group, number) for group, ranges in enumerate(level.ranges) for number in range(ranges)]
    requests = size = 0
    for index, (group, number) in enumerate(tasks):
        ranges = level.ranges[group]
        low, high = (KEY_SPACE * edge // ranges for edge in (number, number + 1))
        if index in sample or not number:
            files = checked(
                tuple[SortedFile, ...], storage.read_json(f"{MERGED}/{level.number}-{group:05}.json")
            )
        if index in sample:
            for sources in sources_by_draw(files).values():
                read = read_pieces(storage, sources, low, high)
                requests, size = requests + read[0], size + read[1]
        name = f"{MERGED}/{level.number}-{group:05}-{number:05}"
        size_of_file = sum(file.bytes for file in files) // ranges
        merged = sorted_file(
            store, f"{name}.arrow", index % KINDS, low, high, size_of_file, merges.BATCH_BYTES
        )
        write_sealed(storage, f"{name}.json", asdict(merges.MergedRun(merged)))
    store.requests += round(requests * count / len(sample))
    store.read += round(size * count / len(sample))


def build_shards(job: SyntheticJob) -> int:
    """Count what the shards would read, by a sample, and return their number."""
    storage, store = job.storage, STORES[job.url]
    count = len(load_plan(storage).shards)
    requests = size = 0
    sample = np.unique(np.linspace(0, count - 1, SAMPLE, dtype=int)).tolist()
    for index in sample:
        group = checked(TaskFile, storage.read_json(f"{TASKS}/{index // TASKS_A_FILE:05}.json"))
        task = group.tasks[index % TASKS_A_FILE]
        whole = cached_documents(storage, group.documents_sha256)[task.partition]
        for low, high in task.ranges:
            read = read_pieces(storage, whole.sources, low, high)
            requests, size = requests + read[0], size + read[1]
    store.requests += round(requests * count / len(sample))
    store.read += round(size * count / len(sample))
    store.files += 2 * count
    return count


def measure(gigabytes: float) -> dict[str, float]:
    """Plan a job of this much text and return a row of the table."""
    text = gigabytes * 1e9
    job = SyntheticJob(
        url=f"memory://{gigabytes}", config=PreprocessConfig(columns=COLUMNS), fingerprint="job",
        reading_fingerprint="reading", splits="splits", inputs="inputs", num_runs=max(1, round(text / RUN_BYTES)),
    )  # fmt: skip
    write_runs(job)
    store, memory, seconds, levels = STORES[job.url], peak_memory(), 0.0, 0
    for _ in range(merges.LEVELS):
        start = time.process_time()
        count = merges.plan_merges(job)
        seconds += time.process_time() - start
        if count:
            levels += 1
            merge_level(job, count)
    start = time.process_time()
    make_plan(job)
    all_runs(job)
    seconds += time.process_time() - start
    memory = peak_memory() - memory
    shards = build_shards(job)
    return {
        "GB of text": gigabytes, "runs": job.num_runs, "merge levels": levels, "shards": shards,
        "planning, CPU s": seconds, "memory, MB": memory / 1e6,
        "million requests": store.requests / 1e6, "a MB": store.requests / text * 1e6,
        "GB read": (store.read + text) / 1e9, "of runs, over text": store.read / text,
        "GB written": (store.written + text) / 1e9, "thousand files": store.files / 1e3,
    }  # fmt: skip


def peak_memory() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


MEASURED = ("planning, CPU s", "memory, MB", "million requests", "GB read", "GB written", "thousand files")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", nargs="*", type=float, help="GB of text")
    parser.add_argument("--quick", action="store_true", help="10 GB to 1 TB")
    parser.add_argument("--row", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(measure(options.row)))
        return 0
    rows = []
    for size in options.sizes or (QUICK if options.quick else SIZES):
        # A process each, whose peak of memory is its own.
        command = [sys.executable, "-m", "benchmarks.scale", "--row", str(size)]
        rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
        if len(rows) == 1:
            print("| " + " | ".join(rows[0]) + " |\n|" + "---:|" * len(rows[0]))
        print("| " + " | ".join(f"{value:,.4g}" for value in rows[-1].values()) + " |", flush=True)
    if len(rows) < 2:
        return 0
    sizes = np.log([row["GB of text"] for row in rows])
    exponents = {name: np.polyfit(sizes, np.log([row[name] for row in rows]), 1)[0] for name in MEASURED}
    print("exponents: " + ", ".join(f"{name} {exponent:.2f}" for name, exponent in exponents.items()))
    return int(any(exponent > LIMIT for exponent in exponents.values()))


if __name__ == "__main__":
    sys.exit(main())
