"""The sections of samples: of each run and of the best trial of each sweep, and of each data directory once."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.own_code import UntrustedCode
from tokenfree.core.storage import Storage
from tokenfree.train.data.mixture import Data, given_or_parsed, load_data_manifest, paths_of
from tokenfree.train.sweep.control.sweep_files import BEST_FILE
from tokenfree.train.sweep.results.compare import best
from tokenfree.train.sweep.results.tables import BEST
from tokenfree.train.sweep.space.targets import LOSS
from tokenfree.workflows.report.load import DataRecord, Record, RunRecord, SweepRecord
from tokenfree.workflows.report.samples.windows import window_block
from tokenfree.workflows.report.sections.parts import Block, Section
from tokenfree.workflows.report.sections.sweep_view import SweepView


class _Asked(NamedTuple):
    """A model that is asked: its folder with checkpoints, its resolved recipe, and the data that it was trained on."""

    title: str
    folder: Path
    recipe: Mapping[str, Any]
    fingerprint: str
    recorded: Data | None  # where the data were; None: not recorded
    step: int | None = None  # of the checkpoint


def sample_sections(records: Sequence[Record], step: int | None = None) -> list[Section]:
    """What models guess for hidden pieces, and windows of the data; none of what is not there.

    Args:
        records: of the folders.
        step: use the checkpoints of this step of runs.

    Raises:
        UserError: a run has no such checkpoint.
        JobError: a checkpoint is damaged.
    """
    asked = [each for record in records for each in _asked(record, step)]
    data: dict[str, Data] = {
        record.manifest.fingerprint: str(record.path) for record in records if isinstance(record, DataRecord)
    }
    for each in asked:
        if each.fingerprint not in data and each.recorded is not None and _is_there(each.recorded, each.fingerprint):
            data[each.fingerprint] = each.recorded
    sections = []
    if asked:
        subtitle = (
            "in a fixed sample of held-out windows, drawn and not chosen; all of a window but the piece is visible, as "
            "for tokenfree predict"
        )
        blocks = [_guesses(each, data.get(each.fingerprint)) for each in asked]
        sections.append(Section("Guesses for hidden pieces", subtitle, blocks=blocks))
    if data:
        subtitle = "evenly spaced over the training split, as tokenfree inspect draws them"
        blocks = [_windows(path) for each in data.values() for path in paths_of(each)]
        sections.append(Section("Sample windows", subtitle, blocks=blocks))
    return sections


def _asked(record: Record, step: int | None) -> Iterator[_Asked]:
    """The pretraining run, or the best trial of such a sweep that has ended, if it has checkpoints.

    Imported runs have no data.
    """
    if isinstance(record, RunRecord):
        config = record.config
        if not record.is_finetuned and config.get("manifest") and "recipe" in config and _has_checkpoints(record.path):
            yield _Asked(record.name, record.path, config["recipe"], config["manifest"], _recorded(config), step)
    elif isinstance(record, SweepRecord) and record.ended:
        view = SweepView(record)
        winner = best(view.trials, target=view.targets[0], unit=view.unit) if view.quality == LOSS else None
        if winner is not None and _has_checkpoints(record.path / "trials" / winner.name):
            recipe = BEST_FILE.yaml(Storage.at(str(record.path)), BEST)
            title, folder = f"{record.name}: {winner.name}, the best trial", record.path / "trials" / winner.name
            yield _Asked(title, folder, recipe, record.data, None)


def _recorded(config: Mapping[str, Any]) -> Data | None:
    return given_or_parsed(config["data"]) if "data" in config else None


def _has_checkpoints(folder: Path) -> bool:
    return any((folder / "checkpoints").glob("step_*"))


def _is_there(recorded: Data, fingerprint: str) -> bool:
    """Whether the data of a run are where they were, on this machine, and the same."""
    if not all((Path(path) / "manifest.json").is_file() for path in paths_of(recorded)):
        return False
    try:
        return load_data_manifest(recorded).fingerprint == fingerprint
    except UserError:
        return False


def _guesses(asked: _Asked, data: Data | None) -> Block:
    """The table of a model, or a line that says why there is none."""
    if data is None:
        where = f"its data are not in {asked.recorded}" if asked.recorded else "a sweep tells no place of its data"
        return Block(asked.title, f"None are shown: {where}; give their directory to tokenfree report too.")
    from tokenfree.train.runs.run import checkpoint_of  # imports torch, as the next line
    from tokenfree.workflows.report.samples.guesses import guess_block

    checkpoint = checkpoint_of(asked.folder, asked.step)
    try:
        return guess_block(asked.title, checkpoint, asked.recipe, data)
    except UntrustedCode as error:
        names = ", ".join(error.names)
        text = f"None are shown: a report runs no code from outside tokenfree, and this run names {names}."
        return Block(asked.title, text)
    except (UserError, JobError, OSError) as error:
        return Block(asked.title, f"None are shown: {error}")


def _windows(data: str) -> Block:
    """The windows of a data directory, or a line that says why there are none."""
    title = Path(data).name
    try:
        return window_block(title, data)
    except (UserError, OSError, pa.ArrowInvalid) as error:
        return Block(title, f"None are shown: {error}")
