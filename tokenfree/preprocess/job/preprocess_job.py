"""What every worker knows of a preprocessing job, and where the parts of the job lie in its output directory.

    _work/job.json          whose directory it is: config, inputs as they were found, versions
    _work/attempt.json      which attempt at it may write, where the directory is on a disk
    _work/splits-*.jsonl    the input splits, one a line
    _work/inputs-*.jsonl    the inputs that they read, one a line
    _work/inputs/*.json     size and SHA-256 of each input
    _work/runs/*            sorted runs: .arrow, .json (the sidecar), .failures.jsonl, .sketches.arrow
    _work/near_duplicates*  candidates and near-duplicates, where the recipe asks for them
    _work/vocabulary.json   sidecar of the vocabulary
    _work/plan.json         the partitioning, and path and fingerprint of each shard
    _work/tasks/*.json      what each shard is built of
    _work/shards/*.json     sidecars of the shards, which lie where they belong
    _work/errors/*.json     what steps failed on
    _work/kept.json         that the runs stay when the job is done

The steps are called by the graph in `pipelines`, each on any worker and as often as a runner likes: a step whose
sidecar is valid does nothing, and any other writes the same bytes as before.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import with_config
from typing_extensions import TypedDict

from tokenfree.preprocess.common.errors import JobError, TakenOverError
from tokenfree.preprocess.common.storage import NewFile, Storage
from tokenfree.preprocess.common.stored.store_lock import HeldStorage
from tokenfree.preprocess.common.stored.stored_files import OPEN, StoredFile
from tokenfree.preprocess.config import PreprocessConfig

WORK = "_work"
JOB, PLAN, VOCABULARY_SIDECAR = f"{WORK}/job.json", f"{WORK}/plan.json", f"{WORK}/vocabulary.json"
VOCABULARY_PROGRESS = f"{WORK}/vocabulary_progress.json"
ATTEMPT = f"{WORK}/attempt.json"
HASHES, RUNS, TASKS, SHARDS = f"{WORK}/inputs", f"{WORK}/runs", f"{WORK}/tasks", f"{WORK}/shards"
ERRORS = f"{WORK}/errors"
NEAR_DUPLICATES = f"{WORK}/near_duplicates"


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
    """What every worker needs to know; small, and pickled with each step."""

    url: str
    config: PreprocessConfig
    fingerprint: str  # of all that decides the shards
    reading_fingerprint: str  # of all but the input split that decides a run
    splits: str  # name of the file of input splits
    inputs: str  # name of the file of inputs
    number: str | None = None  # of the lock of a store, under which the job is allowed to write
    attempt: str = ""  # what `_work/attempt.json` says as long as this is the newest one

    @property
    def storage(self) -> AttemptStorage | HeldStorage:
        """The output directory; it takes nothing from an attempt after which another began, or that ended the job."""
        return AttemptStorage(self.url, self.attempt) if self.number is None else HeldStorage(self.url, self.number)

    def split_lines(self) -> tuple[str, ...]:
        """The input splits, as lines of JSON."""
        return _lines(self.url, self.splits)

    def input_lines(self) -> tuple[str, ...]:
        """The inputs of the splits, as lines of JSON."""
        return _lines(self.url, self.inputs)


@dataclass(frozen=True)
class AttemptStorage(Storage):
    """A directory for one attempt at a job. An engine may go on with it when the command that began it is gone, and the
    same command was given again."""

    attempt: str

    @contextlib.contextmanager
    def new_file(self, name: str) -> Iterator[NewFile]:
        """See `Storage.new_file`.

        Raises:
            TakenOverError: this attempt is not the newest.
        """
        self.check()  # also before it begins, which would make a folder
        with super().new_file(name) as new:
            yield new

    def _commit(self, source: str, name: str) -> None:
        self.check()
        super()._commit(source, name)

    def check(self) -> None:
        """See that no other attempt has begun, or ended the job.

        Raises:
            TakenOverError: one has.
        """
        if (self.read_json(ATTEMPT) or {}).get("id") != self.attempt:
            raise TakenOverError(f"{self.url}: another command goes on with this job, or has ended it")


def write_lines(storage: Storage, stem: str, lines: Iterable[str]) -> str:
    """Commit sorted lines under a name that begins with `stem` and holds their digest; the name.

    Raises:
        UserError: the directory cannot be written to, or is full.
    """
    data = "".join(f"{line}\n" for line in sorted(lines)).encode()
    name = f"{stem}-{hashlib.blake2b(data, digest_size=8).hexdigest()}.jsonl"
    storage.write_bytes(name, data)
    return name


def begun_job(storage: Storage) -> Mapping[str, Any] | None:
    """What `_work/job.json` says whose directory it is, None where there is none.

    Raises:
        UserError: it is damaged.
    """
    try:
        return JOB_FILE.json(storage, JOB)
    except (FileNotFoundError, NotADirectoryError):
        return None


def required(storage: Storage, name: str) -> Any:
    """The values of a JSON file of the job.

    Raises:
        JobError: it is gone or damaged.
    """
    values = storage.read_json(name)
    if values is None:
        raise JobError(f"{storage.url}/{name}: gone or damaged; run the job again")
    return values


@functools.lru_cache(maxsize=8)
def _lines(url: str, name: str) -> tuple[str, ...]:
    """The lines of a file; its name holds a digest of the content, so it may be remembered."""
    return tuple(Storage(url).read_bytes(name).decode().split("\n")[:-1])
