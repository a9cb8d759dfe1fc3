"""What a job with `keep_runs` leaves in the work folder of its finished directory.

_work/kept.json          that it does, where its inputs lie, and what decides its runs
_work/runs/*             the sorted runs, and beside those of dumps: which page gave which text (`.pages.arrow`)
_work/inputs/*           hashes of the inputs
_work/shards/*           what each shard was built of
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from fsspec.core import has_magic

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.stored_files import checked
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.job.preprocess_job import HASHES, RUNS, SHARDS, WORK
from tokenfree.preprocess.records.input_split import InputSplit
from tokenfree.preprocess.sources.input_splits import Inputs

KEPT = f"{WORK}/kept.json"
_NAMES = {name.partition("/")[2] for name in (KEPT, RUNS, HASHES, SHARDS)}


@dataclass(frozen=True)
class KeptDump:
    """A dump that a finished job read: where it lay, and the database of its wiki."""

    path: str
    database: str


@dataclass(frozen=True)
class Kept:
    """The content of `_work/kept.json`: the dumps, books and datasets as they were given but absolute, and the
    fingerprint of what decides runs beside the input split."""

    reading: str
    wikipedia: tuple[KeptDump, ...]
    books: tuple[str, ...]
    hf_dataset: tuple[str, ...]


def note_kept(
    storage: Storage, config: PreprocessConfig, inputs: Inputs, splits: Iterable[InputSplit], reading: str
) -> None:
    """Write down that the runs of this job are to be kept.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    databases = {path: split.site.database for split in splits if split.site is not None for path in split.inputs}
    dumps = tuple(KeptDump(file.path, databases.get(file.path, "")) for file in inputs.wikipedia)
    kept = Kept(reading, dumps, absolute(config.books), absolute(config.hf_dataset))
    storage.write_json(KEPT, asdict(kept))


def absolute(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths, globs and folders as other folders see them; addresses and names of the hub as they are; each
    once."""
    found = {os.path.abspath(path) if "://" not in path and _is_local(path) else path for path in paths}
    return tuple(sorted(found))


def _is_local(path: str) -> bool:
    return os.path.exists(path) or has_magic(path)


def find_kept(storage: Storage) -> Kept | None:
    """What is kept, None where nothing is."""
    try:
        return checked(Kept, storage.read_json(KEPT))
    except ValueError:
        return None


def the_kept(storage: Storage) -> Kept:
    """What is kept.

    Raises:
        UserError: nothing is.
    """
    kept = find_kept(storage)
    if kept is None:
        raise UserError(
            f"{storage.url}: was made without --keep-runs, so there is nothing to add to; give all inputs, "
            "--keep-runs and another --output"
        )
    return kept


def is_only_kept(storage: Storage) -> bool:
    """Whether the work folder holds what is kept and no more."""
    return find_kept(storage) is not None and set(storage.names(WORK)) <= _NAMES


def remove_work(storage: Storage) -> None:
    """Remove from the work folder what only a running job needs, or all of it where nothing is to be kept.

    Raises:
        UserError: a file may not be removed.
    """
    if find_kept(storage) is None:
        storage.remove(WORK)
        return
    for name in storage.names(WORK):
        if name not in _NAMES:
            storage.remove(f"{WORK}/{name}")
