"""The output directory of a job: taken when it begins, given back where it can have no output, tidied at its end."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenfree.core.errors import UserError
from tokenfree.core.files import TEMPORARY
from tokenfree.core.locks import LOCK, claimed
from tokenfree.core.settings import fingerprint
from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.manifest import NEAR_DUPLICATE_PAIRS, SUCCESS, mark_success
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.job.inputs import FORMAT, read_given_model, reading_identity
from tokenfree.preprocess.job.job import (
    ATTEMPT,
    JOB,
    PLAN,
    SHARDS,
    VOCABULARY_SIDECAR,
    WORK,
    PreprocessJob,
    begun_job,
    write_lines,
)
from tokenfree.preprocess.job.read import input_line
from tokenfree.preprocess.records import InputSplit
from tokenfree.preprocess.sources.splits import Inputs

# What a job may have written when it finds that it can have no output.
MADE_EARLY = ("vocabulary", "train", "validation", "failures", NEAR_DUPLICATE_PAIRS)


def begin(
    storage: Storage,
    wanted: Mapping[str, Any],
    config: PreprocessConfig,
    inputs: Inputs,
    splits: Sequence[InputSplit],
    notice: Callable[[str], None] = print,
    number: str | None = None,
) -> PreprocessJob:
    """Take the directory for the job whose identity is `wanted`, and write down what it reads.

    `number` is what `claimed` gave; `notice` gets a line for what cannot be reused of an earlier attempt.

    Raises:
        UserError: the directory cannot be written to, or the given SentencePiece model is none.
    """
    if config.vocabulary.model is not None:
        Vocabulary.load(read_given_model(config.vocabulary.model))  # before the job reads for hours
    _take(storage, wanted, notice)
    attempt = uuid.uuid4().hex
    storage.write_json(ATTEMPT, {"id": attempt})  # from now on no earlier attempt writes
    storage.remove(PLAN)  # of an earlier attempt that perhaps cut its inputs otherwise; it is soon made again
    read = {path for split in splits for path in split.inputs}
    reading = fingerprint(reading_identity(wanted))
    return PreprocessJob(
        url=storage.url,
        config=config,
        fingerprint=fingerprint(dict(wanted)),
        reading_fingerprint=reading,
        splits=write_lines(storage, f"{WORK}/splits", (split.to_json() for split in splits)),
        inputs=write_lines(storage, f"{WORK}/inputs", (input_line(file) for file in inputs if file.path in read)),
        number=number,
        attempt=attempt,
    )


def _take(storage: Storage, wanted: Mapping[str, Any], notice: Callable[[str], None]) -> None:
    """Mark the directory as that of the job; sweeps what a killed job left half-written, and what is of no use now.

    The mark is the last to go, so that whoever is killed here has still a directory that is known.
    """
    storage.remove(TEMPORARY)
    begun = begun_job(storage)
    if begun == wanted:
        return
    if begun is not None and begun.get("format") != FORMAT:
        notice(f"{storage.url}: was begun by an earlier version of tokenfree, whose work cannot be used: starts anew")
        for name in (*MADE_EARLY, WORK):
            storage.remove(name)
    elif begun is not None:
        changed = {entry["path"] for entry in wanted["inputs"] if entry not in begun["inputs"]}
        notice(f"{storage.url}: changed since the job was begun, so read again: {', '.join(sorted(changed))}")
        for name in (*MADE_EARLY, SHARDS, VOCABULARY_SIDECAR):
            storage.remove(name)
    storage.write_json(JOB, dict(wanted))


def release(storage: Storage) -> None:
    """Let another config take the directory: this one proved impossible before any shard was built. Runs are kept.

    Raises:
        UserError: a file may not be removed.
    """
    for name in (*MADE_EARLY, JOB):
        storage.remove(name)


def is_tidy(storage: Storage) -> bool:
    """Whether a directory whose manifest is written needs nothing more."""
    names = set(storage.names())
    return storage.size(SUCCESS) is not None and not names & {TEMPORARY, WORK}


def remove_left_lock(storage: Storage) -> None:
    """Remove the lock file of a job that was killed at its very end; one that is held stays, or on a disk that is only
    read.
    """
    if storage.is_local and LOCK in storage.names():
        with contextlib.suppress(UserError), claimed(storage):
            pass


def tidy(storage: Storage) -> None:
    """Remove what only a running job needs, and write the mark of success where it is missing; for a directory whose
    manifest is written.

    Raises:
        UserError: the directory cannot be written to.
    """
    if storage.size(SUCCESS) is None:
        job = storage.read_json(JOB) or {}
        mark_success(storage, job["inputs"] if job.get("format") == FORMAT else ())
    for name in {WORK, TEMPORARY} & set(storage.names()):
        storage.remove(name)


def abandon(storage: Storage) -> None:
    """Leave nothing of a job that can have no output.

    Raises:
        UserError: a file may not be removed.
    """
    for name in (*MADE_EARLY, TEMPORARY, WORK):
        storage.remove(name)
    storage.remove_if_empty()
