"""Shards of an earlier job that have the documents of one of this job: they are taken as they are."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from tokenfree.preprocess.common.settings import fingerprint
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.common.stored.file_hashes import hash_of, read_sealed, write_sealed
from tokenfree.preprocess.common.stored.stored_files import checked
from tokenfree.preprocess.job.preprocess_job import JOB, SHARDS, PreprocessJob, required
from tokenfree.preprocess.job.reuse.links import link
from tokenfree.preprocess.shards.build import BuiltShard
from tokenfree.preprocess.shards.partitioning import DATASET_SPLITS
from tokenfree.preprocess.shards.plan import ShardTask


def documents_fingerprint(job: PreprocessJob, task: ShardTask, vocabulary_sha256: str | None) -> str:
    """Changes with all that decides the rows of a shard, and not with what else the job reads; empty where that is not
    told by the shard's runs, as with near-duplicates, which go because of documents of other shards."""
    if task.documents.gone is not None:
        return ""
    made = _making(job.url, job.fingerprint)
    batches = [dataclasses.asdict(batch) for batch in task.documents.batches]
    return fingerprint({**made, "vocabulary": vocabulary_sha256, "ranges": task.documents.ranges, "batches": batches})


@functools.lru_cache(maxsize=4)
def _making(url: str, _: str) -> dict[str, Any]:
    """Settings and versions of the job."""
    identity = required(Storage(url), JOB)
    return {"config": identity["config"], "versions": identity["versions"], "format": identity["format"]}


def take_shard(job: PreprocessJob, documents: str, path: str, shard_fingerprint: str, sidecar: str) -> bool:
    """Commit the shard of the earlier job with these documents under `path`, if there is one and it is whole.

    Raises:
        UserError: the output directory cannot be written to.
    """
    storage, known = job.storage, _known(job.reuse).get(documents) if documents else None
    if known is None:
        return False
    kept = Storage(job.reuse)
    if hash_of(kept, known.entry.path) != known.entry.sha256:
        return False
    storage.remove(path)
    link(kept, known.entry.path, storage, path)
    entry = dataclasses.replace(known.entry, path=path)
    built = dataclasses.replace(known, entry=entry, fingerprint=shard_fingerprint)
    write_sealed(storage, sidecar, dataclasses.asdict(built))
    return True


@functools.lru_cache(maxsize=1)
def _known(url: str) -> dict[str, BuiltShard]:
    storage, found = Storage(url), {}
    for name in [f"{SHARDS}/{split}/{name}" for split in DATASET_SPLITS for name in storage.names(f"{SHARDS}/{split}")]:
        try:
            shard: BuiltShard = checked(BuiltShard, read_sealed(storage, name))
        except ValueError:
            continue
        found[shard.documents] = shard
    return found
