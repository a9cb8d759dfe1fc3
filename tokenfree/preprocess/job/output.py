"""The output directory of a job: take it at the start, release it if it can have no output, tidy it at the end."""

import contextlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenfree.core.errors import UserError
from tokenfree.core.files import TEMPORARY, AnyPath
from tokenfree.core.locks import LOCK, claimed
from tokenfree.core.settings_values import fingerprint
from tokenfree.core.storage import Storage
from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.preprocess.dataset.completion import SUCCESS, mark_success
from tokenfree.preprocess.dataset.manifest import NEAR_DUPLICATE_PAIRS
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.job.inputs import FORMAT, finished, identity, read_given_model, reading_identity
from tokenfree.preprocess.job.job import (
    ATTEMPT,
    JOB,
    MERGED,
    MERGING,
    PLAN,
    SHARDS,
    TEMPLATES,
    VOCABULARY_SIDECAR,
    WORK,
    PreprocessJob,
    find_merging,
    read_job_identity,
    write_lines,
)
from tokenfree.preprocess.job.read import input_line, own_steps
from tokenfree.preprocess.records import InputSplit
from tokenfree.preprocess.sources.splits import Inputs, find_inputs, plan_splits, plan_template_splits

# Files that a job may have written by the time it finds that it can have no output.
MADE_EARLY = ("vocabulary", "train", "validation", "failures", "dropped", NEAR_DUPLICATE_PAIRS)


def begin(
    storage: Storage,
    job_identity: Mapping[str, Any],
    config: PreprocessConfig,
    inputs: Inputs,
    splits: Sequence[InputSplit],
    notice: Callable[[str], None] = print,
    number: str | None = None,
) -> PreprocessJob:
    """Take the directory for the job whose identity is `job_identity`, and record what it reads.

    `number` is what `claimed` yielded. `notice` receives a line about earlier work that cannot be reused.
    Raises UserError if the directory cannot be written to, or the given SentencePiece model is invalid.
    """
    template_splits = plan_template_splits(config, inputs, splits)
    if config.vocabulary.model is not None:
        # Fails before the job reads for hours.
        Vocabulary.load(read_given_model(config.vocabulary.model))
    _take(storage, job_identity, notice)
    attempt = uuid.uuid4().hex
    # From now on no earlier attempt can write.
    storage.write_json(ATTEMPT, {"id": attempt})
    # An earlier attempt may have cut its inputs differently; planning again is fast.
    storage.remove(PLAN)
    read = {path for split in (*splits, *template_splits) for path in split.inputs}
    job = PreprocessJob(
        url=storage.url,
        config=config,
        fingerprint=fingerprint(dict(job_identity)),
        reading_fingerprint=fingerprint(reading_identity(job_identity)),
        splits=write_lines(storage, f"{WORK}/splits", (split.to_json() for split in splits)),
        inputs=write_lines(
            storage, f"{WORK}/inputs", (input_line(file) for file in inputs if file.path in read)
        ),
        templates=write_lines(storage, TEMPLATES, (split.to_json() for split in template_splits))
        if template_splits
        else "",
        number=number,
        attempt=attempt,
    )
    # Of inputs that were cut differently.
    if find_merging(job) is None:
        storage.remove(MERGING)
        storage.remove(MERGED)
    return job


def begin_alone(
    config: PreprocessConfig, output: AnyPath, *, reads: bool = True, trust_code: bool = False
) -> PreprocessJob:
    """Begin the job of `config` for a custom pipeline, without a lock: a later attempt ends an earlier one.

    It has no input splits if it does not read. Raises UserError if the inputs are bad, or `output` is
    complete, not writable or of another job.
    """
    storage = Storage.at(output)
    own_steps(config, trust_code=trust_code)
    inputs = find_inputs(config, storage.url) if reads else Inputs((), (), ())
    job_identity = identity(config, inputs)
    if finished(storage, job_identity, config, inputs) is not None:
        raise UserError(f"{output}: already complete; give another directory")
    return begin(storage, job_identity, config, inputs, plan_splits(config, inputs) if reads else ())


def _take(storage: Storage, job_identity: Mapping[str, Any], notice: Callable[[str], None]) -> None:
    """Mark the directory as that of the job.

    Remove what a killed job left half-written, and what is now useless. The mark is removed last, so that the
    directory stays identifiable if the command is killed here.
    """
    storage.remove(TEMPORARY)
    recorded_job = read_job_identity(storage)
    if recorded_job == job_identity:
        return
    if recorded_job is not None and recorded_job.get("format") != FORMAT:
        notice(
            f"{storage.url}: was begun by an earlier version of tokenfree, whose work cannot be used. It starts again"
        )
        for name in (*MADE_EARLY, WORK):
            storage.remove(name)
    elif recorded_job is not None:
        changed = {entry["path"] for entry in job_identity["inputs"] if entry not in recorded_job["inputs"]}
        notice(f"{storage.url}: changed since the job was begun, so read again: {', '.join(sorted(changed))}")
        for name in (*MADE_EARLY, SHARDS, VOCABULARY_SIDECAR):
            storage.remove(name)
    storage.write_json(JOB, dict(job_identity))


def release(storage: Storage) -> None:
    """Release the directory for another config, after this one failed before any shard was built.

    Runs are kept.
    """
    for name in (*MADE_EARLY, JOB):
        storage.remove(name)


def is_tidy(storage: Storage) -> bool:
    return storage.size(SUCCESS) is not None and not {TEMPORARY, WORK} & set(storage.names())


def remove_left_lock(storage: Storage) -> None:
    """Remove the lock file of a job that was killed at its very end, unless the lock is held or the disk read-only."""
    if storage.is_local and LOCK in storage.names():
        with contextlib.suppress(UserError), claimed(storage):
            pass


def tidy(storage: Storage) -> None:
    """Remove what only a running job needs from a directory whose manifest is written, and mark its success."""
    if storage.size(SUCCESS) is None:
        job = storage.read_json(JOB) or {}
        mark_success(storage, job["inputs"] if job.get("format") == FORMAT else ())
    for name in {WORK, TEMPORARY} & set(storage.names()):
        storage.remove(name)


def abandon(storage: Storage) -> None:
    for name in (*MADE_EARLY, TEMPORARY, WORK):
        storage.remove(name)
    storage.remove_if_empty()
