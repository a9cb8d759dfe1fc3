"""What a step failed on, told to the process that started the job by a file.

Runners carry an error of a worker as the text of a traceback, each in its own wrapping, so that neither its class nor
the end of its message can be told for sure. A file in the output directory, which all workers reach on every runner,
keeps both.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from tokenfree.preprocess.common.errors import JobError, UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.job.preprocess_job import ERRORS, PreprocessJob

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
