"""CPU seconds and memory of preprocessing on each engine against the direct runner, and what many workers would take.

    python -m benchmarks.engines.fetch
    python -m benchmarks.preprocess.engines --repeat-to 100MB
    python -m benchmarks.preprocess.engines --runs direct:1 flink:2

A run is an engine and its number of slots. CPU seconds are user and system time of the command and of all processes of
the engine, from the start of the command on; the start of a cluster is not in them. Memory is the sum over all
processes at the highest moment, of which `engine` is what is no Python. The last table is a projection: it is computed
from the times of the stages with one direct worker, and was not run.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.engines import fetch
from benchmarks.engines.flink import flink_cluster
from benchmarks.engines.spark import spark_cluster
from benchmarks.preprocess.repeated_dump import parse_size, write_repeated
from benchmarks.preprocess.whole_job import find_dump
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.pipelines.progress import Progress
from tokenfree.preprocess.config import PreprocessConfig

RUNS = ("direct:1", "direct:2", "prism:1", "flink:1", "flink:2", "spark:1", "spark:2")
PROJECTED = (1, 2, 8, 64)
SPLIT_BYTES = 4_000_000
REMEDIES = {
    "largest split": "smaller --split_bytes; a dump in one stream is one split: take the multistream one",
    "vocabulary": "smaller --vocabulary.sample_characters, --vocabulary.algorithm bpe, or --vocabulary.model MODEL",
    "largest shard": "smaller --shard_characters",
    "finish": "larger --shard_characters: it reads a small file for each run and each shard",
}


@dataclass
class Usage:
    """CPU seconds by process, and bytes of memory at the highest moment."""

    seconds: dict[int, float] = field(default_factory=dict)
    peak: int = 0
    peak_engine: int = 0

    def look(self, roots: Sequence[int]) -> None:
        """Add what the processes and all that they started have used."""
        total = engine = 0
        for process in {process for root in roots for process in _family(root)}:
            with contextlib.suppress(psutil.Error):
                times, memory = process.cpu_times(), process.memory_info().rss
                self.seconds[process.pid] = times.user + times.system
                total += memory
                engine += 0 if "python" in process.name() else memory
        self.peak, self.peak_engine = max(self.peak, total), max(self.peak_engine, engine)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat-to", type=parse_size, default=parse_size("100MB"), metavar="SIZE", help="of XML")
    parser.add_argument("--runs", nargs="+", default=RUNS, metavar="ENGINE:SLOTS", help=f"default: {' '.join(RUNS)}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenfree-") as name:
        dump = Path(name) / "enwiki-repeated-pages-articles-multistream.xml.bz2"
        write_repeated(find_dump(Path(name)), options.repeat_to, dump)
        print(f"{'':12}{'seconds':>9}{'CPU s':>9}{'peak MB':>9}{'engine MB':>11}", flush=True)
        for run in options.runs:
            folder = Path(tempfile.mkdtemp(dir=name))
            seconds, usage = measure(run, dump, folder)
            cpu = sum(usage.seconds.values())
            print(f"{run:12}{seconds:9.1f}{cpu:9.1f}{usage.peak / 1e6:9.0f}{usage.peak_engine / 1e6:11.0f}", flush=True)
        project(*stage_seconds(dump, Path(name) / "stages"))


def measure(run: str, dump: Path, folder: Path) -> tuple[float, Usage]:
    """Seconds and usage of a job; in a cluster that was started for it."""
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
    """The options of the command, and the processes of the engine."""
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


def stage_seconds(dump: Path, output: Path) -> tuple[dict[str, float], dict[str, int]]:
    """Seconds of each stage with one direct worker, and of how many parts it is."""
    ends: dict[str, float] = {}
    parts: dict[str, int] = {}

    def seen(progress: Progress) -> None:
        ends[progress.stage], parts[progress.stage] = time.monotonic(), progress.total

    began = time.monotonic()
    run_preprocess(PreprocessConfig(wikipedia=(str(dump),), split_bytes=SPLIT_BYTES), str(output), progress=seen)
    starts = [began, *ends.values()]
    return {stage: end - start for (stage, end), start in zip(ends.items(), starts, strict=False)}, parts


def project(stages: dict[str, float], parts: dict[str, int]) -> None:
    """Print what so many workers would take, and which part that they cannot share is the longest."""
    serial = {
        "largest split": stages.get("read", 0.0) / max(parts.get("read", 1), 1),
        "vocabulary": stages.get("vocabulary", 0.0),
        "largest shard": stages.get("build", 0.0) / max(parts.get("build", 1), 1),
        "finish": stages.get("finish", 0.0),
    }
    print("\nprojection from the stages with one direct worker; not run")
    for workers in PROJECTED:
        read = max(stages.get("read", 0.0) / workers, serial["largest split"])
        build = max(stages.get("build", 0.0) / workers, serial["largest shard"])
        total = read + serial["vocabulary"] + build + serial["finish"]
        print(f"  {workers:3} workers {total:9.1f} s, {sum(stages.values()) / total:5.1f} times as fast")
    for name, seconds in sorted(serial.items(), key=lambda item: -item[1]):
        print(f"  {name:14}{seconds:8.1f} s on one worker; {REMEDIES[name]}")


def _family(root: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


if __name__ == "__main__":
    main()
