"""One self-contained HTML page about runs, sweeps and data directories: tables and pictures, no script, no network."""

from collections.abc import Sequence
from pathlib import Path

from workflows.report.load import load
from workflows.report.page import render

__all__ = ["write_report"]


def write_report(folders: Sequence[str], output: str) -> Path:
    """Write the page about `folders` (each a run, a sweep or a data directory) to the file `output`.

    Raises:
        UserError: a folder is none of these, or the file cannot be written.
    """
    page = render([load(_local(folder)) for folder in folders])
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _local(folder: str) -> Path:
    """The folder; of a run in a store, a copy of its small files."""
    if "://" not in folder:
        return Path(folder)
    from train.run_folder import run_at  # imports torch

    place = run_at(folder)
    place.fetch()
    return place.folder
