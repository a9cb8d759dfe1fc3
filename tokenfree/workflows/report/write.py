"""Writes the report about folders to a file, whole or not at all."""

from collections.abc import Sequence
from pathlib import Path

from tokenfree.core.files import write_atomically
from tokenfree.train.runs.hashes import HASHES, rewritten
from tokenfree.workflows.report.load import load
from tokenfree.workflows.report.page import render


def write_report(folders: Sequence[str], output: str, *, opening: Sequence[str] = (), step: int | None = None) -> Path:
    """Write the page about `folders` (each a run, a sweep or a data directory) to the file `output`.

    Args:
        folders: paths or addresses.
        output: the page.
        opening: lines that it begins with.
        step: use the checkpoints of this step of runs for guesses; see `checkpoint_of` for the default.

    Raises:
        UserError: a folder is none of these.
        JobError: a checkpoint is damaged.
        OSError: the file cannot be written.
    """
    page = render([load(_local(folder)) for folder in folders], opening, step)
    path = Path(output)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page)
    if (path.parent / HASHES).is_file():  # a finished run or sweep, whose files are all under a hash
        rewritten(str(path.parent), [path.name])
    return path


def _local(folder: str) -> Path:
    """The folder; of a run in a store, a copy of its small files."""
    if "://" not in folder:
        return Path(folder)
    from tokenfree.train.runs.run import run_at  # imports torch

    run = run_at(folder)
    run.fetch()
    return run.folder
