"""The steps after reading: train the vocabulary, plan the shards, build each shard."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import checked, hash_of, hashes_of, read_sealed, write_sealed
from tokenfree.preprocess.dataset.manifest import MODEL, VOCABULARY
from tokenfree.preprocess.documents.extract import PageCounters, first_failure
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.features.vocabulary_process import train_apart
from tokenfree.preprocess.job.inputs import read_given_model
from tokenfree.preprocess.job.job import (
    PLAN,
    SHARDS,
    TASKS,
    VOCABULARY_SIDECAR,
    PreprocessJob,
    notes_errors,
    required,
)
from tokenfree.preprocess.job.near_duplicates import find_near_duplicates
from tokenfree.preprocess.job.read import all_runs, failures_name
from tokenfree.preprocess.records import SUBWORD_COLUMNS
from tokenfree.preprocess.shards.build import BuiltShard, build_shard, find_shard, shard_fingerprint
from tokenfree.preprocess.shards.plan import (
    DocumentSet,
    ShardTask,
    decide_partitioning,
    gone_without_shard,
    partitions,
    plan_shards,
    sample_size,
    sample_texts,
)
from tokenfree.preprocess.shards.sorted_runs import DATASET_SPLITS, Partition, Partitioning, SortedRun


def make_vocabulary(job: PreprocessJob, documents: Mapping[Partition, DocumentSet]) -> str | None:
    """Return the SHA-256 of the model, trained or copied unless an earlier attempt did, or None if no column needs one.

    Raises UserError if the given model cannot be read or `vocabulary.size` does not fit, and JobError if training
    fails.
    """
    if not SUBWORD_COLUMNS & set(job.config.columns):
        return None
    storage, config = job.storage, job.config.vocabulary
    done = read_sealed(storage, VOCABULARY_SIDECAR)
    if done is not None and done["job"] == job.fingerprint and hashes_of(storage, done["files"]) == done["files"]:
        return done["files"][MODEL]
    if config.model is not None:
        model = read_given_model(config.model)
    else:
        texts, size = sample_texts(storage, documents, config), sample_size(documents, config)
        model = train_apart(texts, config, job.config.seed, size)
    vocabulary = Vocabulary.load(model)
    lines = "".join(f"{piece}\n" for piece in vocabulary.pieces())
    files = {
        name: storage.write_bytes(name, data).sha256 for name, data in ((VOCABULARY, lines.encode()), (MODEL, model))
    }
    write_sealed(storage, VOCABULARY_SIDECAR, {"job": job.fingerprint, "files": files, "size": vocabulary.size})
    return files[MODEL]


@functools.lru_cache(maxsize=1)
def made_vocabulary(url: str, sha256: str) -> Vocabulary:
    """Return the vocabulary that the job made, loaded once per process. Raises JobError if it has changed."""
    model = Storage(url).read_bytes(MODEL)
    if hashlib.sha256(model).hexdigest() != sha256:
        raise JobError(f"{url}/{MODEL}: changed while the job was running; run the job again")
    return Vocabulary.load(model)


@dataclass(frozen=True)
class PlannedShard:
    """A shard to build: its path in the output directory, and the fingerprint of what decides its bytes."""

    path: str
    fingerprint: str


@dataclass(frozen=True)
class Plan:
    """`_work/plan.json`: the shards in order, and the decisions that hold for all of them."""

    partitioning: Partitioning
    vocabulary_sha256: str | None
    shards: tuple[PlannedShard, ...]
    duplicates: int = 0  # in ranges without any shard, because none of their documents stays
    near_duplicates: int = 0


@notes_errors("plan")
def make_plan(job: PreprocessJob, _: int = 0) -> int:
    """Split the documents of all runs, make the vocabulary and plan the shards. Return the number of shards.

    Raises UserError if there is no document, and the errors of `make_vocabulary` and `all_runs`.
    """
    storage, runs = job.storage, all_runs(job)
    if not any(run.file.batches for run in runs):
        raise UserError(_no_documents(storage, runs))
    near = find_near_duplicates(job, runs)
    extremes = None if near is None else (near.lowest, near.highest)
    rule = decide_partitioning(runs, job.config.validation_fraction, extremes)
    documents = partitions(runs, rule, None if near is None else near.file)
    sha256 = make_vocabulary(job, documents)
    tasks = plan_shards(storage, documents, job.config)
    for index, task in enumerate(tasks):
        storage.write_json(_task_name(index), asdict(task))
    shards = tuple(PlannedShard(task.path, shard_fingerprint(job.fingerprint, sha256, task)) for task in tasks)
    beside = gone_without_shard(storage, runs, rule, documents, job.config)
    storage.write_json(PLAN, asdict(Plan(rule, sha256, shards, *beside)))
    return len(tasks)


def find_plan(storage: Storage) -> Plan | None:
    values = storage.read_json(PLAN)
    return None if values is None else checked(Plan, values)


def the_plan(storage: Storage) -> Plan:
    """Return the plan. Raises JobError if there is none."""
    return checked(Plan, required(storage, PLAN))


def num_planned(job: PreprocessJob) -> int:
    return len(the_plan(job.storage).shards)


def _task_name(index: int) -> str:
    return f"{TASKS}/{index:05}.json"


def _no_documents(storage: Storage, runs: Sequence[SortedRun]) -> str:
    total = PageCounters()
    for run in runs:
        total.add(run.counters)
    reasons = {**total.filtered, **total.failed, "redirect": total.redirects, "other_namespace": total.other_namespaces}
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()) if count)
    failed = next((run for run in runs if run.failures), None)
    first = f", the first that failed is {first_failure(storage, failures_name(failed.name))}" if failed else ""
    pages = f"{total.pages} pages were read ({counts or 'none'}){first}"
    return f"the inputs hold no document: {pages}; check the inputs, or loosen the keys under filters"


@notes_errors("build")
def build_one_shard(job: PreprocessJob, index: int) -> str:
    """Build one shard of the plan, unless an earlier attempt did, and return its path."""
    storage, plan = job.storage, the_plan(job.storage)
    planned, sidecar = plan.shards[index], shard_sidecar(plan.shards[index].path)
    built = find_shard(storage, sidecar, planned.fingerprint)
    if built is not None and hash_of(storage, planned.path) == built.entry.sha256:
        return planned.path
    task: ShardTask = checked(ShardTask, required(storage, _task_name(index)))
    vocabulary = made_vocabulary(job.url, plan.vocabulary_sha256) if plan.vocabulary_sha256 else None
    build_shard(storage, task, job.config, vocabulary, sidecar=sidecar, shard_fingerprint=planned.fingerprint)
    return planned.path


def all_shards(job: PreprocessJob) -> list[BuiltShard]:
    """Return the committed shards of the plan, in its order. Raises JobError if the plan or a shard is missing."""
    shards = []
    for planned in the_plan(job.storage).shards:
        shard = find_shard(job.storage, shard_sidecar(planned.path), planned.fingerprint)
        if shard is None:
            raise JobError(f"{job.url}/{planned.path}: the shard is gone; run the job again")
        shards.append(shard)
    return shards


def num_shards(job: PreprocessJob) -> int:
    names = [name for split in DATASET_SPLITS for name in job.storage.names(f"{SHARDS}/{split}")]
    return sum(name.endswith(".json") for name in names)


def shard_sidecar(path: str) -> str:
    return f"{SHARDS}/{path}.json"
