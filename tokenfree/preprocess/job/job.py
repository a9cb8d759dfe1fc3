"""What every worker needs for a preprocessing job, and how a step reports its error.

    _work/job.json          identity of the directory's job: config, inputs as they were found, versions
    _work/attempt.json      the attempt that may write, if the directory is on a disk
    _work/splits-*.jsonl    the input splits, one per line
    _work/inputs-*.jsonl    the inputs of the splits, one per line
    _work/inputs/*.json     size and SHA-256 of each input
    _work/templates-*.jsonl  the parts of dumps whose templates are collected, one per line
    _work/templates/*       the templates of each wiki, see preprocess/job/templates.py
    _work/runs/*            sorted runs: .arrow, .json (the sidecar), .failures.jsonl, .sketches.arrow
    _work/merging.json, _work/merged/*  runs joined into fewer files, see preprocess/job/merges.py
    _work/near_duplicates/* candidates of each band, and the documents to drop, if the recipe asks for them
    _work/near_duplicates.json  written after them, and after near_duplicates.jsonl, which is for people
    _work/vocabulary.json   sidecar of the vocabulary
    _work/documents.json    the sorted files, and what divides their documents among the shards
    _work/plan.json         the path and fingerprint of each shard
    _work/tasks/*.json      the key ranges of some shards each
    _work/shards/*.json     sidecars of the shards, which are at their final paths
    _work/errors/*.json     errors of steps

Any worker may run a step any number of times. A step whose sidecar is valid does nothing. Any other writes
the same bytes as before. Runners wrap an error in their own ways, which hides its class, so it is also
written to a file.
"""

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import with_config
from typing_extensions import TypedDict

from tokenfree.core.errors import JobError, TakenOverError, UserError
from tokenfree.core.locks import HeldStorage
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import OPEN, StoredFile, sealed_record
from tokenfree.preprocess.config import PreprocessConfig

WORK = "_work"
JOB, PLAN, VOCABULARY_SIDECAR = f"{WORK}/job.json", f"{WORK}/plan.json", f"{WORK}/vocabulary.json"
ATTEMPT = f"{WORK}/attempt.json"
HASHES, RUNS, TASKS, SHARDS = f"{WORK}/inputs", f"{WORK}/runs", f"{WORK}/tasks", f"{WORK}/shards"
ERRORS = f"{WORK}/errors"
MERGING, MERGED = f"{WORK}/merging.json", f"{WORK}/merged"
DOCUMENTS = f"{WORK}/documents.json"
STORE_REQUESTS = 32  # at a time
NEAR_DUPLICATES = f"{WORK}/near_duplicates"
TEMPLATES = f"{WORK}/templates"


@with_config(OPEN)
class _Input(TypedDict):
    path: str


@with_config(OPEN)
class _Job(TypedDict):
    config: dict[str, Any]
    versions: dict[str, Any]
    inputs: list[_Input]


JOB_FILE: StoredFile[Mapping[str, Any]] = StoredFile(
    _Job, "remove the output directory and give the same command again"
)


@dataclass(frozen=True)
class PreprocessJob:
    """What every worker needs to know. It is small, and pickled with each step."""

    url: str
    config: PreprocessConfig
    fingerprint: str  # of everything that decides the shards
    reading_fingerprint: str  # of everything that decides a run, except the input split
    splits: str  # name of the file of input splits
    inputs: str  # name of the file of inputs
    templates: str = ""  # name of the file of parts of dumps with templates, or none if they are not expanded
    number: str | None = None  # number of a store's lock, under which the job may write
    attempt: str = ""  # content of `_work/attempt.json` as long as this attempt is the newest

    @property
    def storage(self) -> Storage:
        """The output directory.

        It refuses writes of an attempt after a newer one began, or after the job ended.
        """
        return (
            AttemptStorage(self.url, self.attempt)
            if self.number is None
            else HeldStorage(self.url, self.number)
        )

    def split_lines(self) -> tuple[str, ...]:
        return _lines(self.url, self.splits)

    def input_lines(self) -> tuple[str, ...]:
        return _lines(self.url, self.inputs)

    def template_lines(self) -> tuple[str, ...]:
        return _lines(self.url, self.templates) if self.templates else ()


@dataclass(frozen=True)
class AttemptStorage(Storage):
    """A directory for one attempt at a job, which an engine can continue after the same command was run again."""

    attempt: str

    def check(self) -> None:
        """Raise TakenOverError if another attempt has begun or ended the job."""
        if (self.read_json(ATTEMPT) or {}).get("id") != self.attempt:
            raise TakenOverError(f"{self.url}: another command continues this job, or has ended it")


@dataclass(frozen=True)
class Merging:
    """`_work/merging.json`: a level of merges of the runs of the input splits in the file `splits`.

    Attributes:
        reading: Fingerprint of what decides the runs.
        number: Number of the level, from 1.
        ranges: Number of key ranges of each of its groups.
        ended: True if the files that it joins may be gone.
    """

    reading: str
    splits: str
    number: int
    ranges: tuple[int, ...]
    ended: bool = False


def find_merging(job: PreprocessJob) -> Merging | None:
    level = sealed_record(Merging, job.storage, MERGING)
    is_current = level is not None and (level.reading, level.splits) == (job.reading_fingerprint, job.splits)
    return level if is_current else None


def runs_are_merged(job: PreprocessJob) -> bool:
    level = find_merging(job)
    return level is not None and (level.ended or level.number > 1)


T = TypeVar("T")
Item = TypeVar("Item")


def concurrently(storage: Storage, function: Callable[[Item], T], items: Iterable[Item]) -> list[T]:
    """Return the results for all items, computed in threads on a store, which answers many requests at a time."""
    with ThreadPoolExecutor(1 if storage.is_local else STORE_REQUESTS) as pool:
        return list(pool.map(function, items))


def write_lines(storage: Storage, stem: str, lines: Iterable[str]) -> str:
    """Commit sorted lines under a name that begins with `stem` and contains their digest. Return the name."""
    data = "".join(f"{line}\n" for line in sorted(lines)).encode()
    name = f"{stem}-{hashlib.blake2b(data, digest_size=8).hexdigest()}.jsonl"
    storage.write_bytes(name, data)
    return name


def read_job_identity(storage: Storage) -> Mapping[str, Any] | None:
    """Return `_work/job.json`, or None if there is none. Raises UserError if the file is damaged."""
    try:
        return JOB_FILE.json(storage, JOB)
    except (FileNotFoundError, NotADirectoryError):
        return None


def required(storage: Storage, name: str) -> Any:
    """Return the values of a JSON file of the job. Raises JobError if the file is missing or damaged."""
    values = storage.read_json(name)
    if values is None:
        raise JobError(f"{storage.url}/{name}: gone or damaged; run the job again")
    return values


@functools.lru_cache(maxsize=8)
def _lines(url: str, name: str) -> tuple[str, ...]:
    """Return the lines of a file. They may be cached, since the name holds a digest of the content."""
    return tuple(Storage(url).read_bytes(name).decode().split("\n")[:-1])


EXPECTED = {"UserError": UserError, "JobError": JobError, "DamagedFileError": JobError}


def note_error(storage: Storage, task: str, error: Exception) -> None:
    noted = {"kind": type(error).__name__, "message": str(error)}
    with contextlib.suppress(Exception):  # see `noted_error`
        storage.write_json(f"{ERRORS}/{task}.json", noted)


def noted_error(storage: Storage) -> Exception | None:
    """Return the error that a step failed on, the user's mistakes first, or None if none was recorded.

    If the directory cannot be written to, no step can record that. Then this function runs into the same
    error.
    """
    errors: list[Exception] = []
    for name in storage.names(ERRORS):
        values = storage.read_json(f"{ERRORS}/{name}")
        if values is not None:
            kind, message = values["kind"], values["message"]
            errors.append(
                EXPECTED[kind](message) if kind in EXPECTED else failed(storage, f"{kind}: {message}")
            )
    if errors:
        return min(errors, key=lambda error: not isinstance(error, UserError))
    try:
        storage.write_bytes(f"{ERRORS}/trial", b"")
    except UserError as error:
        return error
    return None


def failed(storage: Storage, cause: str) -> JobError:
    return JobError(
        f"{storage.url}: the job failed ({cause}); what is finished is kept: fix the cause and run the same command "
        "again"
    )
