"""The file of results: one line of JSON for each run that is done, appended, never rewritten."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.learning.intervals import left_plateau
from benchmarks.learning.plan import Entry
from tokenfree.preprocess.common.local_files import lock
from tokenfree.preprocess.common.stored.json_lines import read_json_lines

Line = dict[str, Any]
NO_CONTEXT = ("baseline_unigram", "baseline_clue", "baseline_copied")  # losses over all targets, masked or not


class Results:
    """The lines of a file; several commands may append to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[Line]:
        """All whole lines; of two with one name the later."""
        return list({line["name"]: line for line in read_json_lines(self.path)}.values())

    def names(self) -> set[str]:
        """The runs that are done."""
        return {line["name"] for line in self.lines()}

    def append(self, line: Line) -> None:
        """Add a line; a torn last line, of a command that was killed while it wrote, makes way."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with lock(self.path.with_name(self.path.name + ".lock")), self.path.open("a+b") as file:
            file.seek(0)
            text = file.read()
            file.truncate(text.rfind(b"\n") + 1)
            file.write(json.dumps(line).encode() + b"\n")


def summarise(entry: Entry, run: Path, evaluation: Mapping[str, Any], subwords_per_character: float) -> Line:
    """The line of a run that has ended, from its metrics and what `tokenfree evaluate` says of it.

    Losses are nats a target; `characters`, `subwords` and `targets` are what was trained on; `seconds` those of steps,
    without validations and checkpoints. `plateau` tells where the held-out loss left that of the best guess without
    context (see `left_plateau`), with the characters and subwords read until then; null where it never did.
    """
    metrics = read_json_lines(run / "metrics.jsonl")
    steps = [line for line in metrics if "loss" in line]
    curve = [(line["step"], line["validation_loss"]) for line in metrics if "validation_loss" in line]
    levels = [evaluation[name] for name in NO_CONTEXT if evaluation.get(name) is not None]
    left = left_plateau(curve, min(levels)) if levels else None
    characters = sum(line["characters"] for line in steps)
    before = sum(line["characters"] for line in steps if left is not None and line["step"] <= left)
    row = entry.row
    return {
        "name": entry.name,
        "model": row.name,
        "seed": entry.seed,
        "recipe": row.recipe,
        "overrides": row.overrides,
        "data": row.data,
        "steps": row.steps,
        "characters": characters,
        "subwords": round(characters * subwords_per_character),
        "targets": sum(line["num_targets"] for line in steps),
        "seconds": round(sum(line["seconds"] for line in steps), 1),
        "evaluation": dict(evaluation),
        "curve": curve,
        "plateau": None
        if left is None
        else {
            "level": min(levels),
            "step": left,
            "characters": before,
            "subwords": round(before * subwords_per_character),
        },
    }
