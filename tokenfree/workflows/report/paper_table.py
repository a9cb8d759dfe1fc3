"""The table of task sweeps that goes into a paper: a row a setting, mean and 95% interval over its seeds, as text.

The best setting by the development set is marked; it alone has a score on the test set.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.train.sweep.control.sweep_files import SCORES, SCORES_FILE
from tokenfree.train.sweep.results.trial_result import short_names, shown

TableFormat = Literal["markdown", "latex", "csv"]
FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)
_DIGITS = 4  # scores are shares of 1
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
})  # fmt: skip


def paper_table(sweeps: Sequence[str], form: TableFormat) -> str:
    """The text of the table of these sweeps, by their folders; several of them are told apart by a first column.

    Raises:
        UserError: one is no sweep of a task that has ended, or they have different scores.
    """
    found = [(Path(sweep).name, _scores(sweep)) for sweep in sweeps]
    metrics = list(dict.fromkeys(scores["metric"] for _, scores in found))
    if len(metrics) > 1:
        raise UserError(f"--format {form}: these sweeps are judged by {' and '.join(metrics)}; give those of one score")
    rows = [
        (name, setting, setting["setting"] == scores["best"]["setting"])
        for name, scores in found
        for setting in scores["settings"]
    ]
    keys = sorted({key for _, setting, _ in rows for key in setting["values"]})
    names = ["sweep"] * (len(found) > 1)
    knobs = [
        [name] * (len(found) > 1) + [shown(setting["values"].get(key)) for key in keys] for name, setting, _ in rows
    ]
    has_test = any("test" in scores for _, scores in found)
    splits = ["dev", "test"] if has_test else ["dev"]
    if form == "csv":
        return _csv([*names, *keys], knobs, rows, splits, metrics[0])
    header = [*names, *short_names(keys), "seeds", *(f"{split} {metrics[0]}" for split in splits)]
    pm = " ± " if form == "markdown" else r" $\pm$ "
    body = [
        [*values, _count(setting), *(_words(setting[split], pm) for split in splits)]
        for values, (_, setting, _) in zip(knobs, rows, strict=True)
    ]
    best = [is_best for _, _, is_best in rows]
    make = _markdown if form == "markdown" else _latex
    return make(header, body, best, numbers=len(header) - len(splits))


def _scores(sweep: str) -> Mapping[str, Any]:
    storage = Storage.at(sweep)
    if storage.size("sweep.yaml") is None:
        raise UserError(f"{sweep}: is no sweep (no sweep.yaml); tables are of sweeps of fine-tuning recipes")
    try:
        return SCORES_FILE.json(storage, SCORES)
    except FileNotFoundError:
        raise UserError(
            f"{sweep}: has no {SCORES}; only a sweep of a fine-tuning recipe has one, when it has ended"
        ) from None


def _count(setting: Mapping[str, Any]) -> str:
    return str(len(setting["dev"]["seeds"])) if setting["dev"] else "0"


def _words(cell: Mapping[str, Any] | None, pm: str) -> str:
    """A mean with its interval; a dash where there is no score."""
    if cell is None:
        return "–"
    spread = " (one seed)" if cell["interval"] is None else f"{pm}{cell['interval']:.{_DIGITS}f}"
    return f"{cell['mean']:.{_DIGITS}f}{spread}"


def _markdown(header: Sequence[str], body: Sequence[Sequence[str]], best: Sequence[bool], *, numbers: int) -> str:
    marked = [
        [cell.replace("|", r"\|") if number < numbers or not is_best or cell == "–" else f"**{cell}**"
         for number, cell in enumerate(row)]
        for row, is_best in zip(body, best, strict=True)
    ]  # fmt: skip
    rows = [list(header), *marked]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    rule = ["-" * width if column < numbers else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    lines = [[*map(str.ljust, row[:numbers], widths), *map(str.rjust, row[numbers:], widths[numbers:])] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in [lines[0], rule, *lines[1:]])


def _latex(header: Sequence[str], body: Sequence[Sequence[str]], best: Sequence[bool], *, numbers: int) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join(cells) + r" \\" + "\n"

    rows = [
        [
            *(cell.translate(_LATEX) for cell in row[:numbers]),
            *(rf"\textbf{{{cell}}}" if is_best and cell != "–" else cell.replace("–", "--") for cell in row[numbers:]),
        ]
        for row, is_best in zip(body, best, strict=True)
    ]
    columns = "l" * numbers + "r" * (len(header) - numbers)
    middle = "".join(map(line, rows))
    return (
        "% \\usepackage{booktabs}; means with 95% intervals over seeds, the best by the development set in bold\n"
        rf"\begin{{tabular}}{{{columns}}}" + "\n\\toprule\n"
        f"{line([cell.translate(_LATEX) for cell in header])}\\midrule\n{middle}\\bottomrule\n\\end{{tabular}}\n"
    )


def _csv(
    names: Sequence[str],
    knobs: Sequence[Sequence[str]],
    rows: Sequence[tuple[str, Mapping[str, Any], bool]],
    splits: Sequence[str],
    metric: str,
) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    columns = [f"{split}_{metric}{end}" for split in splits for end in ("", "_interval")]
    writer.writerow([*names, "seeds", *columns, "best"])
    for values, (_, setting, is_best) in zip(knobs, rows, strict=True):
        cells = [setting[split] for split in splits]
        numbers = [cell[name] if cell else None for cell in cells for name in ("mean", "interval")]
        writer.writerow([*values, _count(setting), *numbers, "yes" if is_best else ""])
    return file.getvalue()
