"""What an analysis found, in a file whose ending says how: .json (all of it), .csv or .md (its rows), .png or .svg."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenfree.core.errors import UserError
from tokenfree.core.files import write_atomically

KINDS = (".json", ".csv", ".md", ".png", ".svg")


def check_output(path: str) -> None:
    """Refuse a file that nothing could be written to, before any work is done.

    Raises:
        UserError: its ending is none of `KINDS`, or it is a folder.
    """
    if Path(path).suffix.lower() not in KINDS:
        raise UserError(f"--output {path}: the ending says what is written; use one of {', '.join(KINDS)}")
    if Path(path).is_dir():
        raise UserError(f"--output {path}: is a folder; name a file in it")


def write_analysis(found: Mapping[str, Any], path: str) -> None:
    """Write what an analysis found, whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    target = Path(path)
    kind = target.suffix.lower()
    content = {".json": _json, ".csv": _csv, ".md": _markdown}.get(kind)
    data = content(found) if content else _picture(found, kind.removeprefix("."))
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, data)


def _json(found: Mapping[str, Any]) -> str:
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n"


def _csv(found: Mapping[str, Any]) -> str:
    file, rows = io.StringIO(), _rows(found)
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _markdown(found: Mapping[str, Any]) -> str:
    """A table with a line for each row; numbers to four places, what is not known as a dash."""
    rows = _rows(found)
    names = list(rows[0])
    is_number = [all(isinstance(row[name], int | float | None) for row in rows) for name in names]
    lines = [names, ["---:" if each else "---" for each in is_number]]
    lines += [[_cell(row[name]) for name in names] for row in rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _rows(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rows, each with the step of the checkpoint where it is of a run."""
    step = {"step": found["step"]} if "step" in found else {}
    return [{**row, **step} for row in found["rows"]]


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return f"{round(value, 4) + 0.0:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def _picture(found: Mapping[str, Any], kind: str) -> bytes:
    from tokenfree.workflows.report.analyses.pictures import picture
    from tokenfree.workflows.report.figures.drawing import drawn

    paint, width, height = picture(found)
    return drawn(paint, kind, width=width, height=height)
