"""The step between runs and shards: how documents are split, the vocabulary, and which shard is built of what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.documents.extract import PageCounters
from tokenfree.preprocess.documents.failures import first_failure
from tokenfree.preprocess.job.near_duplicates.join import find_near_duplicates
from tokenfree.preprocess.job.preprocess_job import PLAN, TASKS, PreprocessJob, required
from tokenfree.preprocess.job.read_step import all_runs, failures_name
from tokenfree.preprocess.job.step_errors import notes_errors
from tokenfree.preprocess.job.vocabulary_step import make_vocabulary
from tokenfree.preprocess.shards.build import shard_fingerprint
from tokenfree.preprocess.shards.partitioning import Partitioning
from tokenfree.preprocess.shards.plan import (
    ShardTask,
    decide_partitioning,
    gone_without_shard,
    partitions,
    plan_shards,
)
from tokenfree.preprocess.shards.sorted_runs import SortedRun

# By the reason for which a document was dropped: the key that says so.
KEYS = {
    "too_short": "filters.min_characters",
    "too_long": "filters.max_characters",
    "other_language": "filters.languages",
    "other_script": "filters.scripts",
    "too_many_symbols": "filters.max_symbol_share",
    "repeated_lines": "filters.max_repeated_line_share",
}


@dataclass(frozen=True)
class PlannedShard:
    """A shard that is to be built: its path in the output directory, and what decides its bytes."""

    path: str
    fingerprint: str


@dataclass(frozen=True)
class Plan:
    """`_work/plan.json`: the shards in their order, and what was decided once for all of them."""

    partitioning: Partitioning
    vocabulary_sha256: str | None
    shards: tuple[PlannedShard, ...]
    duplicates: int = 0  # these and the near-duplicates are in no shard, as so many documents are gone around them
    near_duplicates: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "partitioning": self.partitioning.to_json(),
            "vocabulary_sha256": self.vocabulary_sha256,
            "shards": [vars(shard) for shard in self.shards],
            "duplicates": self.duplicates,
            "near_duplicates": self.near_duplicates,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Plan:
        """The plan that `to_json` described."""
        shards = tuple(PlannedShard(**shard) for shard in values["shards"])
        rule = Partitioning.from_json(values["partitioning"])
        return cls(rule, values["vocabulary_sha256"], shards, values["duplicates"], values["near_duplicates"])


@notes_errors("plan")
def make_plan(job: PreprocessJob) -> int:
    """Split the documents of all runs, make the vocabulary, plan the shards; the number of shards.

    Raises:
        UserError: not one document came out of the inputs, or the settings of the vocabulary do not fit them.
        JobError: the run of a split is missing, or SentencePiece could not train the vocabulary.
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
        storage.write_json(_task_name(index), task.to_json())
    shards = tuple(PlannedShard(task.path, shard_fingerprint(job.fingerprint, sha256, task)) for task in tasks)
    beside = gone_without_shard(storage, runs, rule, documents, job.config)
    storage.write_json(PLAN, Plan(rule, sha256, shards, *beside).to_json())
    return len(tasks)


def find_plan(storage: Storage) -> Plan | None:
    """The plan, None while there is none."""
    values = storage.read_json(PLAN)
    return None if values is None else Plan.from_json(values)


def the_plan(storage: Storage) -> Plan:
    """The plan.

    Raises:
        JobError: there is none.
    """
    return Plan.from_json(required(storage, PLAN))


def shard_task(storage: Storage, index: int) -> ShardTask:
    """What shard number `index` of the plan is built of.

    Raises:
        JobError: it is gone.
    """
    return ShardTask.from_json(required(storage, _task_name(index)))


def _task_name(index: int) -> str:
    return f"{TASKS}/{index:05}.json"


def _no_documents(storage: Storage, runs: Sequence[SortedRun]) -> str:
    total = PageCounters()
    for run in runs:
        total.add(run.counters)
    reasons = {**total.filtered, **total.failed, "redirect": total.redirects, "other_namespace": total.other_namespaces}
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()) if count)
    failed = next((run for run in runs if run.failures), None)
    first = f", the first that failed is {first_failure(storage, failures_name(failed.name))}" if failed else ""
    loosened = next((KEYS[reason] for reason, _ in total.filtered.most_common() if reason in KEYS), None)
    remedy = f"loosen {loosened}" if loosened else "check what the inputs hold"
    pages = f"{total.pages} page was read" if total.pages == 1 else f"{total.pages} pages were read"
    return f"the inputs hold no document: {pages} ({told or 'none'}){first}; {remedy}"
