"""CPU seconds and memory of preprocessing on each engine, and a projection to many workers.

    python -m tools.engines.fetch
    python -m benchmarks.preprocess.engines --repeat-to 100MB
    python -m benchmarks.preprocess.engines --runs direct:1 flink:2

A run is an engine and its number of slots. CPU seconds are user and system time of the command and of all
processes of the engine. They exclude the start of a cluster. Memory is the peak of the sum over all
processes; `engine` is the part of processes other than Python. The last table is a projection that was not
run. It is computed from the time that one direct worker took for each split, each shard, and everything that
cannot be parallelised.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from benchmarks.preprocess.whole_job import find_dump
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.pipelines.progress import Progress
from tokenfree.preprocess.config import PreprocessConfig
from tools.engines import fetch
from tools.engines.flink import flink_cluster
from tools.engines.spark import spark_cluster
from tools.repeated_dump import parse_size, write_repeated

RUNS = ("direct:1", "direct:2", "prism:1", "flink:1", "flink:2", "spark:1", "spark:2")
SPLIT_BYTES = 4_000_000
PROJECTED_WORKERS = (1, 2, 8, 64)
PROJECTED_BYTES = (None, 100 * 10**9)  # of XML: the size of the dump, and about that of English Wikipedia
REMEDIES = {
    "start": "fewer and larger files as inputs",
    "largest split": "smaller --split_bytes; a dump in one stream is one split: take the multistream one",
    "vocabulary": "smaller --vocabulary.sample_characters, --vocabulary.algorithm bpe, or --vocabulary.model MODEL",
    "plan and merge": "larger --split_bytes: it reads a small file for each run",
    "largest shard": "smaller --shard_characters",
    "finish": "larger --split_bytes and --shard_characters: it reads a small file for each run and each shard",
}
GROWING = ("start", "plan and merge", "finish")  # grow with the bytes, as reading and building do
SMALLER = 8  # ratio of the dump to a second one, which shows the constant part of those


@dataclass(frozen=True)
class Times:
    """Seconds on one worker: of each split, of each shard, and by name of what cannot be parallelised."""

    splits: tuple[float, ...]
    shards: tuple[float, ...]
    serial: dict[str, float]


@dataclass
class Usage:
    """CPU seconds by process, and peak memory in bytes."""

    seconds: dict[int, float] = field(default_factory=dict)
    peak: int = 0
    peak_engine: int = 0

    def look(self, roots: Sequence[int]) -> None:
        """Add what the processes and their descendants have used."""
        total = engine = 0
        for process in {process for root in roots for process in _family(root)}:
            with contextlib.suppress(psutil.Error):
                times, memory = process.cpu_times(), process.memory_info().rss
                self.seconds[process.pid] = times.user + times.system
                total += memory
                engine += 0 if "python" in process.name() else memory
        self.peak, self.peak_engine = max(self.peak, total), max(self.peak_engine, engine)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repeat-to", type=parse_size, default=parse_size("100MB"), metavar="SIZE", help="of XML"
    )
    parser.add_argument(
        "--runs", nargs="*", default=RUNS, metavar="ENGINE:SLOTS", help=f"default: {' '.join(RUNS)}"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenfree-") as name:
        dump = Path(name) / "enwiki-repeated-pages-articles-multistream.xml.bz2"
        write_repeated(find_dump(Path(name)), options.repeat_to, dump)
        print(f"{'':12}{'seconds':>9}{'CPU s':>9}{'peak MB':>9}{'engine MB':>11}", flush=True)
        for run in options.runs:
            folder = Path(tempfile.mkdtemp(dir=name))
            seconds, usage = measure(run, dump, folder)
            cpu = sum(usage.seconds.values())
            print(
                f"{run:12}{seconds:9.1f}{cpu:9.1f}{usage.peak / 1e6:9.0f}{usage.peak_engine / 1e6:11.0f}",
                flush=True,
            )
        small = dump.with_name(f"small-{dump.name}")
        write_repeated(find_dump(Path(name)), options.repeat_to // SMALLER, small)
        smaller = times(small, Path(name) / "smaller")
        report(times(dump, Path(name) / "times"), smaller, options.repeat_to)


def measure(run: str, dump: Path, folder: Path) -> tuple[float, Usage]:
    """Return the seconds and usage of a job. If the engine needs a cluster, one is started for it."""
    engine, _, slots = run.partition(":")
    with cluster(engine, int(slots), folder) as (options, roots):
        command = [sys.executable, "-P", "-m", "tokenfree", "preprocess", "--wikipedia", str(dump)]
        command += ["--output", str(folder / "out"), "--split_bytes", str(SPLIT_BYTES), *options]
        before, usage, ended, began = Usage(), Usage(), threading.Event(), time.monotonic()
        before.look(roots)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        def watch() -> None:
            while not ended.wait(0.3):
                usage.look([*roots, process.pid])

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        log, _ = process.communicate()
        seconds = time.monotonic() - began
        ended.set()
        thread.join()
    if process.returncode:
        raise SystemExit(f"{run} failed: {log[-2000:]}")
    usage.seconds = {pid: used - before.seconds.get(pid, 0.0) for pid, used in usage.seconds.items()}
    return seconds, usage


@contextlib.contextmanager
def cluster(engine: str, slots: int, folder: Path) -> Iterator[tuple[list[str], list[int]]]:
    """Start the engine, and yield options of the command and the processes of the engine."""
    if engine == "direct":
        yield ["--workers", str(slots)], []
        return
    if engine == "prism":
        yield ["--runner", "prism", "--", f"--prism_location={fetch.prism()}"], []
        return
    started: Any
    if engine == "flink":
        started = flink_cluster(fetch.flink(), fetch.job_server(engine), folder, task_managers=slots)
    else:
        started = spark_cluster(fetch.spark(), fetch.job_server(engine), folder, workers=slots)
    with started as running:
        yield running.options(), [one.process.pid for one in running.processes.values()]


def times(dump: Path, output: Path) -> Times:
    """Return the times of a job on one direct worker, from the modification times of its files."""
    committed: dict[str, float] = {}
    work = output / "_work"

    def look(_: Progress) -> None:
        for path in (*work.glob("*.json"), *work.glob("runs/*.json")):
            with contextlib.suppress(FileNotFoundError):
                committed.setdefault(str(path.relative_to(work)), path.stat().st_mtime)

    began = time.time()
    config = PreprocessConfig(wikipedia=(str(dump),), split_bytes=SPLIT_BYTES)
    run_preprocess(config, str(output), progress=look)
    ended = time.time()
    committed |= {
        f"shards/{path.relative_to(output)}": path.stat().st_mtime for path in output.glob("*/*.arrow")
    }
    return reckon(committed, began, ended)


def reckon(committed: Mapping[str, float], began: float, ended: float) -> Times:
    """Return the times of a job on one worker, which commits one file after the other.

    Args:
        committed: Time of each file by its path in `_work`. Shards have paths as if they were there.
        began: Time when the job started.
        ended: Time when the job was done.
    """
    runs = sorted(time for path, time in committed.items() if path.startswith("runs/"))
    shards = sorted(time for path, time in committed.items() if path.startswith("shards/"))
    started, vocabulary, plan = (committed[name] for name in ("attempt.json", "vocabulary.json", "plan.json"))
    serial = {
        "start": started - began,
        "vocabulary": vocabulary - runs[-1],
        "plan and merge": plan - vocabulary,
        "finish": ended - shards[-1],
    }
    splits, built = (
        [end - start for start, end in pairwise(times)] for times in ([started, *runs], [plan, *shards])
    )
    return Times(tuple(splits), tuple(built), serial)


def project(times: Times, workers: int, growth: float, smaller: Times) -> tuple[float, str]:
    """Return the projected seconds with several workers, and the longest part that cannot be parallelised.

    Args:
        times: Times for the dump.
        workers: Number of workers.
        growth: Size of the projected dump relative to the measured one. Splits, shards and the sample for the
            vocabulary keep their sizes.
        smaller: Times for a dump that is `SMALLER` times smaller. The part that is the same for both does not
            grow.
    """
    parts = dict(times.serial)
    for name in GROWING:
        grown = (times.serial[name] - smaller.serial[name]) / (1 - 1 / SMALLER)
        parts[name] += max(grown, 0.0) * (growth - 1)
    total = sum(parts.values())
    for name, seconds in (("largest split", times.splits), ("largest shard", times.shards)):
        parts[name] = max(seconds)
        total += max(sum(seconds) * growth / workers, max(seconds))
    return total, max(parts, key=parts.__getitem__)


def report(times: Times, smaller: Times, size: int) -> None:
    """Print the parts that cannot be parallelised, and the projection."""
    parts = {**times.serial, "largest split": max(times.splits), "largest shard": max(times.shards)}
    read, built = (f"{len(seconds)} in {sum(seconds):.1f} s" for seconds in (times.splits, times.shards))
    print(f"\none direct worker: splits: {read}; shards: {built}; what more workers do not shorten:")
    for name, seconds in sorted(parts.items(), key=lambda part: -part[1]):
        also = f" ({smaller.serial[name]:.2f} s of a dump of an eighth)" if name in GROWING else ""
        print(f"  {name:15}{seconds:8.2f} s   {REMEDIES[name]}{also}")
    for target in PROJECTED_BYTES:
        growth = (target or size) / size
        alone, _ = project(times, 1, growth, smaller)
        print(f"\nprojection for {size * growth / 1e6:,.0f} MB of XML, computed and not run")
        for workers in PROJECTED_WORKERS:
            seconds, longest = project(times, workers, growth, smaller)
            print(
                f"  {workers:3} workers{seconds:12,.1f} s{alone / seconds:7.1f} times as fast; then {longest}"
            )


def _family(root: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


if __name__ == "__main__":
    main()
