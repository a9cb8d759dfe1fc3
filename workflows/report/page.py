"""Puts tables and pictures of folders together into the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jinja2

from preprocess.manifest import Manifest
from workflows.report import figures
from workflows.report.load import DataFolder, Folder, RunFolder, SweepFolder


@dataclass(frozen=True)
class Section:
    """One part of the page: headline numbers (value, meaning), pictures as SVG, and a table."""

    title: str
    subtitle: str
    numbers: Sequence[tuple[str, str]] = ()
    pictures: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = field(default_factory=tuple)
    note: str = ""


def render(folders: Sequence[Folder]) -> str:
    """The whole page: data first, then runs (compared in one section where there are several), then sweeps."""
    sections = [_data(folder) for folder in folders if isinstance(folder, DataFolder)]
    runs = [folder for folder in folders if isinstance(folder, RunFolder)]
    if len(runs) > 1:
        sections.append(_comparison(runs))
    sections += [_run(folder) for folder in runs]
    sections += [_sweep(folder) for folder in folders if isinstance(folder, SweepFolder)]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("workflows.report", "."), autoescape=True, undefined=jinja2.StrictUndefined
    )
    title = "tokenfree: " + ", ".join(folder.name for folder in folders)
    return environment.get_template("page.html.jinja").render(title=title, sections=sections)


def _data(folder: DataFolder) -> Section:
    manifest = folder.manifest
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    languages: dict[str, int] = {}
    for shard in shards:
        languages[shard.language] = languages.get(shard.language, 0) + shard.characters
    ranked = sorted(languages.items(), key=lambda item: (-item[1], item[0]))
    totals = {
        name: sum(getattr(shard, name) for shard in shards) for name in ("documents", "rows", "characters", "bytes")
    }
    return Section(
        title=f"Corpus · {folder.name}",
        subtitle=str(folder.path),
        numbers=[
            (f"{totals['documents']:,}", "documents"),
            (f"{totals['rows']:,}", "windows"),
            (_count(totals["characters"]), "characters"),
            (str(len(languages)), "languages" if len(languages) > 1 else "language"),
            (str(len(shards)), "shards"),
        ],
        pictures=[
            figures.bars(_top(ranked, 16), title="Characters by language", x="characters", log=len(ranked) > 1),
            figures.bars(_fates(manifest), title="What became of the pages", x="pages", log=True),
        ],
    )


def _run(run: RunFolder) -> Section:
    steps = [line["step"] for line in run.steps]
    result = run.result or {}
    entropy = result.get("unigram_entropy")
    unit = f"nats per {result.get('symbol') or 'target'}"
    speed = [line["characters"] / line["seconds"] if line["seconds"] else 0.0 for line in run.steps]
    restarts = sum(event.get("event") == "worker_lost" for event in run.events)
    numbers = [
        (f"{run.steps[-1]['step']:,}" if steps else "0", "steps"),
        (_count(_median(speed)), "characters per second"),
    ]
    if run.validations:
        numbers.insert(0, (f"{run.validations[-1]['validation_loss']:.3f}", f"held-out loss ({unit})"))
    if entropy is not None:
        numbers.insert(1, (f"{entropy:.3f}", "unigram entropy of the targets"))
    numbers.append((str(restarts), "restarts"))
    held_out = (
        "held out",
        [line["step"] for line in run.validations],
        [line["validation_loss"] for line in run.validations],
    )
    train = run.config.get("recipe", run.config).get("train", {})
    return Section(
        title=f"Pretraining · {run.name}",
        subtitle=str(run.path),
        numbers=numbers,
        pictures=[
            figures.lines(
                [("training", steps, [line["loss"] for line in run.steps])],
                points=[held_out],
                level=None if entropy is None else ("unigram entropy", entropy),
                title="Loss",
                x="step",
                y=unit,
                smooth=True,
            ),
            figures.lines([("", steps, speed)], title="Throughput", x="step", y="characters per second", smooth=True),
        ],
        header=["key", "value"],
        rows=[[f"train.{key}", _value(value)] for key, value in train.items() if not isinstance(value, Mapping)],
    )


def _comparison(runs: Sequence[RunFolder]) -> Section:
    curves = [
        (run.name, [line["step"] for line in run.validations], [line["validation_loss"] for line in run.validations])
        for run in runs
    ]
    return Section(
        title="Runs compared",
        subtitle=", ".join(run.name for run in runs),
        pictures=[figures.lines([], points=curves, title="Held-out loss", x="step", y="nats per target")],
        header=["run", "steps", "held-out loss", "accuracy"],
        rows=[
            [
                run.name,
                f"{run.validations[-1]['step']:,}",
                f"{run.validations[-1]['validation_loss']:.4f}",
                f"{100 * run.validations[-1]['validation_accuracy']:.1f}%",
            ]
            for run in runs
            if run.validations
        ],
    )


def _sweep(sweep: SweepFolder) -> Section:
    reported = [trial for trial in sweep.trials if trial["validation_loss"] is not None]
    ranked = sorted(reported, key=lambda trial: (-trial["step"], trial["validation_loss"]))
    curves = [
        (name, [report["step"] for report in reports], [report["validation_loss"] for report in reports])
        for name, reports in sorted(sweep.reports.items())
    ]
    states = [trial["state"] for trial in sweep.trials]
    header = ["trial", "state", *(knob.removeprefix("model.") for knob in sweep.knobs), "step", "held-out loss",
              "characters/s", "parameters"]  # fmt: skip
    return Section(
        title=f"Sweep · {sweep.name}",
        subtitle=str(sweep.path),
        numbers=[
            (str(len(states)), "trials"),
            (str(states.count("finished")), "finished"),
            (str(states.count("stopped")), "stopped early"),
            (str(states.count("failed")), "failed"),
            (f"{ranked[0]['validation_loss']:.3f}" if ranked else "none", "best held-out loss (nats)"),
        ],
        pictures=[
            figures.pareto(reported),
            figures.learning_curves(curves, best=_name(ranked)),
            figures.effects(reported, sweep.knobs),
        ],
        header=header,
        rows=[
            [
                str(trial["trial"]),
                trial["state"],
                *(_value(trial[knob]) for knob in sweep.knobs),
                _value(trial["step"]),
                f"{trial['validation_loss']:.4f}",
                _count(trial["characters_per_second"]),
                _count(trial["parameters"]),
            ]
            for trial in ranked
        ],
        note="Trials that were stopped early saw fewer steps: compare their loss only with trials of the same step.",
    )


def _fates(manifest: Manifest) -> list[tuple[str, float]]:
    """Pages by what became of them: the parts that the manifest's counters reconcile, those without a page left out."""
    counters = manifest.counters
    rows = [
        (name.replace("_", " "), counters[name])
        for name in ("documents", "redirects", "other_namespaces", "duplicates")
    ]
    for kind in ("filtered", "failed"):
        rows += [(f"{kind}: {reason.replace('_', ' ')}", count) for reason, count in sorted(counters[kind].items())]
    return [(name, count) for name, count in rows if count]


def _top(ranked: Sequence[tuple[str, int]], most: int) -> list[tuple[str, float]]:
    rest = sum(count for _, count in ranked[most:])
    return [*ranked[:most], *([(f"{len(ranked) - most} more", rest)] if rest else [])]


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


def _name(ranked: Sequence[Mapping[str, Any]]) -> str:
    return str(ranked[0]["trial"]) if ranked else ""


def _count(value: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= size:
            return f"{value / (1e3 if unit == ' k' else size):.3g}{unit}"
    return f"{value:,.0f}"


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)
