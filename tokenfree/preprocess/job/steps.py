"""The steps after reading: find near-duplicates, train the vocabulary, plan the shards, build each shard."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import (
    checked,
    hash_of,
    hashes_of,
    read_columns,
    read_sealed,
    sealed_record,
    write_sealed,
    write_table,
)
from tokenfree.preprocess.dataset.manifest import MODEL, NEAR_DUPLICATE_PAIRS, VOCABULARY
from tokenfree.preprocess.documents.extract import PageCounters
from tokenfree.preprocess.documents.failures import first_failure
from tokenfree.preprocess.documents.near_duplicates import (
    KEY,
    NUM_HASHES,
    Pair,
    band_name,
    band_rows,
    candidates,
    key_halves,
    select_dropped,
    similarity,
    sketches_of,
    write_dropped,
)
from tokenfree.preprocess.features.vocabulary import Vocabulary, train_in_subprocess
from tokenfree.preprocess.job.inputs import read_given_model
from tokenfree.preprocess.job.job import (
    DOCUMENTS,
    NEAR_DUPLICATES,
    PLAN,
    SHARDS,
    TASKS,
    VOCABULARY_SIDECAR,
    PreprocessJob,
    required,
)
from tokenfree.preprocess.job.merges import sorted_files
from tokenfree.preprocess.job.read import all_runs, failures_name, sketches_name
from tokenfree.preprocess.records import SUBWORD_COLUMNS
from tokenfree.preprocess.shards.build import BuiltShard, build_shard, find_shard, shard_fingerprint
from tokenfree.preprocess.shards.plan import (
    DocumentSet,
    ShardTask,
    decide_partitioning,
    dropped_without_shard,
    partitions,
    plan_shards,
    sample_size,
    sample_texts,
)
from tokenfree.preprocess.shards.sorted_runs import (
    DATASET_SPLITS,
    Partition,
    Partitioning,
    SortedFile,
    SortedRun,
    validation_draw,
)


def num_bands(job: PreprocessJob) -> int:
    min_similarity = job.config.near_duplicates.min_similarity
    return 0 if min_similarity is None else NUM_HASHES // band_rows(min_similarity)


def find_in_one_band(job: PreprocessJob, index: int) -> str:
    """Commit the candidates of one band, unless an earlier attempt did, and return the name of their file.

    Needs about a hundred bytes per document of the whole corpus. Raises JobError if a run is missing.
    """
    storage, name = job.storage, pairs_name(job, index)
    record = read_sealed(storage, f"{name}.json")
    if record is not None and record["band_sha256"] == hash_of(storage, name):
        return name
    documents = read_sketches(job, all_runs(job), ("language", "key", band_name(index))).combine_chunks()
    codes = documents["language"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    rows = candidates(codes, key_halves(documents["key"]), documents[band_name(index)].to_numpy())
    lower, upper = documents.take(pa.array(rows[:, 0])), documents.take(pa.array(rows[:, 1]))
    pairs = {"language": lower["language"], "lower": lower["key"], "upper": upper["key"]}
    write_sealed(storage, f"{name}.json", {"band_sha256": write_table(storage, name, pa.table(pairs, PAIRS))})
    return name


PAIRS = pa.schema([("language", pa.string()), ("lower", KEY), ("upper", KEY)])


def pairs_name(job: PreprocessJob, index: int) -> str:
    return f"{NEAR_DUPLICATES}/{job.fingerprint}-{band_name(index)}.arrow"


def read_sketches(job: PreprocessJob, runs: Sequence[SortedRun], columns: Sequence[str]) -> pa.Table:
    names = [sketches_name(run.name) for run in runs if run.file.parts]
    return pa.concat_tables([read_columns(job.storage, name, columns) for name in names])


TASKS_A_FILE = 1000
_DONE = f"{NEAR_DUPLICATES}.json"
_COMPARED = 4096  # pairs at a time
_Document = tuple[str, bytes]  # language and key


@dataclass(frozen=True)
class NearDuplicates:
    """The documents to drop, listed in `file`.

    `lowest` and `highest` are the keys (hex) with the lowest and highest draw among the documents that stay,
    which decide where the first text of validation comes from. `files` has the SHA-256 of `file` and of the
    file of pairs, by name.
    """

    job: str
    file: str
    lowest: str
    highest: str
    files: dict[str, str]


def find_near_duplicates(job: PreprocessJob, runs: Sequence[SortedRun]) -> NearDuplicates | None:
    if not num_bands(job):
        return None
    storage = job.storage
    done = sealed_record(NearDuplicates, storage, _DONE)
    if done is not None and done.job == job.fingerprint and hashes_of(storage, done.files) == done.files:
        return done
    sketched, ids = _compared_documents(job, runs, _candidates(job))
    dropped = select_dropped(
        _near_pairs(_candidates(job), sketched, job.config.near_duplicates.min_similarity or 0.0)
    )
    name = f"{NEAR_DUPLICATES}/{job.fingerprint}-gone.arrow"
    files = {
        name: write_dropped(storage, name, dropped),
        NEAR_DUPLICATE_PAIRS: _write_pairs(storage, dropped, ids),
    }
    lowest, highest = _extremes(job, runs, {(pair.language, pair.upper) for pair in dropped})
    result = NearDuplicates(job.fingerprint, name, lowest.hex(), highest.hex(), files)
    write_sealed(storage, _DONE, asdict(result))
    return result


def _candidates(job: PreprocessJob) -> pa.Table:
    names = [pairs_name(job, index) for index in range(num_bands(job))]
    columns = ["language", "lower", "upper"]
    pairs = pa.concat_tables([read_columns(job.storage, name, columns) for name in names])
    return pairs.group_by(columns).aggregate([]).sort_by([(column, "ascending") for column in columns])


def _compared_documents(
    job: PreprocessJob, runs: Sequence[SortedRun], pairs: pa.Table
) -> tuple[dict[_Document, np.ndarray], dict[_Document, str]]:
    """Return the sketch and id of each document in a pair.

    Of equal texts take the lowest id, as the shards do.
    """
    paired_documents = {
        document
        for side in ("lower", "upper")
        for document in zip(pairs["language"].to_pylist(), pairs[side].to_pylist(), strict=True)
    }
    sketches: dict[_Document, np.ndarray] = {}
    ids: dict[_Document, str] = {}
    for run in runs:
        if not run.file.parts:
            continue
        table = read_columns(job.storage, sketches_name(run.name), ["language", "key", "id", "sketch"])
        documents = [*zip(table["language"].to_pylist(), table["key"].to_pylist(), strict=True)]
        rows = [row for row, document in enumerate(documents) if document in paired_documents]
        selected = table.take(pa.array(rows, pa.int64()))
        names: list[Any] = selected["id"].to_pylist()
        for row, name, numbers in zip(rows, names, sketches_of(selected["sketch"]), strict=True):
            document = documents[row]
            sketches[document] = numbers
            ids[document] = min(ids.get(document, name), name)
    return sketches, ids


def _near_pairs(
    pairs: pa.Table, sketches: dict[_Document, np.ndarray], min_similarity: float
) -> Iterable[Pair]:
    for batch in pairs.to_batches(_COMPARED):
        columns: list[list[Any]] = [batch[name].to_pylist() for name in ("language", "lower", "upper")]
        rows = [*zip(*columns, strict=True)]
        lower = np.stack([sketches[language, key] for language, key, _ in rows])
        upper = np.stack([sketches[language, key] for language, _, key in rows])
        for (language, first, second), pair_similarity in zip(
            rows, similarity(lower, upper).tolist(), strict=True
        ):
            if pair_similarity >= min_similarity:
                yield Pair(language, first, second, pair_similarity)


def _write_pairs(storage: Storage, dropped: Sequence[Pair], ids: dict[_Document, str]) -> str:
    with storage.new_file(NEAR_DUPLICATE_PAIRS) as new, open(new.path, "w", encoding="utf-8") as file:
        for pair in dropped:
            row = {
                "language": pair.language,
                "kept": ids[pair.language, pair.lower],
                "dropped": ids[pair.language, pair.upper],
                "similarity": round(pair.similarity, 4),
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return new.sha256


def _extremes(job: PreprocessJob, runs: Sequence[SortedRun], dropped: set[_Document]) -> tuple[bytes, bytes]:
    dropped_keys = {key for _, key in dropped}
    keys = set[bytes]()
    for run in runs:
        extremes = {bytes.fromhex(key) for key in (run.lowest, run.highest) if key}
        if not extremes.isdisjoint(dropped_keys):
            table = read_sketches(job, [run], ["language", "key"])
            pairs = zip(table["language"].to_pylist(), table["key"].to_pylist(), strict=True)
            extremes = {key for language, key in pairs if (language, key) not in dropped}
        keys |= extremes
    ordered = sorted(keys, key=lambda key: (validation_draw(key), key))
    return ordered[0], ordered[-1]


def make_vocabulary(job: PreprocessJob, documents: Mapping[Partition, DocumentSet]) -> str | None:
    """Return the SHA-256 of the model, trained or copied unless an earlier attempt did, or None if no column needs one.

    Raises UserError if the given model cannot be read or `vocabulary.size` does not fit, and JobError if
    training fails.
    """
    if not SUBWORD_COLUMNS & set(job.config.columns):
        return None
    storage, config = job.storage, job.config.vocabulary
    done = read_sealed(storage, VOCABULARY_SIDECAR)
    if (
        done is not None
        and done["job"] == job.fingerprint
        and hashes_of(storage, done["files"]) == done["files"]
    ):
        return done["files"][MODEL]
    if config.model is not None:
        model = read_given_model(config.model)
    else:
        texts, size = sample_texts(storage, documents, config), sample_size(documents, config)
        model = train_in_subprocess(texts, config, job.config.seed, size)
    vocabulary = Vocabulary.load(model)
    lines = "".join(f"{piece}\n" for piece in vocabulary.pieces)
    files = {
        name: storage.write_bytes(name, data).sha256
        for name, data in ((VOCABULARY, lines.encode()), (MODEL, model))
    }
    write_sealed(
        storage, VOCABULARY_SIDECAR, {"job": job.fingerprint, "files": files, "size": vocabulary.size}
    )
    return files[MODEL]


@functools.lru_cache(maxsize=1)
def cached_vocabulary(url: str, sha256: str) -> Vocabulary:
    """Return the vocabulary that the job made, loaded once per process. Raises JobError if it has changed."""
    model = Storage(url).read_bytes(MODEL)
    _check_unchanged(f"{url}/{MODEL}", model, sha256)
    return Vocabulary.load(model)


def _check_unchanged(file: str, data: bytes, sha256: str) -> None:
    if hashlib.sha256(data).hexdigest() != sha256:
        raise JobError(f"{file}: changed while the job was running; run the job again")


@dataclass(frozen=True)
class PlannedShard:
    """A shard to build: its path in the output directory, and the fingerprint of what decides its bytes."""

    path: str
    fingerprint: str


@dataclass(frozen=True)
class Plan:
    """`_work/plan.json`: the shards in order."""

    shards: tuple[PlannedShard, ...]
    duplicates: int = 0  # in ranges without any shard, because none of their documents stays
    near_duplicates: int = 0


@dataclass(frozen=True)
class SortedDocuments:
    """`_work/documents.json`: the files of all documents, what divides these, and the file of those to drop."""

    files: tuple[SortedFile, ...]
    rule: Partitioning
    dropped: str | None


@dataclass(frozen=True)
class TaskFile:
    """`_work/tasks/*.json`: `TASKS_A_FILE` shards of the plan or fewer, and the hashes of what they are built from."""

    vocabulary_sha256: str | None
    documents_sha256: str
    tasks: tuple[ShardTask, ...]


@functools.lru_cache(maxsize=1)
def cached_documents(storage: Storage, sha256: str) -> dict[Partition, DocumentSet]:
    """Return the documents of the job, loaded once per process. Raises JobError if their list has changed."""
    data = storage.read_bytes(DOCUMENTS)
    _check_unchanged(f"{storage.url}/{DOCUMENTS}", data, sha256)
    documents: SortedDocuments = checked(SortedDocuments, json.loads(data))
    return partitions(documents.files, documents.rule, documents.dropped)


def make_plan(job: PreprocessJob, _: int = 0) -> Plan:
    """Split the documents of all runs, make the vocabulary and plan the shards.

    Raises UserError if there is no document, and the errors of `make_vocabulary` and `all_runs`.
    """
    storage, runs = job.storage, all_runs(job)
    if not any(run.file.parts for run in runs):
        raise UserError(_no_documents(storage, runs))
    near = find_near_duplicates(job, runs)
    dropped, extremes = (None, None) if near is None else (near.file, (near.lowest, near.highest))
    rule = decide_partitioning(runs, job.config.validation_fraction, extremes)
    files = sorted_files(job, runs)
    documents = partitions(files, rule, dropped)
    sha256 = make_vocabulary(job, documents)
    listing = storage.write_json(DOCUMENTS, asdict(SortedDocuments(files, rule, dropped)))
    tasks, empty = plan_shards(storage, documents, job.config)
    for start in range(0, len(tasks), TASKS_A_FILE):
        group = TaskFile(sha256, listing.sha256, tuple(tasks[start : start + TASKS_A_FILE]))
        storage.write_json(_tasks_name(start), asdict(group))
    shards = tuple(
        PlannedShard(task.path, shard_fingerprint(job.fingerprint, sha256, task)) for task in tasks
    )
    plan = Plan(shards, *dropped_without_shard(storage, files, rule, empty, dropped))
    storage.write_json(PLAN, asdict(plan))
    return plan


def find_plan(storage: Storage) -> Plan | None:
    values = storage.read_json(PLAN)
    return None if values is None else checked(Plan, values)


def load_plan(storage: Storage) -> Plan:
    """Return the plan. Raises JobError if there is none."""
    return checked(Plan, required(storage, PLAN))


def num_planned(job: PreprocessJob) -> int:
    return len(load_plan(job.storage).shards)


def _tasks_name(index: int) -> str:
    return f"{TASKS}/{index // TASKS_A_FILE:05}.json"


def _no_documents(storage: Storage, runs: Sequence[SortedRun]) -> str:
    total = PageCounters()
    for run in runs:
        total.add(run.counters)
    reasons = {
        **total.filtered,
        **total.failed,
        "redirect": total.redirects,
        "other_namespace": total.other_namespaces,
    }
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()) if count)
    failed = next((run for run in runs if run.failures), None)
    first = (
        f", the first that failed is {first_failure(storage, failures_name(failed.name))}" if failed else ""
    )
    read = "1 page was" if total.pages == 1 else f"{total.pages} pages were"
    return (
        f"the inputs hold no document: {read} read ({counts or 'none'}){first}; "
        "check the inputs, or loosen the keys under filters"
    )


def build_one_shard(job: PreprocessJob, index: int) -> BuiltShard:
    """Build one shard of the plan, unless an earlier attempt did, and return its record."""
    storage = job.storage
    group: TaskFile = checked(TaskFile, required(storage, _tasks_name(index)))
    task, sha256 = group.tasks[index % TASKS_A_FILE], group.vocabulary_sha256
    sidecar, expected = shard_sidecar(task.path), shard_fingerprint(job.fingerprint, sha256, task)
    built = find_shard(storage, sidecar, expected)
    if built is not None and hash_of(storage, task.path) == built.entry.sha256:
        return built
    whole = cached_documents(storage, group.documents_sha256)[task.partition]
    documents = dataclasses.replace(whole, ranges=task.ranges)
    vocabulary = cached_vocabulary(job.url, sha256) if sha256 else None
    return build_shard(
        storage, task, documents, job.config, vocabulary, sidecar=sidecar, shard_fingerprint=expected
    )


def all_shards(job: PreprocessJob) -> list[BuiltShard]:
    """Return the committed shards of the plan, in its order.

    Raises JobError if the plan or a shard is missing.
    """
    shards = []
    for planned in load_plan(job.storage).shards:
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
