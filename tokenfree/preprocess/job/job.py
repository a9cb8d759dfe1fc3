"""What every worker knows of a preprocessing job, and how a step reports its error.

    _work/job.json          whose directory it is: config, inputs as they were found, versions
    _work/attempt.json      which attempt at it may write, where the directory is on a disk
    _work/splits-*.jsonl    the input splits, one a line
    _work/inputs-*.jsonl    the inputs that they read, one a line
    _work/inputs/*.json     size and SHA-256 of each input
    _work/runs/*            sorted runs: .arrow, .json (the sidecar), .failures.jsonl, .sketches.arrow
    _work/near_duplicates*  candidates and near-duplicates, if the recipe asks for them
    _work/vocabulary.json   sidecar of the vocabulary
    _work/plan.json         the partitioning, and path and fingerprint of each shard
    _work/tasks/*.json      what each shard is built of
    _work/shards/*.json     sidecars of the shards, which lie where they belong
    _work/errors/*.json     what steps failed on

The graph in `pipelines` calls the steps, each on any worker and any number of times: a step whose sidecar is valid does
nothing, and any other writes the same bytes as before.

Runners wrap a worker's error as the text of a traceback, each in its own way, which hides the class and the end of its
message. A step therefore writes its error to a file in the output directory, which all workers reach.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from pydantic import with_config
from typing_extensions import TypedDict

from tokenfree.core.errors import JobError, TakenOverError, UserError
from tokenfree.core.locks import HeldStorage
from tokenfree.core.storage import NewFile, Storage
from tokenfree.core.stored_files import OPEN, StoredFile
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


P = ParamSpec("P")
T = TypeVar("T")
Step = Callable[Concatenate[PreprocessJob, P], T]
EXPECTED = {"UserError": UserError, "JobError": JobError}


def notes_errors(name: str) -> Callable[[Step[P, T]], Step[P, T]]:
    """Decorator of a step of this name: what it raises is written down first."""

    def decorate(step: Step[P, T]) -> Step[P, T]:
        @functools.wraps(step)
        def noting(job: PreprocessJob, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return step(job, *args, **kwargs)
            except Exception as error:
                noted = {"kind": type(error).__name__, "message": str(error)}
                with contextlib.suppress(Exception):  # a directory that cannot be written to; see `noted_error`
                    job.storage.write_json(f"{ERRORS}/{'-'.join([name, *map(str, args)])}.json", noted)
                raise

        return noting

    return decorate


def noted_error(storage: Storage) -> Exception | None:
    """The error that a step of the job failed on, None where none was written down.

    Of several the user's mistakes come first, then expected failures, then bugs. What cannot be written down is that
    the directory cannot be written to; then this finds the same.
    """
    found: list[Exception] = []
    for name in storage.names(ERRORS):
        values = storage.read_json(f"{ERRORS}/{name}")
        if values is not None:
            kind, message = values["kind"], values["message"]
            found.append(EXPECTED[kind](message) if kind in EXPECTED else failed(storage, f"{kind}: {message}"))
    if found:
        return min(found, key=lambda error: not isinstance(error, UserError))
    try:
        storage.write_bytes(f"{ERRORS}/trial", b"")
    except UserError as error:
        return error
    return None


def failed(storage: Storage, cause: str) -> JobError:
    """The error of a job that failed on what nobody foresaw."""
    return JobError(
        f"{storage.url}: the job failed ({cause}); what is finished is kept: mend the cause and run the same command "
        "again"
    )


def forget_errors(storage: Storage) -> None:
    """Remove what earlier attempts failed on."""
    storage.remove(ERRORS)
