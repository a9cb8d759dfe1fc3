"""The table of task sweeps that goes into a paper: a row a setting, mean and 95% interval over its seeds, as text.

The best setting by the development set is marked; it alone has a score on the test set.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from tokenfree.core.errors import UserError
from tokenfree.core.storage import Storage
from tokenfree.train.sweep.history import SCORES, SCORES_FILE
from tokenfree.train.sweep.results import short_names, shown

TableFormat = Literal["markdown", "latex", "csv"]
FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)
_DIGITS = 4  # scores are shares of 1
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
})  # fmt: skip


class PaperTable(NamedTuple):
    """Settings of task sweeps with their scores.

    Attributes:
        lead: header of the columns before the values: "sweep" if there are several.
        keys: the dotted keys of the values.
        metric: the score.
        splits: "dev", and "test" if one was given.
        rows: the cells of lead and values, the scores of the setting, and whether it is the best one.
    """

    lead: list[str]
    keys: list[str]
    metric: str
    splits: list[str]
    rows: list[tuple[list[str], Mapping[str, Any], bool]]

    @property
    def header(self) -> list[str]:
        """The names of the columns, as people read them."""
        return [*self.lead, *short_names(self.keys), "seeds", *(f"{split} {self.metric}" for split in self.splits)]

    def body(self, pm: str) -> list[list[str]]:
        """Return the cells, with `pm` between a mean and its interval."""
        return [
            [*cells, _count(setting), *(_words(setting[split], pm) for split in self.splits)]
            for cells, setting, _ in self.rows
        ]

    @property
    def best(self) -> list[bool]:
        """Which rows are best by the development set."""
        return [is_best for *_, is_best in self.rows]


def paper_table(sweeps: Sequence[str], form: TableFormat) -> str:
    """Return the text of the table of these sweeps, by their folders; a first column tells several of them apart.

    Raises:
        UserError: one is no sweep of a task that has ended, or they have different scores.
    """
    table = read_paper_table(sweeps)
    if form == "csv":
        return _csv(table)
    return _markdown(table) if form == "markdown" else _latex(table)


def read_paper_table(sweeps: Sequence[str]) -> PaperTable:
    """Read the scores of these sweeps, by their folders.

    Raises:
        UserError: one is no sweep of a task that has ended, or they have different scores.
    """
    found = [(Path(sweep).name, _scores(sweep)) for sweep in sweeps]
    metrics = list(dict.fromkeys(scores["metric"] for _, scores in found))
    if len(metrics) > 1:
        raise UserError(f"--format: these sweeps are judged by {' and '.join(metrics)}; give those of one score")
    lead = ["sweep"] * (len(found) > 1)
    keys = sorted({key for _, scores in found for setting in scores["settings"] for key in setting["values"]})
    rows = [
        (
            [name] * len(lead) + [shown(setting["values"].get(key)) for key in keys],
            setting,
            setting["setting"] == scores["best"]["setting"],
        )
        for name, scores in found
        for setting in scores["settings"]
    ]
    splits = ["dev", "test"] if any("test" in scores for _, scores in found) else ["dev"]
    return PaperTable(lead, keys, metrics[0], splits, rows)


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
    """Return a mean with its interval, a dash if there is no score."""
    if cell is None:
        return "–"
    spread = " (one seed)" if cell["interval"] is None else f"{pm}{cell['interval']:.{_DIGITS}f}"
    return f"{cell['mean']:.{_DIGITS}f}{spread}"


def _markdown(table: PaperTable) -> str:
    numbers = len(table.header) - len(table.splits)
    marked = [
        [cell.replace("|", r"\|") if number < numbers or not is_best or cell == "–" else f"**{cell}**"
         for number, cell in enumerate(row)]
        for row, is_best in zip(table.body(" ± "), table.best, strict=True)
    ]  # fmt: skip
    rows = [table.header, *marked]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.header))]
    rule = ["-" * width if column < numbers else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    lines = [[*map(str.ljust, row[:numbers], widths), *map(str.rjust, row[numbers:], widths[numbers:])] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in [lines[0], rule, *lines[1:]])


def _latex(table: PaperTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join(cells) + r" \\" + "\n"

    numbers = len(table.header) - len(table.splits)
    rows = [
        [
            *(cell.translate(_LATEX) for cell in row[:numbers]),
            *(rf"\textbf{{{cell}}}" if is_best and cell != "–" else cell.replace("–", "--") for cell in row[numbers:]),
        ]
        for row, is_best in zip(table.body(r" $\pm$ "), table.best, strict=True)
    ]
    columns = "l" * numbers + "r" * len(table.splits)
    header = line([cell.translate(_LATEX) for cell in table.header])
    return (
        "% \\usepackage{booktabs}; means with 95% intervals over seeds, the best by the development set in bold\n"
        rf"\begin{{tabular}}{{{columns}}}" + "\n\\toprule\n"
        f"{header}\\midrule\n{''.join(map(line, rows))}\\bottomrule\n\\end{{tabular}}\n"
    )


def _csv(table: PaperTable) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    columns = [f"{split}_{table.metric}{end}" for split in table.splits for end in ("", "_interval")]
    writer.writerow([*table.lead, *table.keys, "seeds", *columns, "best"])
    for values, setting, is_best in table.rows:
        cells = [setting[split] for split in table.splits]
        numbers = [cell[name] if cell else None for cell in cells for name in ("mean", "interval")]
        writer.writerow([*values, _count(setting), *numbers, "yes" if is_best else ""])
    return file.getvalue()
