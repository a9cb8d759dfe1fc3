"""Do the work of `tokenfree analyze`: print the results, and write them as .json, .csv (the rows), .png or .svg."""

import argparse
import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from tokenfree.core.errors import UserError
from tokenfree.core.files import write_atomically
from tokenfree.core.settings_values import flatten
from tokenfree.train.analyses.attention import attention_distances, attention_ranks
from tokenfree.train.analyses.collisions import collisions
from tokenfree.train.analyses.noise import STRENGTHS, noise_scores
from tokenfree.train.analyses.similarity import similarity
from tokenfree.train.analyses.subject import load_model, load_named_vocabulary, sample_texts
from tokenfree.train.inference.finetuned import load_finetuned
from tokenfree.train.runs.config import read_finetuned
from tokenfree.workflows.commands.analyze import COLUMNS, SIZES
from tokenfree.workflows.report import figures
from tokenfree.workflows.report.figures import matrix
from tokenfree.workflows.terminal.progress import console

_MAX_ROWS = 40
KINDS = (".json", ".csv", ".png", ".svg")
_MAX_BARS = 20
_HEADS = {
    "distance": "mean distance, units",
    "strongest": "strongest key, units away",
    "entropy": "entropy, bits",
    "rank_content": "rank of the content's logits",
    "rank": "rank of all logits",
    "toeplitz": "Toeplitz share of positions",
}

Rows = Sequence[Mapping[str, Any]]


def check_output(path: str) -> None:
    """Raise UserError if the ending of an output file is not in `KINDS`, or if the path is a folder."""
    if Path(path).suffix.lower() not in KINDS:
        raise UserError(f"--output {path}: the ending says what is written; use one of {', '.join(KINDS)}")
    if Path(path).is_dir():
        raise UserError(f"--output {path}: is a folder; name a file in it")


def write_analysis(results: Mapping[str, Any], path: str) -> None:
    target = Path(path)
    kind = target.suffix.lower()
    content = {".json": _json, ".csv": _csv}.get(kind)
    data = content(results) if content else _image(results, kind.removeprefix("."))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, data)


def _json(results: Mapping[str, Any]) -> str:
    return json.dumps(results, ensure_ascii=False, indent=1) + "\n"


def _csv(results: Mapping[str, Any]) -> str:
    # Of the checkpoint, if a run was analyzed.
    step = {"step": results["step"]} if "step" in results else {}
    file, rows = io.StringIO(), [{**row, **step} for row in results["rows"]]
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _image(results: Mapping[str, Any], kind: str) -> bytes:
    draw = {"similarity": _similarity, "collisions": _collisions, "noise": _noise_figure}.get(
        results["analysis"], _heads
    )
    with matplotlib.style.context(figures.STYLE):
        figure = Figure()
        draw(figure, results)
        return figures.image(figure, kind)


def _similarity(figure: Any, results: Mapping[str, Any]) -> None:
    rows = results["rows"]
    languages = list(dict.fromkeys(row["language"] for row in rows))
    interval = ", 95% interval" * any(row["spearman"] is not None for row in rows)
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    figure.set_size_inches(2.4 + 3.6 * len(languages), 3.4)
    for axes, language in zip(
        figure.subplots(1, len(languages), sharey=True, squeeze=False)[0], languages, strict=True
    ):
        for number, kind in enumerate(("related", "random", "both")):
            measured_rows = [row for row in rows if (row["language"], row["kind"]) == (language, kind)]
            measured_rows = [row for row in measured_rows if row["spearman"] is not None]
            heights = [
                len(measures) - measures.index(row["measure"]) + 0.2 * (1 - number) for row in measured_rows
            ]
            means, low, high = (
                np.array([row[name] for row in measured_rows]) for name in ("spearman", "low", "high")
            )
            axes.errorbar(means, heights, xerr=[means - low, high - means], linestyle="none", label=kind)
        axes.set_yticks(range(len(measures), 0, -1), [measure.replace("_", "-") for measure in measures])
        axes.set(title=language, xlabel=f"Spearman's correlation{interval}")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper")


def _heads(figure: Any, results: Mapping[str, Any]) -> None:
    rows: Rows = results["rows"]
    measures = [name for name in _HEADS if any(row.get(name) is not None for row in rows)]
    layers, heads = (max((row[name] for row in rows), default=1) for name in ("layer", "head"))
    figure.set_size_inches(0.8 + max(0.42 * heads, 2.6) * len(measures), 1.2 + max(0.3 * layers, 1.4))
    for axes, name in zip(figure.subplots(1, len(measures), squeeze=False)[0], measures, strict=True):
        cells = np.full((layers, heads), np.nan)
        for row in rows:
            cells[row["layer"] - 1, row["head"] - 1] = np.nan if row[name] is None else row[name]
        texts = [["" if np.isnan(value) else f"{value:.3g}" for value in line] for line in cells]
        matrix(
            axes, cells, [f"{n + 1}" for n in range(layers)], [f"{n + 1}" for n in range(heads)], texts=texts
        )
        axes.set(title=_HEADS[name], xlabel="head", ylabel="layer")


def _collisions(figure: Any, results: Mapping[str, Any]) -> None:
    scripts = [row for row in results["rows"] if row["group"] == "script"][:_MAX_BARS]
    rows = [row for row in results["rows"] if row["group"] == "all"] + scripts
    figure.set_size_inches(5.6, 1.2 + 0.3 * len(rows))
    axes, heights = figure.subplots(), np.arange(len(rows))
    axes.barh(heights - 0.18, [row["hash"] for row in rows], height=0.34, label="a bucket in one hash")
    axes.barh(heights + 0.18, [row["all"] for row in rows], height=0.34, label="all buckets")
    axes.axvline(rows[0]["hash_expected"], color="black", linestyle="--", label="one hash, uniform")
    names = ["all", *(row["name"] or "no letters" for row in scripts)]
    axes.set_yticks(
        heights, [f"{name} ({row['characters']:,})" for name, row in zip(names, rows, strict=True)]
    )
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(title="Characters that share with another one", xlabel="share of the characters", xlim=(0, 1))
    axes.legend()


def _noise_figure(figure: Any, results: Mapping[str, Any]) -> None:
    clean, *rows = results["rows"]
    figure.set_size_inches(6.6, 3.4)
    axes = figure.subplots()
    axes.axhline(clean["score"], color="black", linestyle="--", linewidth=1, label="without noise")
    for scheme in dict.fromkeys(row["scheme"] for row in rows):
        scheme_rows = [row for row in rows if row["scheme"] == scheme]
        scores, low, high = (
            np.array([row[name] for row in scheme_rows]) for name in ("score", "low", "high")
        )
        axes.errorbar(
            [row["rate"] for row in scheme_rows],
            scores,
            yerr=[np.abs(scores - low), np.abs(high - scores)],
            elinewidth=0.8,
            label=scheme.replace("_", " "),
        )
    axes.set(title=results["run"], xlabel="share of the characters struck", xlim=(0, 1.03))
    axes.set_ylabel(f"{results['main'].replace('_', ' ')}, 95% interval")
    figure.legend(loc="outside right upper")


def run(args: argparse.Namespace) -> None:
    for path in args.output or ():
        check_output(path)
    results = _analyse(args)
    for path in args.output or ():
        write_analysis(results, path)
    if args.json:
        print(json.dumps(results, ensure_ascii=False))
    else:
        _show(results)
        for path in args.output or ():
            print(f"written to {path}")


def _analyse(args: argparse.Namespace) -> dict[str, Any]:
    if args.analysis == "noise":
        return _noise(args)
    model = load_model(
        args.run_folder, step=args.step, vocabulary=args.vocabulary, trust_code=args.trust_code
    )
    size = SIZES[args.analysis] if args.size is None else args.size
    if args.analysis == "similarity":
        only = None if args.vocabulary is None else load_named_vocabulary(args.vocabulary)
        return similarity(
            model, args.data, size, seed=args.seed or 0, place=args.vectors or "down", vocabulary=only
        )
    data = None if args.data is None else args.data[0]
    if args.analysis == "collisions":
        return collisions(model, data, size)
    analysis = attention_distances if args.analysis == "attention" else attention_ranks
    return analysis(model, sample_texts(model, data, size))


def _noise(args: argparse.Namespace) -> dict[str, Any]:
    model = load_finetuned(args.run_folder, step=args.step, trust_code=args.trust_code)
    files = read_finetuned(args.run_folder, trust_code=args.trust_code).files
    data = files.get("dev") if args.data is None else args.data[0]
    strengths = args.strengths or STRENGTHS
    return noise_scores(
        model, args.run_folder, data, strengths=strengths, seed=args.seed or 0, max_examples=args.size
    )


def _show(results: dict[str, Any]) -> None:
    facts = {key: value for key, value in flatten(results) if isinstance(value, (str, int, float))}
    rows = results["rows"]
    if "layer" in rows[0]:
        layers = dict.fromkeys(row["layer"] for row in rows)
        rows = [_mean([row for row in rows if row["layer"] == layer]) for layer in layers]
    names = [name for name in COLUMNS[results["analysis"]] if any(row[name] is not None for row in rows)]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in names:
        table.add_column(
            name.replace("_", "\n"), justify="left" if isinstance(rows[0][name], str) else "right"
        )
    for row in rows[:_MAX_ROWS]:
        table.add_row(*(_cell(row[name]) for name in names))
    out = console()
    out.print(", ".join(f"{key.replace('_', ' ')} {_cell(value)}" for key, value in facts.items()))
    out.print(table)
    if len(rows) > _MAX_ROWS:
        out.print(f"and {len(rows) - _MAX_ROWS} more; --output writes all")


def _mean(rows: list[dict[str, Any]]) -> dict[str, Any]:
    columns = {
        name: [row[name] for row in rows if row[name] is not None]
        for name, first in rows[0].items()
        if not isinstance(first, list)
    }
    return {name: sum(values) / len(values) if values else None for name, values in columns.items()}


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
