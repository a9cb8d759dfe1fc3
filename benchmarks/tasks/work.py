"""One run of the queue from start to end: `tokenfree finetune`, its scores, and the line of results; or `tokenfree
analyze noise` of a run that was fine-tuned."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path

from benchmarks.learning.children import call
from benchmarks.learning.results import Line, Results
from benchmarks.learning.work import NotReady
from benchmarks.tasks.baselines import baselines
from benchmarks.tasks.plan import AnyEntry, Entry, Folders, NoiseEntry
from tokenfree.preprocess.common.stored.json_lines import read_json_lines

Seconds = tuple[float, float]  # wall, CPU


def done(entry: AnyEntry, output: Path, folders: Folders, results: Results) -> Line:
    """Do what an entry says.

    Raises:
        JobError: it failed.
        NotReady: the run that it begins with has not ended.
    """
    begins_with = entry.begins_with(folders)
    if begins_with is not None and not is_finished(begins_with):
        raise NotReady(f"there is no finished run {begins_with}")
    if isinstance(entry, NoiseEntry):
        return with_noise(entry, output, folders)
    return finetuned(entry, output, folders, results)


def is_finished(run: str) -> bool:
    """Whether a run has ended."""
    return (Path(run) / "result.json").exists()


def with_noise(entry: NoiseEntry, output: Path, folders: Folders) -> Line:
    """Evaluate a fine-tuned run on its test, as it is and with each scheme of noise.

    Raises:
        JobError: it failed.
    """
    logs = output / "logs"
    numbers = logs / f"{entry.name}.json"
    before = _seconds()
    call(entry.arguments(folders), logs / f"{entry.name}.log", output=numbers)
    wall, cpu = (now - then for now, then in zip(_seconds(), before, strict=True))
    found = json.loads(numbers.read_text(encoding="utf-8"))
    score = found["main"]
    return {
        "name": entry.name,
        "row": entry.row.name,
        "seed": entry.seed,
        "finetuned": entry.finetuned.name,
        "data": f"{entry.row.of.data} with noise",
        "examples": found["examples"],
        "noise": {row["scheme"]: {"rate": row["rate"], score: row["score"]} for row in found["rows"]},
        "seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
    }


def finetuned(entry: Entry, output: Path, folders: Folders, results: Results) -> Line:
    """Train a run into `output/runs`, or go on with it, and evaluate it.

    Raises:
        JobError: it failed.
    """
    log = output / "logs" / f"{entry.name}.log"
    before = _seconds()
    call(entry.arguments(folders), log)
    wall, cpu = (now - then for now, then in zip(_seconds(), before, strict=True))
    line = summarise(entry, Path(folders.runs) / entry.name, (wall, cpu))
    of_same_data = [each["baselines"] for each in results.lines() if each["data"] == entry.row.data]
    return {**line, "baselines": of_same_data[0] if of_same_data else baselines(Path(folders.data), entry.row.data)}


def summarise(entry: Entry, run: Path, seconds: Seconds) -> Line:
    """The line of a run that has ended, from its result and metrics, without baselines.

    `step_seconds` are those of the steps of the whole run, `seconds` and `cpu_seconds` those of the last command that
    worked on it, start, evaluation and predictions included.
    """
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    steps = [line for line in read_json_lines(run / "metrics.jsonl") if "loss" in line]
    row = entry.row
    return {
        "name": entry.name,
        "row": row.name,
        "seed": entry.seed,
        "recipe": row.recipe,
        "overrides": row.overrides,
        "pretrained": row.pretrained,
        "data": row.data,
        "steps": row.steps,
        "best_step": result["best_step"],
        "dev": result["dev"],
        "test": result["test"],
        "step_seconds": round(sum(line["seconds"] for line in steps), 1),
        "seconds": round(seconds[0], 1),
        "cpu_seconds": round(seconds[1], 1),
    }


def told(line: Line) -> str:
    """The main scores of a run, and what stands beside them on its test part; or those with noise."""
    if "noise" in line:
        return ", ".join(f"{scheme} {scores['accuracy']:.3f}" for scheme, scores in line["noise"].items())
    name = main_score(line)
    beside = ", ".join(f"{baseline} {score:.3f}" for baseline, score in line["baselines"]["test"].items())
    return f"{name} {line['dev'][name]:.3f} on dev, {line['test'][name]:.3f} on test; {beside}"


def main_score(line: Line) -> str:
    """The score that a row is judged by: F1 of spans, the relative error of sums, or accuracy."""
    return next(name for name in ("relative_mse", "f1", "accuracy") if name in line["test"])


def _seconds() -> Seconds:
    """Wall, and the CPU of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic(), used.ru_utime + used.ru_stime
