"""What `tokenfree plan` and `preprocess --dry-run` foretell, beside what is measured: time, memory, bytes.

    python -m benchmarks.train.plan                      # three recipes on the CPU, and a preprocessing job
    python -m benchmarks.train.plan --only preprocess --size 60MB

Time is in CPU seconds with one thread, so that other work on the machine counts little. A step is the difference of two
runs of `tokenfree pretrain` of unlike length, by the steps between them; memory is the resident memory of the longer
one at its peak, bytes are those of its folder. The data are made of the English excerpt, those of the preprocessing job
of its pages again and again.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.preprocess.repeated_dump import parse_size, write_repeated
from benchmarks.preprocess.whole_job import MemoryWatch, find_dump
from tokenfree.pipelines.dry_run import WORKER_BYTES, describe_plan
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.workflows import cli

RECIPES = {
    "canine-s-tiny": (["--train.length", "240"], 10, 60),
    "byte2word-tiny": ([], 10, 90),
    "canine-s-small": (["--train.global_batch", "8"], 3, 13),
}
VOCABULARY = 4000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("pretrain", "preprocess"), help="a part of the benchmark")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES), metavar="RECIPE")
    parser.add_argument("--size", type=parse_size, default=parse_size("40MB"), help="of the XML to preprocess")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="tokenfree-") as name:
        folder = Path(name)
        dump, data = find_dump(folder), folder / "data"
        small = ["--vocabulary.size", str(VOCABULARY), "--vocabulary.sample_characters", "500000"]
        measured("preprocess", "--wikipedia", str(dump), "--output", str(data), *small)
        print(f"{'':32}{'planned':>10}{'measured':>10}{'off by':>8}")
        if options.only != "preprocess":
            for recipe in options.recipes:
                compare_recipe(recipe, data, folder / recipe)
        if options.only != "pretrain":
            compare_preprocessing(dump, options.size, folder, data / "vocabulary/subwords.model")


def compare_recipe(recipe: str, data: Path, folder: Path) -> None:
    keys, few, many = RECIPES[recipe]
    said = io.StringIO()
    lasting = [*keys, "--train.steps", str(many)]
    with contextlib.redirect_stdout(said):
        cli.main(["plan", recipe, "--cpus", "1", "--data", str(data), "--json", *lasting])
    plan = json.loads(said.getvalue())
    command = ["pretrain", recipe, "--data", str(data), "--train.threads", "1", *keys]
    short, _ = measured(*command, "--output", f"{folder}-{few}", "--train.steps", str(few))
    seconds, peak = measured(*command, "--output", str(folder), "--train.steps", str(many))
    told(f"{recipe}, CPU s a step", plan["step_seconds"], (seconds - short) / (many - few))
    told(f"{recipe}, memory, MB", plan["memory_bytes"]["total"] / 1e6, peak / 1e6)
    planned = plan["checkpoint_bytes"] * plan["checkpoints"] + plan["metrics_bytes"]
    told(f"{recipe}, bytes, MB", planned / 1e6, size_of(folder) / 1e6)
    lines = (folder / "metrics.jsonl").stat().st_size / many
    events = size_of(folder / "tensorboard") / many
    print(f"    metrics {lines:.0f} bytes a step, TensorBoard {events:.0f}", flush=True)


def compare_preprocessing(source: Path, size: int, folder: Path, model: Path) -> None:
    dump, output = folder / "many.xml.bz2", folder / "many"
    write_repeated(source, size, dump)
    config = PreprocessConfig(wikipedia=(str(dump),))
    plan = describe_plan(replace(config, vocabulary=replace(config.vocabulary, model=str(model))))
    job = ("preprocess", "--wikipedia", str(dump), "--output", str(output), "--vocabulary.model", str(model))
    seconds, peak = measured(*job)
    shards = sum(path.stat().st_size for path in output.rglob("*.arrow"))
    told(f"preprocess {size / 1e6:.0f} MB, CPU s", plan.estimated_seconds, seconds)
    told("preprocess, memory, MB", WORKER_BYTES / 1e6, peak / 1e6)
    told("preprocess, bytes, MB", plan.estimated_output_bytes / 1e6, shards / 1e6)


def measured(*arguments: str) -> tuple[float, int]:
    """CPU seconds of a command with its children, and the peak memory of the largest of its processes, bytes."""
    process = subprocess.Popen([sys.executable, "-m", "tokenfree", *arguments, "-q"], stdout=subprocess.DEVNULL)
    watch = MemoryWatch(process.pid)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: tokenfree {' '.join(arguments)}")
    return used.ru_utime + used.ru_stime, watch.stop()


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def told(what: str, planned: float, found: float) -> None:
    print(f"{what:32}{planned:10,.3g}{found:10,.3g}{planned / found - 1:8.0%}", flush=True)


if __name__ == "__main__":
    main()
