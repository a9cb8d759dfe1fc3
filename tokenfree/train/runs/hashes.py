"""`hashes.json` of a finished run or sweep: the SHA-256 of its files, which readers and `tokenfree verify` check.

It is written after all other files of the folder, and includes a hash of itself. Locks and files of other
programs are left out.
"""

import contextlib
import json
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tokenfree.core.errors import JobError
from tokenfree.core.files import TEMPORARY
from tokenfree.core.locks import LOCK
from tokenfree.core.storage import Storage, retry_store
from tokenfree.core.stored_files import (
    HASHES,
    check_hashes,
    hashes_of,
    is_inside,
    record_hashes,
    recorded_hashes,
    refuse_later,
)
from tokenfree.core.yaml_text import parse_yaml
from tokenfree.train.runs.checkpoints import MARK, STATE, mark_of
from tokenfree.train.runs.formats import CONFIG_NAME, RESULT_NAME, RUN_FORMAT, SWEEP_FORMAT

TABLE = "sweep.csv"  # last file that a sweep writes
_CONFIGS = {CONFIG_NAME: RUN_FORMAT, "sweep.yaml": SWEEP_FORMAT}
# Folders of locks, partial files and other programs.
_NOT_HASHED = (LOCK, TEMPORARY, "ray", "wandb", "mlruns")
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
    others = ("checkpoints", "metrics.jsonl", "journal.jsonl")
    return not {HASHES, RESULT_NAME, TABLE, *_CONFIGS, *others}.isdisjoint(names)


def write_hashes(folder: str) -> None:
    storage = Storage.at(folder)
    files = retry_store(storage, lambda: _hashes(storage))
    retry_store(storage, lambda: record_hashes(storage, files))


def _hashes(storage: Storage) -> dict[str, str]:
    names = _kept(storage.find())
    states = [name for name in names if _CHECKPOINT.fullmatch(name) and name.endswith(f"/{STATE}")]
    files = hashes_of(
        storage, (name for name in names if not _CHECKPOINT.fullmatch(name) or name.endswith(MARK))
    )
    # The files of a checkpoint were hashed when they were written.
    for state in states:
        folder = state.removesuffix(STATE)
        # A damaged checkpoint that training did not need.
        with contextlib.suppress(JobError):
            files |= {f"{folder}{file}": sha256 for file, sha256 in _files_of(storage, state).items()}
    return files | hashes_of(storage, states)


def remove_hashes(folder: str) -> None:
    Storage.at(folder).remove(HASHES)


def verify_folder(folder: str) -> VerifiedFolder:
    """Check every hash of a run or sweep; if it is still training, only its checkpoints.

    Raises JobError, which names the first invalid file, and UserError if the folder has a later format.
    """
    storage = Storage.at(folder)
    names = storage.find()
    for name in _CONFIGS.keys() & names:
        refuse_later(_parsed(storage, name, parse_yaml), _CONFIGS[name], f"{storage.url}/{name}")
    complete = not {HASHES, RESULT_NAME, TABLE}.isdisjoint(names)
    hashes = recorded_hashes(storage)
    if complete and not hashes:
        raise JobError(f"{HASHES}: missing; {_COPY}, or {_AGAIN}")
    check_hashes(storage, hashes, source=HASHES, action=_COPY)
    checkpoints = sorted({match[1] for name in _kept(names) if (match := _CHECKPOINT.fullmatch(name))})
    covered = {HASHES, *hashes}
    for checkpoint in checkpoints:
        if f"{checkpoint}/{STATE}" not in covered:
            covered |= {f"{checkpoint}/{file}" for file in _checked_checkpoint(storage, checkpoint)}
    unhashed = tuple(name for name in _kept(names) if name not in covered)
    return VerifiedFolder(complete, tuple(checkpoints), unhashed)


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
    files = _files_of(storage, f"{folder}/{STATE}")
    paths = {f"{folder}/{name}": sha256 for name, sha256 in files.items()}
    check_hashes(storage, paths, source=f"{folder}/{STATE}", action=action)
    return [MARK, STATE, *files]


def _files_of(storage: Storage, state: str) -> dict[str, str]:
    files = _parsed(storage, state, lambda data: dict(json.loads(data)["files"]))
    if any("/" in name or not is_inside(name) for name in files):
        raise JobError(f"{state}: names a file outside of its checkpoint; do not use this folder")
    return files


def _parsed(storage: Storage, name: str, read: Callable[[bytes], Any]) -> Any:
    try:
        return read(storage.read_bytes(name))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise JobError(f"{name}: damaged, it cannot be read; {_COPY}") from None


def _kept(names: Iterable[str]) -> list[str]:
    return [
        name
        for name in names
        if name != HASHES
        and name.split("/")[0] not in _NOT_HASHED
        and "/_tmp_" not in f"/{name}"
        and not _LOCK.fullmatch(name.rsplit("/", 1)[-1])
    ]
