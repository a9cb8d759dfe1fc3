"""The last step of a job: reconcile its counters, write failures, card and manifest. Also `replay`."""

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tokenfree.core.errors import JobError
from tokenfree.core.settings import build
from tokenfree.core.settings_values import fingerprint
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import checked, hash_of, hashes_of, read_sealed
from tokenfree.preprocess.config import PreprocessConfig, steps_of
from tokenfree.preprocess.dataset.card import CARD, PLOTS, write_card, write_layout
from tokenfree.preprocess.dataset.completion import content_fingerprint, note_added, reconcile
from tokenfree.preprocess.dataset.manifest import (
    MANIFEST,
    MODEL,
    NEAR_DUPLICATE_PAIRS,
    VOCABULARY,
    DatasetSplit,
    Manifest,
    load_manifest,
    save_manifest,
)
from tokenfree.preprocess.documents.extract import PageCounters, document_of
from tokenfree.preprocess.documents.failures import (
    DROPPED_FOLDER,
    FOLDER,
    collect_failures,
    read_failures,
)
from tokenfree.preprocess.job.inputs import portable_config
from tokenfree.preprocess.job.job import JOB, RUNS, VOCABULARY_SIDECAR, WORK, PreprocessJob, required
from tokenfree.preprocess.job.output import tidy
from tokenfree.preprocess.job.read import DROPPED, FAILURES, all_runs, hashed_inputs
from tokenfree.preprocess.job.steps import all_shards, load_plan, num_bands
from tokenfree.preprocess.job.templates import KEPT, keep_templates, open_templates
from tokenfree.preprocess.records import SCHEMA_VERSION, Document, Page, Site
from tokenfree.preprocess.shards.build import BuiltShard
from tokenfree.preprocess.shards.sorted_runs import DATASET_SPLITS, SortedRun
from tokenfree.preprocess.wikitext.templates import Definitions


def finish(job: PreprocessJob, _: int = 0) -> str:
    """Reconcile and write the files next to the shards. Return the fingerprint of the finished directory.

    Raises JobError if a page is unaccounted for, a run, shard or hash is missing, or failures are damaged.
    """
    storage = job.storage
    # A runner may repeat a step if it does not know that it is done.
    if MANIFEST in storage.names():
        tidy(storage)
        return load_manifest(job.url).fingerprint
    runs, shards = all_runs(job), all_shards(job)
    identity = required(storage, JOB)
    vocabulary = read_sealed(storage, VOCABULARY_SIDECAR) or {"files": {}, "size": None}
    vocabulary_sha256 = vocabulary["files"].get(MODEL)
    counters = count(runs, shards)
    if num_bands(job):
        plan = load_plan(storage)
        counters["duplicates"] += plan.duplicates
        counters["near_duplicates"] = plan.near_duplicates + sum(shard.near_duplicates for shard in shards)
    reconcile(counters)
    splits = {
        name: DatasetSplit(entries)
        for name in DATASET_SPLITS
        if (entries := tuple(shard.entry for shard in shards if shard.entry.path.startswith(f"{name}/")))
    }
    manifest = Manifest(
        schema_version=SCHEMA_VERSION,
        config=portable_config(job.config),
        config_fingerprint=fingerprint(identity["config"]),
        versions=identity["versions"],
        inputs=tuple(hashed_inputs(job)),
        vocabulary_sha256=vocabulary_sha256,
        vocabulary_size=vocabulary["size"],
        splits=splits,
        counters=counters,
        statistics=statistics(shards),
        fingerprint=content_fingerprint(splits, vocabulary_sha256),
    )
    for suffix, folder in ((FAILURES, FOLDER), (DROPPED, DROPPED_FOLDER)):
        hashes = {f"{RUNS}/{run.name}{suffix}": run.beside[suffix] for run in runs if suffix in run.beside}
        for name, sha256 in hashes.items():
            if hash_of(storage, name) != sha256:
                raise JobError(f"{job.url}/{name}: damaged; run the job again")
        collect_failures(storage, list(hashes), f"{WORK}/collected", folder)
    sites = [row["page"]["site"] for row in read_failures(storage) if row["page"]] if job.templates else []
    for database in sorted({site["database"] for site in sites if site}):
        keep_templates(job, database)
    beside = [CARD, VOCABULARY, NEAR_DUPLICATE_PAIRS, *write_layout(storage, splits, vocabulary_sha256)]
    write_card(storage, manifest)
    beside += [
        f"{folder}/{name}" for folder in (PLOTS, FOLDER, DROPPED_FOLDER) for name in storage.names(folder)
    ]
    save_manifest(storage, dataclasses.replace(manifest, files=hashes_of(storage, beside)))
    tidy(storage)
    return manifest.fingerprint


def count(runs: Sequence[SortedRun], shards: Sequence[BuiltShard]) -> dict[str, Any]:
    """Return the counters of the manifest: pages as the runs counted them, documents and the rest as the shards did."""
    pages = PageCounters()
    for run in runs:
        pages.add(run.counters)
    return {
        **pages.to_json(),
        "filtered": dict(sorted(pages.filtered.items())),
        "failed": dict(sorted(pages.failed.items())),
        "templates": dict(sorted(pages.templates.items())),
        "dropped_templates": dict(
            sorted(pages.dropped_templates.items(), key=lambda item: (-item[1], item[0]))[:MAX_NAMES]
        ),
        "documents": sum(shard.entry.documents for shard in shards),
        "duplicates": sum(shard.duplicates for shard in shards),
        "windows": sum(shard.entry.rows for shard in shards),
        "characters": sum(shard.entry.characters for shard in shards),
        "subwords": sum(shard.subwords for shard in shards),
        "byte_pieces": sum(shard.byte_pieces for shard in shards),
    }


def statistics(shards: Sequence[BuiltShard]) -> dict[str, Any]:
    """Return what the card shows: documents by length (powers of two), counts and sampled scripts by language."""
    lengths: Counter[int] = Counter()
    totals, scripts = defaultdict[str, Counter[str]](Counter), defaultdict[str, Counter[str]](Counter)
    for shard in shards:
        lengths.update({int(bits): number for bits, number in shard.lengths.items()})
        entry = shard.entry
        totals[entry.language].update({
            "documents": entry.documents,
            "windows": entry.rows,
            "characters": entry.characters,
            "subwords": shard.subwords,
            "byte_pieces": shard.byte_pieces,
        })  # fmt: skip
        scripts[entry.language].update(shard.scripts)
    languages = {name: {"scripts": dict(scripts[name]), **numbers} for name, numbers in totals.items()}
    return {"lengths": {str(bits): lengths[bits] for bits in sorted(lengths)}, "languages": languages}


MAX_NAMES = 20  # of dropped templates, the most frequent ones
REPLAYED = f"{FOLDER}/replayed.jsonl"


@dataclass(frozen=True)
class ReplayResult:
    """Result of a replay. `path` names the file of the new documents, or is empty if there are none."""

    tried: int
    documents: int
    still_failing: dict[str, int]
    path: str


def replay(output: str) -> ReplayResult:
    """Clean the failed pages of a finished job again with the current code and the templates of their wikis.

    A finished data directory never changes, so new documents are written to `failures/replayed.jsonl`, an
    input (`--books`) for another job. Content too damaged to hold a page stays a failure. Raises UserError if
    `output` is not a finished data directory, or its custom steps cannot be imported or are not trusted.
    """
    manifest, storage = load_manifest(output), Storage.at(output)
    config = build(PreprocessConfig, manifest.config, source=f"{output}/manifest.json")
    names = storage.names(FOLDER)
    has_templates = any(f"{FOLDER}/{name}".startswith(KEPT) for name in names)
    definitions = (
        partial(open_templates, storage.url, manifest.fingerprint, prefix=KEPT) if has_templates else None
    )
    if not names:
        return ReplayResult(0, 0, {}, "")
    tried, documents, failing = 0, 0, Counter[str]()
    note_added(storage, REPLAYED, None)
    with storage.new_file(REPLAYED) as new, open(new.path, "w", encoding="utf-8") as file:
        for row in read_failures(storage):
            tried += 1
            result = _clean_again(row, config, definitions)
            if isinstance(result, Document):
                documents += 1
                file.write(json.dumps(vars(result), ensure_ascii=False) + "\n")
            else:
                failing[result] += 1
    if documents:
        note_added(storage, REPLAYED, new.sha256)
    else:
        storage.remove(REPLAYED)
    path = f"{storage.url}/{REPLAYED}" if documents else ""
    return ReplayResult(tried, documents, dict(sorted(failing.items())), path)


def _clean_again(
    row: dict[str, Any], config: PreprocessConfig, definitions: Callable[[Site], Definitions] | None
) -> Document | str:
    if row["page"] is None:
        return row["reason"]
    page: Page = checked(Page, {**row["page"], "id": row["id"], "text": row["text"]})
    result = document_of(page, config.filters, PageCounters(), definitions, steps_of(config))
    return result if isinstance(result, Document) else result.reason
