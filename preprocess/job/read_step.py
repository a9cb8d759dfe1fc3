"""The first step: read and clean one input split into a sorted run, and the runs of all splits."""

from __future__ import annotations

from tokenfree.preprocess.common.errors import JobError
from tokenfree.preprocess.common.settings import fingerprint
from tokenfree.preprocess.documents.extract import FailedPage, PageCounters, extract
from tokenfree.preprocess.documents.failures import write_failures
from tokenfree.preprocess.job.preprocess_job import RUNS, PreprocessJob
from tokenfree.preprocess.job.step_errors import notes_errors
from tokenfree.preprocess.records.input_split import InputSplit
from tokenfree.preprocess.shards.sorted_runs import SortedRun, commit_run, find_run, run_name, write_documents
from tokenfree.preprocess.sources.input_splits import read_split


def num_splits(job: PreprocessJob) -> int:
    """How many input splits there are."""
    return len(job.split_lines())


@notes_errors("read")
def read_one_split(job: PreprocessJob, index: int) -> str:
    """Read and clean one input split into a sorted run, unless an earlier attempt did; the name of the run.

    Raises:
        OSError: an input cannot be opened or read.
        UserError: the output directory cannot be written to.
    """
    line = job.split_lines()[index]
    storage, name, wanted = job.storage, run_name(line), _run_fingerprint(job, line)
    if find_run(storage, RUNS, name, wanted) is not None:
        return name
    split = InputSplit.from_json(line)
    counters, documents, failed = PageCounters(), [], []
    for made in extract(read_split(split), job.config.namespaces, job.config.filters, counters):
        if isinstance(made, FailedPage):
            failed.append((made, split.names[0] if len(split.names) == 1 else made.failure.id.partition(":")[2]))
        else:
            documents.append(made)
    failures = write_failures(storage, failures_name(name), failed)
    file = write_documents(storage, RUNS, name, documents, job.config.validation_fraction)
    commit_run(storage, RUNS, SortedRun(name, wanted, split.size, counters.to_json(), failures, file))
    return name


def run_names(job: PreprocessJob) -> list[str]:
    """The names of the runs of all splits."""
    return [run_name(line) for line in job.split_lines()]


def all_runs(job: PreprocessJob) -> list[SortedRun]:
    """The committed runs of all splits, in the order of the splits.

    Raises:
        JobError: the run of a split is missing.
    """
    runs = []
    for line in job.split_lines():
        run = find_run(job.storage, RUNS, run_name(line), _run_fingerprint(job, line))
        if run is None:
            split = InputSplit.from_json(line).id
            raise JobError(f"{job.url}: the run of input split {split} is gone; run the job again")
        runs.append(run)
    return runs


def num_runs(job: PreprocessJob) -> int:
    """How many runs are committed."""
    return sum(name.endswith(".json") for name in job.storage.names(RUNS))


def has_documents(job: PreprocessJob) -> bool:
    """False if all splits are read and not one document came out of them."""
    try:
        return any(run.file.batches for run in all_runs(job))
    except JobError:
        return True


def failures_name(run: str) -> str:
    """The name of the file with the failures of a run."""
    return f"{RUNS}/{run}.failures.jsonl"


def _run_fingerprint(job: PreprocessJob, line: str) -> str:
    return fingerprint({"reading": job.reading_fingerprint, "split": line})
