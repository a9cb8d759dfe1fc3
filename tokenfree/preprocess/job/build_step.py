"""The step after the plan: build one shard, and the shards of the whole plan."""

from __future__ import annotations

from tokenfree.preprocess.common.errors import JobError
from tokenfree.preprocess.common.stored.file_hashes import hash_of
from tokenfree.preprocess.job.plan_step import shard_task, the_plan
from tokenfree.preprocess.job.preprocess_job import SHARDS, PreprocessJob
from tokenfree.preprocess.job.step_errors import notes_errors
from tokenfree.preprocess.job.vocabulary_step import made_vocabulary
from tokenfree.preprocess.shards.build import BuiltShard, build_shard, find_shard
from tokenfree.preprocess.shards.partitioning import DATASET_SPLITS


@notes_errors("build")
def build_one_shard(job: PreprocessJob, index: int) -> str:
    """Build one shard of the plan, unless an earlier attempt did; its path.

    Raises:
        UserError: the output directory cannot be written to.
        JobError: plan, task or vocabulary are gone, or a document gave no window.
    """
    storage, plan = job.storage, the_plan(job.storage)
    planned, sidecar = plan.shards[index], shard_sidecar(plan.shards[index].path)
    built = find_shard(storage, sidecar, planned.fingerprint)
    if built is not None and hash_of(storage, planned.path) == built.entry.sha256:
        return planned.path
    task = shard_task(storage, index)
    vocabulary = made_vocabulary(job, plan.vocabulary_sha256) if plan.vocabulary_sha256 else None
    build_shard(storage, task, job.config, vocabulary, sidecar=sidecar, shard_fingerprint=planned.fingerprint)
    return planned.path


def all_shards(job: PreprocessJob) -> list[BuiltShard]:
    """The committed shards of the plan, in its order.

    Raises:
        JobError: the plan or a shard is missing.
    """
    shards = []
    for planned in the_plan(job.storage).shards:
        shard = find_shard(job.storage, shard_sidecar(planned.path), planned.fingerprint)
        if shard is None:
            raise JobError(f"{job.url}/{planned.path}: the shard is gone; run the job again")
        shards.append(shard)
    return shards


def num_shards(job: PreprocessJob) -> int:
    """How many shards are committed."""
    names = [name for split in DATASET_SPLITS for name in job.storage.names(f"{SHARDS}/{split}")]
    return sum(name.endswith(".json") for name in names)


def shard_sidecar(path: str) -> str:
    """The name of the sidecar of the shard `path`."""
    return f"{SHARDS}/{path}.json"
