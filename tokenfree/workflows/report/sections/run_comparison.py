"""Several pretraining runs side by side, by the characters that they have read and by time."""

import itertools
from collections.abc import Sequence

from tokenfree.workflows.report.figures import line_figures as figures
from tokenfree.workflows.report.load import RunRecord
from tokenfree.workflows.report.sections.parts import Block, Section, Table, count, decimal, duration, flat
from tokenfree.workflows.report.sections.run_section import characters, median, num_restarts, recipe_of, seconds, speeds


def comparison_section(runs: Sequence[RunRecord]) -> Section:
    """Curves of all runs in the same pictures, a table of where they ended, and the settings in which they differ."""
    called = names(runs)
    by_characters = [held_out(run, characters(run)) for run in runs]
    by_time = [held_out(run, seconds(run)) for run in runs]
    pictures = [
        figures.lines(
            [], points=[(name, *curve) for name, curve in zip(called, curves, strict=True) if curve[0]],
            title=f"Held-out loss by {what}", x=what, y="nats per target",
        )
        for what, curves in (("characters read", by_characters), ("seconds in steps", by_time))
    ]  # fmt: skip
    fast = [(name, characters(run), speeds(run)) for name, run in zip(called, runs, strict=True) if run.steps]
    pictures.append(
        figures.lines(
            fast, title="Throughput", x="characters read", y="characters per second", smooth=True, from_zero=True
        )
    )
    shared = min((xs[-1] for xs, _ in by_characters if xs), default=None)
    at = "" if shared is None else f" at {count(shared)} characters"
    rows = [_row(name, run, curve, shared) for name, run, curve in zip(called, runs, by_characters, strict=True)]
    header = [
        "run",
        "steps",
        "characters",
        "held-out loss",
        f"loss{at}",
        "accuracy",
        "characters/s",
        "time",
        "restarts",
    ]
    text = "Runs with batches of different sizes are compared by the characters that they read, not by steps."
    if at:
        text += f" The loss{at}, which all of them read, is taken on the straight line between two validations."
    if len({(run.result or {}).get("symbol") for run in runs} - {None}) > 1:
        text += " They predict different things, so their losses are not of one scale."
    block = Block("", text, pictures=pictures, tables=[Table("Runs", header, rows)])
    return Section("Runs compared", ", ".join(str(run.path) for run in runs), (), [block, _differences(runs, called)])


def names(runs: Sequence[RunRecord]) -> list[str]:
    """Folder names, with as many folders above as it takes to tell them apart."""
    for length in range(1, max(len(run.path.parts) for run in runs) + 1):
        found = ["/".join(run.path.parts[-length:]) for run in runs]
        if len(set(found)) == len(runs):
            return found
    return [f"{run.path} ({number})" for number, run in enumerate(runs, 1)]


def held_out(run: RunRecord, amounts: Sequence[float]) -> tuple[list[float], list[float]]:
    """The validation losses of a run over `amounts`, which has a number for each of its steps."""
    at_step = {line["step"]: amount for line, amount in zip(run.steps, amounts, strict=True)}
    lines = [line for line in run.validations if line["step"] in at_step]
    return [at_step[line["step"]] for line in lines], [line["validation_loss"] for line in lines]


def _row(name: str, run: RunRecord, curve: tuple[list[float], list[float]], shared: float | None) -> list[str]:
    last = run.validations[-1] if run.validations else {}
    accuracy = last.get("validation_accuracy")
    return [
        name,
        f"{run.steps[-1]['step'] if run.steps else 0:,}",
        count(characters(run)[-1] if run.steps else 0),
        decimal(last.get("validation_loss")),
        decimal(_at(curve, shared)),
        "–" if accuracy is None else f"{100 * accuracy:.1f}%",
        count(median(speeds(run))),
        duration(seconds(run)[-1] if run.steps else 0.0),
        str(num_restarts(run)),
    ]


def _at(curve: tuple[list[float], list[float]], x: float | None) -> float | None:
    """The loss at `x` on the straight line between two validations; None outside of the curve."""
    points = list(zip(*curve, strict=True))
    if x is None or not points:
        return None
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x0 <= x < x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return points[-1][1] if points[-1][0] == x else None


def _differences(runs: Sequence[RunRecord], called: Sequence[str]) -> Block:
    """The keys in which the recipes differ."""
    recipes = [dict(flat(recipe_of(run))) for run in runs]
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    rows = [
        [key, *(recipe.get(key, "–") for recipe in recipes)]
        for key in keys
        if len({recipe.get(key) for recipe in recipes}) > 1
    ]
    if not rows:
        return Block("Settings that differ", "None: the runs have the same recipe.")
    return Block("Settings that differ", tables=[Table("Only these keys", ["key", *called], rows)])
