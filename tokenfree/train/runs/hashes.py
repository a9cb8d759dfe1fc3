"""`hashes.json` of a finished run or sweep: the SHA-256 of its files, for `tokenfree verify`.

It is written after all other files of the folder, and includes a hash of itself. For a checkpoint it has the hash of
the commit mark, which covers the other files (see checkpoints.py). Locks and files of other programs are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tokenfree.core.errors import JobError
from tokenfree.core.files import TEMPORARY
from tokenfree.core.locks import LOCK
from tokenfree.core.storage import Storage, retry_store
from tokenfree.core.stored_files import check_hash, hashes_of, is_inside, read_sealed, refuse_later, write_sealed
from tokenfree.train.runs.checkpoints import MARK, STATE, mark_of
from tokenfree.train.runs.config import CONFIG_NAME, RUN_FORMAT, SWEEP_FORMAT

HASHES = "hashes.json"
RESULT, TABLE = "result.json", "sweep.csv"  # last files that a run and a sweep write
_CONFIGS = {CONFIG_NAME: RUN_FORMAT, "sweep.yaml": SWEEP_FORMAT}
_NOT_HASHED = (LOCK, TEMPORARY, "ray", "wandb", "mlruns")  # folders of locks, partial files and other programs
_CHECKPOINT = re.compile(r"((?:.+/)?checkpoints/step_\d{8,})/[^/]+")
_LOCK = re.compile(r"lock(\.\w+)?")
_COPY = "copy the folder again"
_AGAIN = "give its command again, which writes this file"


@dataclass(frozen=True)
class VerifiedFolder:
    complete: bool  # whether it has ended
    checkpoints: tuple[str, ...]  # folders, sorted
    unhashed: tuple[str, ...]  # files that no hash covers


def is_results_folder(names: Collection[str]) -> bool:
    """Return True if a folder with these file names is a run or a sweep, even if some of its files are missing."""
    return not {HASHES, RESULT, TABLE, *_CONFIGS, "checkpoints", "metrics.jsonl", "journal.jsonl"}.isdisjoint(names)


def write_hashes(folder: str) -> None:
    storage = Storage.at(folder)
    files = retry_store(storage, lambda: hashes_of(storage, _covered(storage.find())))
    retry_store(storage, lambda: _write(storage, files))


def rewritten(folder: str, names: Iterable[str] = ()) -> None:
    """Update the hashes of rewritten files of an ended run or sweep, or write all hashes if there are none yet.

    The folder of an earlier version, which wrote no hashes, gets none.
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
        storage.remove(TEMPORARY)  # the folder in which the temporary file was written


def remove_hashes(folder: str) -> None:
    Storage.at(folder).remove(HASHES)


def verify_folder(folder: str) -> VerifiedFolder:
    """Check every hash of a run or sweep; if it is still training, only its checkpoints.

    Raises JobError, which names the first invalid file, and UserError if the folder has a later format.
    """
    storage = Storage.at(folder)
    names = storage.find()
    for name in _CONFIGS.keys() & names:
        refuse_later(_parsed(storage, name, yaml.safe_load), _CONFIGS[name], f"{storage.url}/{name}")
    complete = RESULT in names or TABLE in names
    known = _known_hashes(storage, complete)
    for name, sha256 in known.items():
        check_hash(storage, name, sha256, source=HASHES, action=_COPY)
    checkpoints = sorted({match[1] for name in _kept(names) if (match := _CHECKPOINT.fullmatch(name))})
    covered = {HASHES, *known}
    for checkpoint in checkpoints:
        covered |= {f"{checkpoint}/{file}" for file in _checked_checkpoint(storage, checkpoint)}
    unhashed = tuple(name for name in _kept(names) if name not in covered)
    return VerifiedFolder(complete, tuple(checkpoints), unhashed)


def _known_hashes(storage: Storage, complete: bool) -> dict[str, str]:
    found = read_sealed(storage, HASHES)
    if found is not None and all(map(is_inside, found["files"])):
        return found["files"]
    if storage.size(HASHES) is not None:
        raise JobError(f"{HASHES}: damaged; {_COPY}")
    if complete and _is_to_have_hashes(storage):
        raise JobError(f"{HASHES}: missing; {_COPY}, or {_AGAIN}")
    return {}


def _is_to_have_hashes(storage: Storage) -> bool:
    for name in _CONFIGS:
        if storage.size(name) is not None:
            config = _parsed(storage, name, lambda data: dict(yaml.safe_load(data)))
            return bool((config.get("attempts") or [{}])[-1].get("hashes"))
    return False


def _checked_checkpoint(storage: Storage, folder: str) -> list[str]:
    action = f"{_COPY}; training resumes from the checkpoint before it"
    data = {}
    for name in (MARK, STATE):
        try:
            data[name] = storage.read_bytes(f"{folder}/{name}")
        except FileNotFoundError:
            raise JobError(f"{folder}/{name}: missing; {action}") from None
    if data[MARK] != mark_of(data[STATE]):
        raise JobError(f"{folder}/{STATE}: damaged, it is not what {MARK} says; {action}")
    files = _parsed(storage, f"{folder}/{STATE}", lambda data: dict(json.loads(data)["files"]))
    if any("/" in name or not is_inside(name) for name in files):
        raise JobError(f"{folder}/{STATE}: names a file outside of its checkpoint; do not use this folder")
    for name, sha256 in files.items():
        check_hash(storage, f"{folder}/{name}", sha256, source=f"{folder}/{STATE}", action=action)
    return [MARK, STATE, *files]


def _parsed(storage: Storage, name: str, read: Callable[[bytes], Any]) -> Any:
    try:
        return read(storage.read_bytes(name))
    except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError, RecursionError):
        raise JobError(f"{name}: damaged, it cannot be read; {_COPY}") from None


def _covered(names: Iterable[str]) -> list[str]:
    return [name for name in _kept(names) if not _CHECKPOINT.fullmatch(name) or name.endswith(f"/{MARK}")]


def _kept(names: Iterable[str]) -> list[str]:
    found = []
    for name in names:
        first, last = name.split("/")[0], name.rsplit("/", 1)[-1]
        if first not in _NOT_HASHED and name != HASHES and not _LOCK.fullmatch(last) and "/_tmp_" not in f"/{name}":
            found.append(name)
    return found
