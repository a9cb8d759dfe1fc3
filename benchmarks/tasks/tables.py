"""The tables of docs/task_results.md, in Markdown, from the lines of results."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.learning.claims import AGREES, DISAGREES, UNTOLD
from benchmarks.learning.page import markdown_table
from benchmarks.learning.results import Line
from benchmarks.tasks.claims import CLAIMS, Claim, measured, scores, verdict
from benchmarks.tasks.data import SOURCES
from benchmarks.tasks.noise_table import noise
from benchmarks.tasks.plan import Entry, Folders, NoiseEntry, Row
from benchmarks.tasks.rows import NOISE_ROWS, ROWS
from benchmarks.tasks.work import main_score
from tokenfree.train.sweep.results.compare import mean_interval

SCORES = {"accuracy": "accuracy", "f1": "F1 of spans", "relative_mse": "relative squared error"}


def tables(lines: Sequence[Line]) -> str:
    """All tables, with headings; rows without a run are left out, claims without one are told to be so."""
    titles = {"What the documents claim": claims, "With noise": noise, "The rows": results, "The commands": commands}
    listed = {title: made(lines) for title, made in titles.items()}
    return "\n\n".join("\n".join([f"## {title}", "", *rows]) for title, rows in listed.items() if rows) + "\n"


def claims(lines: Sequence[Line], made: Sequence[Claim] = CLAIMS) -> list[str]:
    """A row for each claim whose sides have runs, then the count of each verdict, and of those that have none."""
    head = ["", "document", "claim", "its numbers", "ours", "95% interval", "seeds", "verdict"]
    rows, found = [], []
    for number, claim in enumerate(made, 1):
        if not all(scores(lines, [pair[side] for pair in claim.sides]) for side in (0, 1)):
            continue
        interval, seeds = measured(lines, claim)
        found.append(verdict(lines, claim))
        ours = ["", ""]
        if interval is not None:
            ours = [f"{interval.estimate:+.3f}", f"{interval.low:+.3f} to {interval.high:+.3f}"]
        rows.append([str(number), claim.document, claim.text, claim.numbers, *ours, str(seeds), found[-1]])
    counts = ", ".join(f"{found.count(kind)} {kind}" for kind in (AGREES, DISAGREES, UNTOLD))
    without = len(made) - len(found)
    told = [f"Of {len(found)} claims: {counts}."] if found else []
    told += [f"Of {without} more in `benchmarks/tasks/claims.py` a side has no run yet."] if without else []
    return [*(markdown_table(head, rows) if found else []), "", " ".join(told)]


def results(lines: Sequence[Line]) -> list[str]:
    """A table for each set of examples: what stands beside the models, then each row with its mean over seeds."""
    made: list[str] = []
    for data in dict.fromkeys(row.data for row in ROWS):
        of_data = [(row, of_row) for row, of_row in _run(lines) if row.data == data]
        if not of_data:
            continue
        first = of_data[0][1][0]
        score = main_score(first)
        label = SOURCES[data].label if data in SOURCES else data
        head = ["row", "model", f"{SCORES[score]}, test", "95% interval", "of each seed", "dev", "steps", "CPU minutes"]
        rows: list[list[Any]] = []
        for name, value in first["baselines"]["test"].items():
            rows.append(["", name, f"{value:.3f}", "", "", f"{first['baselines']['dev'][name]:.3f}", "", ""])
        rows += [_result(row, of_row, score) for row, of_row in of_data]
        made += [f"### {label[0].upper()}{label[1:]}", "", *markdown_table(head, rows), ""]
    total = sum(line["cpu_seconds"] for line in lines) / 3600
    return [*made, f"All {len(lines)} runs of this page: {total:.1f} CPU hours."]


def _result(row: Row, of_row: Sequence[Line], score: str) -> list[str]:
    test, dev = ([line[part][score] for line in of_row] for part in ("test", "dev"))
    found = mean_interval(test)
    assert found is not None, row.name  # it has a line
    interval = "" if found.half is None else f"{found.mean - found.half:.3f} to {found.mean + found.half:.3f}"
    each = ", ".join(f"{value:.3f}" for value in test)
    minutes = statistics.fmean(line["cpu_seconds"] for line in of_row) / 60
    middle = [f"{found.mean:.3f}", interval, each, f"{statistics.fmean(dev):.3f}"]
    return [f"`{row.name}`", row.label, *middle, f"{row.steps:,}", f"{minutes:.1f}"]


def commands(lines: Sequence[Line]) -> list[str]:
    """The command of each row that has a run; what all of them share stands first."""
    listed = list(_run(lines))
    shared = set.intersection(*(set(row.overrides.items()) for row, _ in listed)) if listed else set()
    rows = ["```", f'O="{" ".join(f"--{key} {value}" for key, value in sorted(shared))}"']
    for row, _ in listed:
        command = Entry(row, 0).command(Folders())
        for key, value in shared:
            command = command.replace(f" --{key} {value}", "")
        rows.append(command.replace("--train.seed 0", "--train.seed SEED $O").replace("-0 ", "-SEED "))
    names = {line["row"] for line in lines}
    for row in NOISE_ROWS:
        if row.name in names:
            command = NoiseEntry(row, 0).command(Folders())
            rows.append(command.replace("-0 ", "-SEED ").replace("--seed 0", "--seed SEED"))
    return [*rows, "```"]


def _run(lines: Sequence[Line]) -> Iterable[tuple[Row, list[Line]]]:
    for row in ROWS:
        of_row = sorted((line for line in lines if line["row"] == row.name), key=lambda line: line["seed"])
        if of_row:
            yield row, of_row
