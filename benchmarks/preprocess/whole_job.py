"""A whole preprocessing job compared with `datasets.map` and mwparserfromhell, on the same dump.

    python -m benchmarks.preprocess.whole_job                             # the English excerpt of the test data
    python -m benchmarks.preprocess.whole_job --repeat-to 200MB           # its pages repeated, as multistream
    python -m benchmarks.preprocess.whole_job --repeat-to 2GB --runs ours:4  # how much memory a worker needs
    python -m benchmarks.preprocess.whole_job DUMP --runs peer:1 ours:1
    python -m benchmarks.preprocess.whole_job --runs regex:1 plain:1      # the fast peer, without templates

A run is a side and its number of workers, in a separate process. CPU seconds are user and system time of the
process and all its descendants, with its imports: the best of rounds in turn. "KB/s" is the side's own
clean text divided by CPU seconds. The peer keeps the text of references, which makes its text longer. "times the
first" compares the seconds for the same input. Peak memory is that of the largest process. Both sides get
the same SentencePiece model. Its training is a separate line. `regex` is the fast peer (peer_regex.py), and
`plain` is ours without expansion of templates, which that peer does not have. Ratios are to the first run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil

from tools.repeated_dump import parse_size, write_repeated

EXCERPT = "enwiki-2016-shortened.xml.bz2"
SECONDS_BETWEEN_LOOKS = 0.2
RUNS = ("peer:1", "ours:1", "ours:4")


@dataclass(frozen=True)
class Result:
    """CPU seconds, characters of clean text, and peak memory of the largest process in bytes."""

    seconds: float
    characters: int
    peak: int


def main() -> None:
    options = parse()
    if options.inner:
        side, _, workers = options.inner.partition(":")
        print(
            json.dumps(
                work(side, int(workers), options.dump, options.model, options.output, options.vocabulary)
            )
        )
        return
    with tempfile.TemporaryDirectory(prefix="tokenfree-") as folder:
        compare(options, Path(folder))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dump", nargs="?", help=f"a Wikipedia dump (default: {EXCERPT} of the test data)")
    parser.add_argument(
        "--runs", nargs="+", default=RUNS, metavar="SIDE:WORKERS", help=f"default: {' '.join(RUNS)}"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each run in turn (default 3)")
    parser.add_argument(
        "--repeat-to", type=parse_size, metavar="SIZE", help="repeat its pages to a dump of this size"
    )
    parser.add_argument("--vocabulary", type=int, default=16_000, help="number of subwords")
    parser.add_argument("--model", help="a SentencePiece model, instead of one trained on the dump")
    parser.add_argument("--inner", help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    return parser.parse_args()


def compare(options: argparse.Namespace, folder: Path) -> None:
    """Run both sides and print the table."""
    dump = Path(options.dump) if options.dump else find_dump(folder)
    model, training = options.model, None
    if model is None:
        training = run("ours:1", dump, None, folder, options.vocabulary)
        model = str(folder / "model")
        (folder / "output" / "vocabulary" / "subwords.model").rename(model)
    if options.repeat_to:
        repeated = folder / f"{dump.name.split('.')[0]}-repeated.xml.bz2"
        num_pages = write_repeated(dump, options.repeat_to, repeated)
        print(f"{options.repeat_to / 1e6:,.0f} MB of XML, {num_pages:,} pages of {dump.name}", flush=True)
        dump, training = repeated, None
    print(f"{'':22}{'CPU s':>9}{'clean MB':>10}{'KB/s':>8}{'times the first':>16}{'peak MB':>9}", flush=True)
    rounds = [
        {name: run(name, dump, model, folder, options.vocabulary) for name in options.runs}
        for _ in range(options.rounds)
    ]
    results = {
        name: min((each[name] for each in rounds), key=lambda result: result.seconds) for name in options.runs
    }
    for name, result in results.items():
        show(name, result, results.get(options.runs[0]))
    if training:
        show("ours:1, with training", training, results.get(options.runs[0]))
    for side in ("peer", "ours"):
        many = [name for name in results if name.startswith(f"{side}:") and name != f"{side}:1"]
        for name in many if f"{side}:1" in results else []:
            loss = 1 - results[f"{side}:1"].seconds / results[name].seconds
            print(f"{name} gives {loss:.1%} less text per CPU second than {side}:1")


def show(name: str, result: Result, peer: Result | None) -> None:
    """Print one line of the table."""
    ratio = f"{peer.seconds / result.seconds:.2f}" if peer else ""
    speed = result.characters / result.seconds / 1e3
    size = result.characters / 1e6
    print(
        f"{name:22}{result.seconds:9.2f}{size:10.2f}{speed:8,.0f}{ratio:>16}{result.peak / 1e6:9.0f}",
        flush=True,
    )


def find_dump(folder: Path) -> Path:
    """Return the English excerpt of the test data."""
    from tools.wiki_pages import data_folder

    excerpt = data_folder() / "wiki-dumps" / EXCERPT
    if excerpt.is_file():
        return excerpt
    raise SystemExit(f"There is no {excerpt}. Set TOKENFREE_TEST_DATA or give a dump.")


def run(name: str, dump: Path, model: str | None, folder: Path, vocabulary: int) -> Result:
    """Do one run in a separate process, with output in `folder`/output."""
    output = folder / "output"
    if output.exists():
        subprocess.run(["rm", "-r", str(output)], check=True)
    command = [
        sys.executable,
        "-m",
        "benchmarks.preprocess.whole_job",
        str(dump),
        "--inner",
        name,
        "--output",
        str(output),
    ]
    command += ["--vocabulary", str(vocabulary), *(["--model", model] if model else [])]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    )
    watch = MemoryWatch(process.pid)
    told, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{name} failed; see: {' '.join(command)}")
    return Result(**json.loads(told.splitlines()[-1]), peak=watch.stop())


class MemoryWatch:
    """Measures the largest peak of resident memory among a process and its descendants, from outside, on Linux.

    For a child, `getrusage` would report at least the size of its parent at the start.
    """

    def __init__(self, process: int) -> None:
        self.peak = 0
        self._process = process
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop measuring and return the peak in bytes."""
        self._stop.set()
        self._thread.join()
        return self.peak

    def _watch(self) -> None:
        while not self._stop.wait(SECONDS_BETWEEN_LOOKS):
            self._look(self._process)

    def _look(self, process: int) -> None:
        try:
            status = Path(f"/proc/{process}/status").read_text()
            children = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
        except (FileNotFoundError, ProcessLookupError):  # the process has just ended
            return
        peaks = [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")]
        self.peak = max(self.peak, *peaks, 0)
        for child in " ".join(children).split():
            self._look(int(child))


def work(
    side: str, workers: int, dump: str, model: str | None, output: str, vocabulary: int
) -> dict[str, float]:
    """Do a run in its process, and return its CPU seconds and the number of characters of clean text."""
    if side in ("ours", "plain"):
        from tokenfree.pipelines.preprocess import run_preprocess
        from tokenfree.preprocess.config import PreprocessConfig, VocabularyConfig

        config = PreprocessConfig(
            wikipedia=(dump,),
            vocabulary=VocabularyConfig(model=model, size=vocabulary),
            expand_templates=side == "ours",
        )
        characters = run_preprocess(config, output, workers=workers).counters["characters"]
    elif side == "regex" and model:
        from benchmarks.preprocess.peer_regex import preprocess

        Path(output).mkdir()
        characters = preprocess(
            dump, Path(model).read_bytes(), f"{output}/windows.arrow", max_characters=2040
        )
    elif side == "peer" and model:
        from benchmarks.preprocess.peer_datasets import preprocess

        characters = preprocess(dump, Path(model).read_bytes(), output, workers, max_characters=2040)
    else:
        raise SystemExit(f"there is no side {side!r}; give peer, regex, ours or plain")
    return {"seconds": cpu_seconds(), "characters": characters}


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants.

    Ended workers are counted by their parents.
    """
    here = psutil.Process()
    used = [here.cpu_times(), *(child.cpu_times() for child in here.children(recursive=True))]
    return sum(times.user + times.system + times.children_user + times.children_system for times in used)


if __name__ == "__main__":
    main()
