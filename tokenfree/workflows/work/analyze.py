"""Do the work of `tokenfree analyze`."""

import argparse
import json
from typing import Any

from rich.table import Table

from tokenfree.core.settings import flatten
from tokenfree.train.analyses.attention import attention_distances, attention_ranks
from tokenfree.train.analyses.collisions import collisions
from tokenfree.train.analyses.noise import STRENGTHS, noise_scores
from tokenfree.train.analyses.similarity import similarity
from tokenfree.train.analyses.subject import load_model, load_named_vocabulary, sample_texts
from tokenfree.train.inference.finetuned import load_finetuned
from tokenfree.train.runs.config import read_finetuned
from tokenfree.workflows.commands.analyze import COLUMNS, SIZES
from tokenfree.workflows.report.analyses import check_output, write_analysis
from tokenfree.workflows.terminal.progress import console

_MAX_ROWS = 40


def run(args: argparse.Namespace) -> int:
    for path in args.output or ():
        check_output(path)
    results = _analyse(args)
    for path in args.output or ():
        write_analysis(results, path)
    if args.json:
        print(json.dumps(results, ensure_ascii=False))
        return 0
    _show(results)
    for path in args.output or ():
        print(f"written to {path}")
    return 0


def _analyse(args: argparse.Namespace) -> dict[str, Any]:
    if args.analysis == "noise":
        return _noise(args)
    model = load_model(
        args.run_folder, step=args.step, vocabulary=args.vocabulary, trust_code=args.trust_code
    )
    size = SIZES[args.analysis] if args.size is None else args.size
    if args.analysis == "similarity":
        only = None if args.vocabulary is None else load_named_vocabulary(args.vocabulary)
        place = args.vectors or "down"
        return similarity(model, args.data, size, seed=args.seed or 0, place=place, vocabulary=only)
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
    """Print the facts of an analysis, and a table of its rows: means over the heads of a layer, or all rows."""

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
    columns = {name: [row[name] for row in rows if row[name] is not None] for name in rows[0]}
    return {name: sum(values) / len(values) if values else None for name, values in columns.items()}


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
