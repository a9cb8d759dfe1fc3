"""The first steps: hash each input; read and clean one input split into sorted runs.

A run is committed as soon as its pages reach the bytes of a planned split, so memory does not grow with a
split that could not be cut, and a killed job resumes after the last run.
"""

import functools
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.own_code import trusting
from tokenfree.core.settings_values import fingerprint
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import read_sealed, write_sealed
from tokenfree.preprocess.config import PreprocessConfig, Steps, steps_of
from tokenfree.preprocess.documents.extract import FailedPage, PageCounters, extract
from tokenfree.preprocess.documents.failures import write_failures
from tokenfree.preprocess.documents.near_duplicates import band_rows, write_sketches
from tokenfree.preprocess.job.inputs import portable_name
from tokenfree.preprocess.job.job import HASHES, RUNS, PreprocessJob, concurrently, runs_are_merged
from tokenfree.preprocess.job.templates import definitions_of, template_hash
from tokenfree.preprocess.records import Document, Failure, InputSplit, Page, StepFailure
from tokenfree.preprocess.shards.merge import FilePart, Merge
from tokenfree.preprocess.shards.sorted_runs import (
    SortedFile,
    SortedRun,
    commit_run,
    find_run,
    run_name,
    runs_name,
    write_documents,
)
from tokenfree.preprocess.sources.files import InputFile
from tokenfree.preprocess.sources.splits import hash_input, read_split

# Added to the text of each page: the size of a failure without text, but less than the XML around a page, so
# that a split of the planned size is one run.
PAGE_BYTES = 500
# Suffixes of files next to a run.
FAILURES, DROPPED, SKETCHES = ".failures.jsonl", ".dropped.jsonl", ".sketches.arrow"
# Steps that a job adds may fail at this share of the pages of a run with at least `MIN_PAGES`.
MAX_STEP_FAILURES, MIN_PAGES = 0.01, 100


def read_one_split(job: PreprocessJob, index: int) -> list[SortedRun]:
    """Read and clean an input split into runs, except those already committed, and return all of them.

    Raises OSError if an input cannot be read, and UserError if the output directory cannot be written to, or
    a step that the job adds fails too often.
    """
    line, merged = job.split_lines()[index], runs_are_merged(job)
    runs = _committed(job, line, read=not merged, merged=merged)
    if runs and runs[-1].last:
        return runs
    split = InputSplit.from_json(line)
    steps = own_steps(job.config)
    pages = islice(read_split(split, steps.readers), _num_pages(runs), None)
    while not runs or not runs[-1].last:
        next_pages = NextPages(pages, job.config.split_bytes)
        runs.append(_write_run(job, line, split.names, next_pages, _num_pages(runs), len(runs), steps))
    return runs


def own_steps(config: PreprocessConfig, *, trust_code: bool = True) -> Steps:
    """Return the steps that a config adds. Those of a begun job are trusted.

    Raises UserError if they are invalid, cannot be imported or are not trusted.
    """
    with trusting(trust_code, "the recipe"):
        return steps_of(config)


class NextPages:
    """An iterator over the next of `pages` until they have `bound` bytes.

    `ended` tells whether they were the last.
    """

    def __init__(self, pages: Iterator[Page | Failure], bound: int) -> None:
        self.bytes = 0
        self.ended = False
        self._pages = pages
        self._bound = bound

    def __iter__(self) -> Iterator[Page | Failure]:
        for page in self._pages:
            self.bytes += PAGE_BYTES + len(page.text.encode(errors="replace"))
            yield page
            if self.bytes >= self._bound:
                return
        self.ended = True


def write_pages(job: PreprocessJob, line: str, pages: Iterable[Page]) -> SortedRun:
    """Clean pages that are in no input into a run of their own.

    `line` is unique JSON, in place of an input split's.
    """
    return _write_run(job, line, (), NextPages(iter(pages), sys.maxsize), 0, 0, own_steps(job.config))


def _write_run(
    job: PreprocessJob,
    line: str,
    names: Sequence[str],
    pages: NextPages,
    first_page: int,
    number: int,
    steps: Steps,
) -> SortedRun:
    storage, config, name = job.storage, job.config, run_name(runs_name(line), number)
    counters, documents, lost = PageCounters(), [], {FAILURES: [], DROPPED: []}
    for result in extract(
        pages, config.namespaces, config.filters, counters, functools.partial(definitions_of, job), steps
    ):
        if isinstance(result, Document):
            documents.append(result)
        elif isinstance(result, FailedPage) or config.keep_dropped:
            source = names[0] if len(names) == 1 else result.failure.id.partition(":")[2]
            lost[FAILURES if isinstance(result, FailedPage) else DROPPED].append((result, source))
    _check_steps([page.failure for page, _ in lost[FAILURES]], counters.pages)
    beside = {
        suffix: write_failures(storage, f"{RUNS}/{name}{suffix}", rows)
        for suffix, rows in lost.items()
        if rows
    }
    file, lowest, highest = write_documents(
        storage, f"{RUNS}/{name}.arrow", documents, config.validation_fraction
    )
    min_similarity = config.near_duplicates.min_similarity
    if min_similarity is not None and file.parts:
        shingle, rows = config.near_duplicates.shingle_characters, band_rows(min_similarity)
        sha256 = write_sketches(storage, sketches_name(name), _by_language(storage, file), shingle, rows)
        beside[SKETCHES] = sha256
    run = SortedRun(
        name,
        _run_fingerprint(job, line),
        pages.bytes,
        counters.to_json(),
        len(lost[FAILURES]),
        file,
        lowest,
        highest,
        first_page,
        pages.ended,
        beside,
    )
    commit_run(storage, RUNS, run)
    return run


def _check_steps(failures: Iterable[Failure], num_pages: int) -> None:
    of_steps = [failure for failure in failures if isinstance(failure, StepFailure)]
    if num_pages >= MIN_PAGES and len(of_steps) > MAX_STEP_FAILURES * num_pages:
        first = of_steps[0]
        raise UserError(
            f"{first.reason}: {first.error} (page {first.id}). {len(of_steps)} of {num_pages} pages failed in steps of "
            "your own. Fix the code and run the same command again"
        ) from first.error


def _committed(job: PreprocessJob, line: str, *, read: bool = True, merged: bool = False) -> list[SortedRun]:
    """Return the committed runs of a split, in order, up to the first missing one.

    A run after a missing one may be of an attempt that cut differently, so it must continue the previous one.
    """
    runs: list[SortedRun] = []
    while not runs or not runs[-1].last:
        name, run_fingerprint = run_name(runs_name(line), len(runs)), _run_fingerprint(job, line)
        run = find_run(job.storage, RUNS, name, run_fingerprint, read=read, merged=merged)
        if run is None or run.first_page != _num_pages(runs):
            break
        runs.append(run)
    return runs


def _by_language(storage: Storage, file: SortedFile) -> Iterator[tuple[bytes, Document]]:
    """Yield the documents of a run with their keys, and only one of equal texts in a language."""
    for language in sorted({part.language for part in file.parts}):
        yield from Merge(
            storage, [FilePart(file.path, part) for part in file.parts if part.language == language]
        )


def _num_pages(runs: Iterable[SortedRun]) -> int:
    return sum(run.counters["pages"] for run in runs)


def all_runs(job: PreprocessJob) -> list[SortedRun]:
    """Return the committed runs of all splits in order, whose content was checked when they were written or resumed.

    Raises JobError if one is gone.
    """
    merged = runs_are_merged(job)

    def of_split(line: str) -> list[SortedRun]:
        runs = _committed(job, line, read=False, merged=merged)
        if not runs or not runs[-1].last:
            raise JobError(
                f"{job.url}/{RUNS}/{run_name(runs_name(line), len(runs))}: gone; run the job again"
            )
        return runs

    return [run for runs in concurrently(job.storage, of_split, job.split_lines()) for run in runs]


def num_runs(job: PreprocessJob) -> int:
    return sum(name.endswith(".json") for name in job.storage.names(RUNS))


def has_documents(job: PreprocessJob) -> bool:
    """Return False if all splits are read and contain no document."""
    try:
        return any(run.file.parts for run in all_runs(job))
    except JobError:
        return True


def failures_name(run: str) -> str:
    return f"{RUNS}/{run}{FAILURES}"


def sketches_name(run: str) -> str:
    return f"{RUNS}/{run}{SKETCHES}"


def _run_fingerprint(job: PreprocessJob, line: str) -> str:
    content = {"reading": job.reading_fingerprint, "split": line}
    templates = template_hash(job, line)
    return fingerprint(content if templates is None else {**content, "templates": templates})


def input_line(file: InputFile) -> str:
    return json.dumps(asdict(file), ensure_ascii=False, sort_keys=True)


def hash_one_input(job: PreprocessJob, index: int) -> str:
    """Hash one input, unless an earlier attempt did, and return its name.

    Raises OSError if the input cannot be read, and JobError if it changed since the job found it.
    """
    line = job.input_lines()[index]
    file = InputFile(**json.loads(line))
    if _hash_record(job, line) is None:
        size, sha256 = hash_input(file)
        write_sealed(job.storage, hash_sidecar(line), {"input": line, "size": size, "input_sha256": sha256})
    return file.name


def hashed_inputs(job: PreprocessJob) -> list[dict[str, Any]]:
    """Return the name, size and SHA-256 of each input, sorted. Raises JobError if an input was not hashed."""
    named = []
    for line in job.input_lines():
        record = _hash_record(job, line)
        if record is None:
            raise JobError(f"{job.url}/{hash_sidecar(line)}: gone or damaged; run the job again")
        path = portable_name(json.loads(line)["path"])
        named.append({"path": path, "size": record["size"], "sha256": record["input_sha256"]})
    return sorted(named, key=lambda entry: (entry["path"], entry["sha256"]))


def _hash_record(job: PreprocessJob, line: str) -> dict[str, Any] | None:
    record = read_sealed(job.storage, hash_sidecar(line))
    return record if record is not None and record.get("input") == line else None


def hash_sidecar(line: str) -> str:
    return f"{HASHES}/{hashlib.blake2b(line.encode(), digest_size=16).hexdigest()}.json"
