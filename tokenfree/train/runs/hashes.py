"""`hashes.json` of a finished run or sweep: the SHA-256 of all its files, by which `tokenfree verify` finds damage.

It is written when the folder has its last file, and holds a hash of itself. Of checkpoints it holds those of their
commit marks, which hold the rest (see checkpoints.py). Locks and what other programs write have none.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tokenfree.core.errors import JobError
from tokenfree.core.files import TEMPORARY
from tokenfree.core.locks import LOCK
from tokenfree.core.storage import Storage, retry_store
from tokenfree.core.stored_files import (
    check_hash,
    hashes_of,
    is_inside,
    json_lines,
    read_sealed,
    refuse_later,
    write_sealed,
)
from tokenfree.train.runs.checkpoints import MARK, STATE, mark_of
from tokenfree.train.runs.config import CONFIG_NAME, RUN_FORMAT, SWEEP_FORMAT

HASHES = "hashes.json"
RESULT, TABLE = "result.json", "sweep.csv"  # the last files of a run and of a sweep
_CONFIGS = {CONFIG_NAME: RUN_FORMAT, "sweep.yaml": SWEEP_FORMAT}
_NOT_OURS = (LOCK, TEMPORARY, "ray", "wandb", "mlruns")  # folders: of locks, half-written, and of other programs
_CHECKPOINT = re.compile(r"((?:.+/)?checkpoints/step_\d{8,})/[^/]+")
_REMOVAL_SECONDS = 0.5  # a checkpoint that training removes is gone after these
_LOCK = re.compile(r"lock(\.\w+)?")
_COPY = "copy the folder again"
_AGAIN = "give its command again, which writes this file"


@dataclass(frozen=True)
class VerifiedFolder:
    """What was found good in the folder of a run or of a sweep.

    Attributes:
        complete: whether the run or the sweep has ended.
        checkpoints: their folders, sorted.
        unhashed: files that no hash covers.
    """

    complete: bool
    checkpoints: tuple[str, ...]
    unhashed: tuple[str, ...]


def is_results_folder(names: Collection[str]) -> bool:
    """Whether a folder with these names in it is that of a run or a sweep, perhaps with some of its files gone."""
    return not {HASHES, RESULT, TABLE, *_CONFIGS, "checkpoints", "metrics.jsonl", "journal.jsonl"}.isdisjoint(names)


def write_hashes(folder: str) -> None:
    """Write the hashes of a run or sweep, at a path or an address, that has just ended.

    Raises:
        UserError: the folder cannot be written to, or is full.
    """
    storage = Storage.at(folder)
    files = retry_store(storage, lambda: hashes_of(storage, _covered(storage.find())))
    retry_store(storage, lambda: _write(storage, files))


def rewritten(folder: str, names: Iterable[str] = ()) -> None:
    """Note the hashes of files of an ended run or sweep that were written again; all, where they were not written yet.

    A folder that an earlier version made is left without.

    Raises:
        UserError: the folder cannot be written to, or is full.
    """
    storage = Storage.at(folder)
    found = read_sealed(storage, HASHES)
    if found is not None:
        files = {**found["files"], **hashes_of(storage, names)}
        if files != found["files"]:
            _write(storage, files)
    elif storage.size(HASHES) is None and _is_to_have_hashes(storage):
        write_hashes(folder)


def _write(storage: Storage, files: Mapping[str, str]) -> None:
    write_sealed(storage, HASHES, {"files": dict(files)})
    if storage.is_local:
        storage.remove(TEMPORARY)  # the folder in which the file was written


def remove_hashes(folder: str) -> None:
    """For a finished run that is to be trained on.

    Raises:
        UserError: the file may not be removed.
    """
    Storage.at(folder).remove(HASHES)


def verify_folder(folder: str) -> VerifiedFolder:
    """Check the run or sweep at a path or an address: every hash, and of one that is still trained its checkpoints.

    Raises:
        JobError: the first file that is wrong.
        UserError: it is of a later format.
    """
    storage = Storage.at(folder)
    names = storage.find()
    for name in _CONFIGS.keys() & names:
        with contextlib.suppress(JobError):  # told with what its hash should be
            refuse_later(_parsed(storage, name, yaml.safe_load), _CONFIGS[name], f"{storage.url}/{name}")
    complete = RESULT in names or TABLE in names
    known = _known_hashes(storage, complete)
    for name, sha256 in known.items():
        check_hash(storage, name, sha256, source=HASHES, remedy=_COPY)
    checkpoints = sorted({match[1] for name in _kept(names) if (match := _CHECKPOINT.fullmatch(name))})
    covered = {HASHES, *known}
    for checkpoint in checkpoints:
        files = _while_there(storage, checkpoint, complete)
        covered |= {f"{checkpoint}/{file}" for file in files}
    if not known:
        _check_readable(storage, names)
    unhashed = tuple(name for name in _kept(names) if name not in covered)
    return VerifiedFolder(complete, tuple(checkpoints), unhashed)


def _known_hashes(storage: Storage, complete: bool) -> dict[str, str]:
    """Those of hashes.json; none of a folder that is still trained, or of before."""
    found = read_sealed(storage, HASHES)
    if found is not None and all(map(is_inside, found["files"])):
        return found["files"]
    if storage.size(HASHES) is not None:
        raise JobError(f"{HASHES}: damaged; {_COPY}")
    if complete and _is_to_have_hashes(storage):
        raise JobError(f"{HASHES}: missing; {_COPY}, or {_AGAIN}")
    return {}


def _is_to_have_hashes(storage: Storage) -> bool:
    """Whether the command that trained last was of a version that writes hashes."""
    for name in _CONFIGS:
        if storage.size(name) is not None:
            return _parsed(storage, name, lambda data: _last_attempt(yaml.safe_load(data)).get("hashes", False))
    return False


def _last_attempt(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return (config.get("attempts") or [{}])[-1]


def _while_there(storage: Storage, checkpoint: str, complete: bool) -> list[str]:
    """The files of a checkpoint, checked; none of one that training removes meanwhile."""
    try:
        return _checked_checkpoint(storage, checkpoint)
    except JobError:
        time.sleep(0 if complete else _REMOVAL_SECONDS)
        if complete or f"{checkpoint}/{MARK}" in storage.find():
            raise
        return []


def _checked_checkpoint(storage: Storage, folder: str) -> list[str]:
    remedy = f"{_COPY}; training goes on from the checkpoint before it"
    data = {}
    for name in (MARK, STATE):
        try:
            data[name] = storage.read_bytes(f"{folder}/{name}")
        except FileNotFoundError:
            raise JobError(f"{folder}/{name}: missing; {remedy}") from None
    if data[MARK] != mark_of(data[STATE]):
        raise JobError(f"{folder}/{STATE}: damaged, it is not what {MARK} says; {remedy}")
    files = _parsed(storage, f"{folder}/{STATE}", lambda data: dict(json.loads(data)["files"]))
    if any("/" in name or not is_inside(name) for name in files):
        raise JobError(f"{folder}/{STATE}: names a file outside of its checkpoint; do not use this folder")
    for name, sha256 in files.items():
        check_hash(storage, f"{folder}/{name}", sha256, source=f"{folder}/{STATE}", remedy=remedy)
    return [MARK, STATE, *files]


def _check_readable(storage: Storage, names: Iterable[str]) -> None:
    """Where no hashes are: that the small files are what their names say."""
    readers: dict[str, Callable[[bytes], Any]] = {
        ".json": json.loads,
        ".yaml": yaml.safe_load,
        ".jsonl": lambda data: list(json_lines(data.splitlines(keepends=True))),
    }
    for name in _kept(names):
        for ending, read in readers.items():
            if name.endswith(ending) and not _CHECKPOINT.fullmatch(name):
                _parsed(storage, name, read)


def _parsed(storage: Storage, name: str, read: Callable[[bytes], Any]) -> Any:
    try:
        return read(storage.read_bytes(name))
    except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError, RecursionError):
        raise JobError(f"{name}: damaged, it cannot be read; {_COPY}") from None


def _covered(names: Iterable[str]) -> list[str]:
    """The files whose hashes are kept."""
    return [name for name in _kept(names) if not _CHECKPOINT.fullmatch(name) or name.endswith(f"/{MARK}")]


def _kept(names: Iterable[str]) -> list[str]:
    """The files that are part of a run or a sweep: neither locks, nor half-written, nor of other programs."""
    found = []
    for name in names:
        first, last = name.split("/")[0], name.rsplit("/", 1)[-1]
        if first not in _NOT_OURS and name != HASHES and not _LOCK.fullmatch(last) and "/_tmp_" not in f"/{name}":
            found.append(name)
    return found
