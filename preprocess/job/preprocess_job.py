"""The steps of a preprocessing job as plain functions, and where its parts lie.

The steps are called by the graph in `pipelines`, each on any worker and as often as a runner likes: a step whose
sidecar is valid does nothing, and any other writes the same bytes as before.

    _work/job.json            what decides the content: config, inputs, versions
    _work/splits-*.jsonl      the input splits, one a line
    _work/runs/*.arrow .json .failures.jsonl
    _work/plan.json  tasks/*.json  shards/*.json (sidecars of the shards, which lie where they belong)
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from preprocess.config import PreprocessConfig
from preprocess.errors import JobError, UserError
from preprocess.extract import FailedPage, PageCounters, extract
from preprocess.failures import first_failure, write_failures
from preprocess.ownership import WORK, given_model, reading_identity, take
from preprocess.plan import SPLITS, ShardTask, batches_by_place, moved_key, plan_shards
from preprocess.runs import Run, commit_run, find_run, run_name, write_documents
from preprocess.sample import sample_texts
from preprocess.settings import fingerprint
from preprocess.shards import BuiltShard, build_shard, find_shard, shard_fingerprint
from preprocess.sources import Split, read_split
from preprocess.storage import Storage
from preprocess.vocabulary import Vocabulary, train_vocabulary

PLAN = f"{WORK}/plan.json"
VOCABULARY_SIDECAR = f"{WORK}/vocabulary.json"
RUNS, TASKS, SHARDS = f"{WORK}/runs", f"{WORK}/tasks", f"{WORK}/shards"
MODEL, VOCABULARY = "vocabulary/subwords.model", "vocabulary/subwords.vocab"
SUBWORD_COLUMNS = {"subword_ids", "subword_starts", "subword_ends"}


@dataclass(frozen=True)
class Job:
    """What every worker needs to know; small, and pickled with each step."""

    url: str
    config: PreprocessConfig
    fingerprint: str  # of all that decides the shards
    reading_fingerprint: str  # of all that decides the runs
    splits: str  # name of the file of input splits

    @property
    def storage(self) -> Storage:
        """The output directory."""
        return Storage(self.url)


def begin(storage: Storage, wanted: Mapping[str, Any], config: PreprocessConfig, splits: Sequence[Split]) -> Job:
    """Take the directory for the job whose identity is `wanted`, and write down its splits."""
    take(storage, wanted)
    storage.remove(PLAN)  # of an earlier attempt that perhaps cut its inputs otherwise; it is soon made again
    lines = "".join(sorted(split.to_json() + "\n" for split in splits)).encode()
    name = f"{WORK}/splits-{hashlib.blake2b(lines, digest_size=8).hexdigest()}.jsonl"
    storage.write_bytes(name, lines)
    return Job(storage.url, config, fingerprint(dict(wanted)), fingerprint(reading_identity(wanted)), name)


def num_splits(job: Job) -> int:
    """How many input splits there are."""
    return len(_split_lines(job.url, job.splits))


def run_names(job: Job) -> list[str]:
    """The names of the runs of all splits."""
    return [run_name(line) for line in _split_lines(job.url, job.splits)]


def read_one_split(job: Job, index: int) -> str:
    """Step 1: read and clean one input split into a run; its name."""
    line = _split_lines(job.url, job.splits)[index]
    storage, name, wanted = job.storage, run_name(line), _run_fingerprint(job, line)
    if find_run(storage, RUNS, name, wanted) is not None:
        return name
    split = Split.from_json(line)
    counters, documents, failed = PageCounters(), [], []
    for made in extract(read_split(split), job.config.namespaces, job.config.filters, counters):
        if isinstance(made, FailedPage):
            failed.append((made, split.names[0] if len(split.names) == 1 else made.failure.id.partition(":")[2]))
        else:
            documents.append(made)
    failures = write_failures(storage, failures_name(name), failed)
    file = write_documents(storage, RUNS, name, documents, job.config.validation_fraction)
    commit_run(storage, RUNS, Run(name, wanted, split.size, counters.to_json(), failures, file))
    return name


def make_plan(job: Job) -> int:
    """Steps 2 and 3: the vocabulary, then the plan of shards; the number of shards.

    Raises:
        UserError: not one document came out of the inputs.
    """
    storage, runs = job.storage, all_runs(job)
    if not any(run.file.batches for run in runs):
        raise UserError(_no_documents(storage, runs))
    sha256 = _make_vocabulary(job, runs)
    tasks = plan_shards(storage, runs, job.config)
    for index, task in enumerate(tasks):
        storage.write_json(f"{TASKS}/{index:05}.json", task.to_json())
    storage.write_json(PLAN, {"shards": [task.path for task in tasks], "vocabulary_sha256": sha256})
    return len(tasks)


def build_one_shard(job: Job, index: int) -> str:
    """Step 4: build one shard of the plan; its path."""
    storage = job.storage
    task = ShardTask.from_json(_required(storage, f"{TASKS}/{index:05}.json"))
    sha256 = _required(storage, PLAN)["vocabulary_sha256"]
    wanted, sidecar = shard_fingerprint(job.fingerprint, sha256, task), shard_sidecar(task.path)
    if find_shard(storage, sidecar, wanted) is None:
        vocabulary = _vocabulary(job.url, sha256) if sha256 else None
        build_shard(storage, task, job.config, vocabulary, sidecar=sidecar, shard_fingerprint=wanted)
    return task.path


def all_runs(job: Job) -> list[Run]:
    """The committed runs of all splits, in the order of the splits."""
    runs = []
    for line in _split_lines(job.url, job.splits):
        run = find_run(job.storage, RUNS, run_name(line), _run_fingerprint(job, line))
        if run is None:
            raise JobError(f"{job.url}: the run of input split {Split.from_json(line).id} is gone; run the job again")
        runs.append(run)
    return runs


def all_shards(job: Job) -> list[BuiltShard]:
    """The committed shards of the plan, in its order."""
    storage, plan = job.storage, _required(job.storage, PLAN)
    shards = []
    for index, path in enumerate(plan["shards"]):
        task = ShardTask.from_json(_required(storage, f"{TASKS}/{index:05}.json"))
        wanted = shard_fingerprint(job.fingerprint, plan["vocabulary_sha256"], task)
        shard = find_shard(storage, shard_sidecar(path), wanted)
        if shard is None:
            raise JobError(f"{job.url}/{path}: the shard is gone; run the job again")
        shards.append(shard)
    return shards


def failures_name(run: str) -> str:
    """The name of the file with the failures of a run."""
    return f"{RUNS}/{run}.failures.jsonl"


def num_runs(job: Job) -> int:
    """How many runs are committed."""
    return sum(name.endswith(".json") for name in job.storage.names(RUNS))


def num_shards(job: Job) -> int:
    """How many shards are committed."""
    return sum(name.endswith(".json") for split in SPLITS for name in job.storage.names(f"{SHARDS}/{split}"))


def has_documents(job: Job) -> bool:
    """False if all splits are read and not one document came out of them."""
    try:
        return any(run.file.batches for run in all_runs(job))
    except JobError:
        return True


def shard_sidecar(path: str) -> str:
    """The name of the sidecar of the shard `path`."""
    return f"{SHARDS}/{path}.json"


def _run_fingerprint(job: Job, line: str) -> str:
    return fingerprint({"job": job.reading_fingerprint, "split": line})


def _make_vocabulary(job: Job, runs: Sequence[Run]) -> str | None:
    """The SHA-256 of the model under `vocabulary/`, trained or copied unless an earlier attempt did."""
    if not SUBWORD_COLUMNS & set(job.config.columns):
        return None
    storage, sidecar = job.storage, VOCABULARY_SIDECAR
    done = storage.read_json(sidecar)
    if done is not None and done["job"] == job.fingerprint and storage.size(MODEL) == done["bytes"]:
        return done["sha256"]
    if job.config.vocabulary.model is not None:
        model = given_model(job.config.vocabulary.model)
    else:
        moved = moved_key(runs, job.config.validation_fraction)
        texts = sample_texts(storage, batches_by_place(runs), job.config.vocabulary, moved)
        model = train_vocabulary(texts, job.config.vocabulary, job.config.seed)
    vocabulary = Vocabulary.load(model)
    lines = "".join(f"{piece}\n" for piece in vocabulary.pieces())
    storage.write_bytes(VOCABULARY, lines.encode())
    new = storage.write_bytes(MODEL, model)
    made = {"job": job.fingerprint, "sha256": new.sha256, "bytes": new.size, "size": vocabulary.size}
    storage.write_json(sidecar, made)
    return new.sha256


def _no_documents(storage: Storage, runs: Sequence[Run]) -> str:
    total = PageCounters()
    for run in runs:
        total.add(run.counters)
    reasons = {**total.filtered, **total.failed, "redirect": total.redirects, "other_namespace": total.other_namespaces}
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()) if count)
    failed = next((run for run in runs if run.failures), None)
    first = f", the first that failed is {first_failure(storage, failures_name(failed.name))}" if failed else ""
    remedy = "loosen filters.min_characters" if total.filtered["too_short"] else "check what the inputs hold"
    pages = f"{total.pages} page was read" if total.pages == 1 else f"{total.pages} pages were read"
    return f"the inputs hold no document: {pages} ({told or 'none'}){first}; {remedy}"


def _required(storage: Storage, name: str) -> Any:
    values = storage.read_json(name)
    if values is None:
        raise JobError(f"{storage.url}/{name}: gone or damaged; run the job again")
    return values


@functools.lru_cache(maxsize=4)
def _split_lines(url: str, name: str) -> tuple[str, ...]:
    """The input splits; the name holds a digest of the content, so it may be remembered."""
    return tuple(Storage(url).read_bytes(name).decode().split("\n")[:-1])


@functools.lru_cache(maxsize=1)
def _vocabulary(url: str, sha256: str) -> Vocabulary:
    model = Storage(url).read_bytes(MODEL)
    if hashlib.sha256(model).hexdigest() != sha256:
        raise JobError(f"{url}/{MODEL}: changed while the job was running; run the job again")
    return Vocabulary.load(model)
