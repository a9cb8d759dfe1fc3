"""A pretraining run on the page: loss and validation, throughput, restarts, settings; what of it all runs share."""

import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from tokenfree.workflows.report.attempts import attempts_of, machine_line
from tokenfree.workflows.report.figures import line_figures as figures
from tokenfree.workflows.report.load import RunRecord
from tokenfree.workflows.report.sections.attempt_tables import attempt_block
from tokenfree.workflows.report.sections.parts import Block, Section, Table, count, decimal, duration, flat

MOST_CHANGES = 6  # of workers, that are told one by one


def run_section(run: RunRecord) -> Section:
    """The section of one run, ended or not."""
    result = run.result or {}
    level = _level(result)
    unit = f"nats per {result.get('symbol') or 'target'}"
    planned = recipe_of(run).get("train", {}).get("steps")
    numbers = []
    if run.validations:
        last = run.validations[-1]
        numbers.append((f"{last['validation_loss']:.3f}", f"held-out loss ({unit})"))
        if "validation_masked_only_loss" in last:
            numbers.append((f"{last['validation_masked_only_loss']:.3f}", "masked only"))
    baselines = result.get("baselines") or {}
    if "masked_only_unigram" in baselines:
        numbers.append((f"{baselines['masked_only_unigram']:.3f}", "masked only, by frequency alone"))
        if result.get("clue"):
            numbers.append((f"{baselines['masked_only_clue']:.3f}", f"masked only, given {result['clue']}"))
    elif level is not None:
        numbers.append((f"{level[1]:.3f}", level[0]))
    restarts = num_restarts(run)
    numbers += [
        (f"{run.steps[-1]['step'] if run.steps else 0:,}", f"of {planned:,} steps" if planned else "steps"),
        (count(sum(line.get("characters", 0) for line in run.steps)), "characters read"),
        (count(median(speeds(run))), "characters per second (median)"),
        (duration(seconds(run)[-1] if run.steps else 0.0), "in steps"),
        (str(restarts), "restart" if restarts == 1 else "restarts"),
    ]
    state = "complete" if run.result else "not ended"
    title = f"Pretraining · {run.name}"
    return Section(
        title, f"{run.path} ({state})", numbers, [*_curves(run, unit, level), *record_blocks(run, _validations(run))]
    )


def recipe_of(run: RunRecord) -> Mapping[str, Any]:
    """The resolved recipe of a run."""
    return run.config.get("recipe", run.config)


def characters(run: RunRecord) -> list[float]:
    """Characters read up to each step."""
    return list(itertools.accumulate(line.get("characters", 0) for line in run.steps))


def seconds(run: RunRecord) -> list[float]:
    """Seconds spent in steps up to each step."""
    return list(itertools.accumulate(line.get("seconds", 0.0) for line in run.steps))


def speeds(run: RunRecord) -> list[float]:
    """Characters per second of each step."""
    return [line.get("characters", 0) / line["seconds"] if line.get("seconds") else 0.0 for line in run.steps]


def num_restarts(run: RunRecord) -> int:
    """How often a worker was lost."""
    return sum(event.get("event") == "worker_lost" for event in run.events)


def median(values: Sequence[float]) -> float:
    """The upper median; 0 without values."""
    return sorted(values)[len(values) // 2] if values else 0.0


def no_context(run: RunRecord) -> float | None:
    """The best held-out score without context, which a model is to go below; None where it was not counted."""
    level = _level(run.result or {})
    return None if level is None else level[1]


def _level(result: Mapping[str, Any]) -> tuple[str, float] | None:
    """What the curve of the held-out loss is to go below, by name: the best score without context on all targets."""
    baselines = result.get("baselines") or {}
    found = [baselines[name] for name in ("unigram", "clue", "copied") if name in baselines]
    if found:
        return "without context", min(found)
    entropy = result.get("unigram_entropy")  # of runs that counted nothing else
    return None if entropy is None else ("unigram entropy of the targets", entropy)


def _curves(run: RunRecord, unit: str, level: tuple[str, float] | None) -> list[Block]:
    if not run.steps and not run.validations:
        return [Block("", "No step has been made yet.")]
    steps = [line["step"] for line in run.steps]
    validated = [line["step"] for line in run.validations]
    losses = [line["validation_loss"] for line in run.validations]
    marks = ("restart", restarted_at(run))
    changes = _changes(run)
    said = " ".join(sentence for _, _, sentence in changes[:MOST_CHANGES])
    if len(changes) > MOST_CHANGES:
        said += (
            f" They changed {len(changes)} times in all, see the events; the throughput has an upright line for each."
        )
    pictures = [
        figures.lines(
            [("training", steps, [line["loss"] for line in run.steps])],
            points=[("held out", validated, losses)] if validated else [],
            level=level,
            title="Loss", x="step", y=unit, smooth=True, marks=marks,
        ),
        figures.lines(
            [("throughput", steps, speeds(run))], title="Throughput", x="step", y="characters per second",
            smooth=True, from_zero=True, marks=marks, 
            changes=[(step, what if number < MOST_CHANGES else "") for number, (step, what, _) in enumerate(changes)],
        ),
    ]  # fmt: skip
    if any("validation_accuracy" in line for line in run.validations):
        accuracies = [100 * line.get("validation_accuracy", float("nan")) for line in run.validations]
        pictures.append(
            figures.lines([], points=[("held out", validated, accuracies)], title="Held-out accuracy", x="step", y="%")
        )
    if any("learning_rate" in line for line in run.steps):
        rates = [line.get("learning_rate", float("nan")) for line in run.steps]
        pictures.append(figures.lines([("", steps, rates)], title="Learning rate", x="step", y="learning rate"))
    return [Block("", said, pictures=pictures)]


def record_blocks(run: RunRecord, validations: Sequence[Table]) -> list[Block]:
    """Events, the table of its validations, settings and attempts of a run."""
    blocks = []
    events = [event for event in run.events if event.get("event") not in ("start", "complete")]
    if events:
        table = Table("Events", ["time (UTC)", "event", "step", "what"], [_event(event) for event in events])
        blocks.append(Block("Starts, restarts and warnings", tables=[table]))
    folded = list(validations)
    if recipe_of(run):
        folded.append(Table("Settings", ["key", "value"], flat(recipe_of(run)), folded=True))
    return [*blocks, Block("", tables=folded), attempt_block(attempts_of(run.config))]


def _event(event: Mapping[str, Any]) -> list[str]:
    time, step = event.get("time"), event.get("step")
    return [
        "–" if time is None else datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S"),
        str(event.get("event", "")).replace("_", " "),
        "–" if step is None else f"{step:,}",
        str(event.get("message") or event.get("samples") or ""),
    ]


def _validations(run: RunRecord) -> list[Table]:
    rows = [
        [f"{line['step']:,}", decimal(line["validation_loss"]), decimal(line.get("validation_accuracy"))]
        for line in run.validations
    ]
    return [Table("Validations", ["step", "held-out loss", "accuracy"], rows, folded=True)] if rows else []


def restarted_at(run: RunRecord) -> list[float]:
    """The steps from which the run went on after a worker was lost."""
    found, lost = [], False
    for event in run.events:
        if event.get("event") == "worker_lost":
            lost = True
        elif event.get("event") in ("start", "resume") and lost:
            found.append(float(event.get("step") or 0))
            lost = False
    return found


def _changes(run: RunRecord) -> list[tuple[float, str, str]]:
    """The steps from which other workers trained than before: what changed in a few words, and in a sentence."""
    teams: list[tuple[int, int, Any]] = []  # (step, workers, machine) of those whose steps still count
    for event in run.events:
        if event.get("workers") and event.get("event") in ("start", "resume", "roll_back"):
            step, machine = event.get("step") or 0, event.get("machine")
            teams = [team for team in teams if team[0] < step]
            teams.append((step, event["workers"], machine or (teams[-1][2] if teams else None)))
    found = []
    for (_, workers_before, machine_before), (step, workers, machine) in itertools.pairwise(teams):
        parts, sentence = [], []
        if workers != workers_before:
            parts.append(f"{workers_before} → {workers} workers")
            sentence.append(f"{workers} {'worker' if workers == 1 else 'workers'} in place of {workers_before}")
        if machine and machine_before and machine != machine_before:
            parts.append("other machine")
            sentence.append(f"another machine: {machine_line(machine)}")
        if parts:
            found.append((float(step), ", ".join(parts), f"From step {step + 1:,} on {' and '.join(sentence)}."))
    return found
