"""Ray jobs: submit, follow, stop and list them. A job runs on the cluster, independently of this process."""

import asyncio
import contextlib
import dataclasses
import logging
import os
import secrets
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import requests
from aiohttp import ClientError
from ray.exceptions import AuthenticationError
from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.ray_access import wrong_token
from tokenfree.core.signals import STOP_SIGNALS

_PAUSE = 0.5  # seconds until the status is asked for again
_ANSWER_SECONDS = 10.0  # for the first answer of a cluster; Ray's client waits without limit
_STOP_SECONDS = 120  # for a job to write its checkpoint before it is killed
_OVERRIDES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")  # in Ray, these override an address that is passed
# Exit status of a shell that does not find the command.
_NO_COMMAND = 127
_LOGGERS = ("ray.dashboard.modules", "ray._private.runtime_env.packaging")


@dataclasses.dataclass(frozen=True)
class Job:
    """A job as `cluster jobs --json` prints it; `started` and `ended` are seconds since 1970."""

    name: str
    status: str
    command: str
    started: float | None
    ended: float | None
    exit_status: int | None
    message: str

    @property
    def has_ended(self) -> bool:
        return JobStatus(self.status).is_terminal()

    def outcome(self) -> tuple[int, str]:
        """Return the exit status of an ended job, and a line about it: "" if it succeeded or has printed its error."""
        if self.status == JobStatus.SUCCEEDED:
            return 0, ""
        if self.status == JobStatus.STOPPED:
            text = f"job {self.name} was stopped; the same command resumes from its newest checkpoint"
            return 128 + signal.SIGTERM, text
        if self.exit_status in (1, 2, *(128 + kind for kind in STOP_SIGNALS)):
            return self.exit_status, ""
        if self.exit_status == _NO_COMMAND:
            return 1, f"job {self.name}: the cluster has no command tokenfree; install it on its nodes"
        status = 1 if self.exit_status is None or self.exit_status < 0 else self.exit_status
        reason = next(iter(self.message.strip().splitlines()), f"exit status {self.exit_status}")
        return status, f"job {self.name} failed: {reason}"


class Jobs:
    """The jobs of the cluster whose dashboard is at `address`, such as http://127.0.0.1:8265.

    Raises JobError if nothing answers there, and UserError if the cluster does not accept this machine's
    token.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        with self._explained():
            requests.get(f"{address}/api/version", timeout=_ANSWER_SECONDS)
            self._client = JobSubmissionClient(address)
            # They set their levels when they are imported.
            for name in ("dashboard_sdk", "job.sdk"):
                logging.getLogger(f"ray.dashboard.modules.{name}").setLevel(logging.WARNING)

    def submit(
        self,
        words: Sequence[str],
        sent: Sequence[str],
        *,
        cpus: float,
        gpus: float,
        metadata: dict[str, str],
    ) -> str:
        """Submit `tokenfree WORDS` and return the name of the job.

        The files and folders `sent` are copied into the job's working directory, under their relative paths.
        `cpus` and `gpus` are those of the command's own process. The dashboard shows `metadata`. Raises
        UserError if a path of `sent` does not exist.
        """
        name = f"{words[0]}-{time.strftime('%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        with tempfile.TemporaryDirectory(prefix="tokenfree-") as folder:
            for path in map(Path, sent):
                inside = os.path.relpath(path)
                _copy(path, Path(folder) / (path.name if inside.startswith("..") else inside))
            with self._explained():
                return self._client.submit_job(
                    entrypoint=f"exec {shlex.join(['tokenfree', *words])}",
                    submission_id=name,
                    runtime_env={
                        "working_dir": folder,
                        "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_SECONDS)},
                    },
                    entrypoint_num_cpus=cpus,
                    entrypoint_num_gpus=gpus,
                    metadata=metadata,
                )

    def follow(self, name: str, write: Callable[[str], None]) -> Job:
        """Write the log of a job until its end, and return the job.

        Raises JobError if the connection is lost.
        """
        # Fails if there is no such job.
        self.get(name)

        async def tail() -> None:
            async for text in self._client.tail_job_logs(name):
                write(text)

        with self._explained():
            asyncio.run(tail())
        while not (job := self.get(name)).has_ended:
            time.sleep(_PAUSE)
        return job

    def logs(self, name: str) -> str:
        self.get(name)
        with self._explained():
            return self._client.get_job_logs(name)

    def stop(self, name: str) -> None:
        """Ask a job to end. It may take some time to write a checkpoint."""
        self.get(name)
        with self._explained():
            self._client.stop_job(name)

    def get(self, name: str) -> Job:
        """Return a job. Raises UserError if there is none of that name."""
        with self._explained():
            try:
                return _job(self._client.get_job_info(name))
            except RuntimeError as error:
                if "404" not in str(error):
                    raise
        raise UserError(f"there is no job {name} at {self.address}; tokenfree cluster jobs lists them")

    def list(self) -> list[Job]:
        """Return all submitted jobs, the oldest first."""
        with self._explained():
            jobs = [_job(job) for job in self._client.list_jobs() if job.submission_id]
        return sorted(jobs, key=lambda job: job.started or 0.0)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        saved_environment = {name: os.environ.pop(name) for name in _OVERRIDES if name in os.environ}
        try:
            yield
        except AuthenticationError as error:
            raise wrong_token(self.address) from error
        except (ConnectionError, requests.RequestException, ClientError, TimeoutError) as error:
            raise JobError(
                f"no Ray cluster answers at {self.address}; start one (tokenfree cluster local), or a tunnel to it "
                "(ray dashboard PROFILE), and give its address: --address URL"
            ) from error
        except RuntimeError as error:
            if "WebSocket" not in str(error) and "status code 50" not in str(error):
                raise
            raise JobError(
                f"{self.address}: the connection was lost. The job continues; tokenfree cluster logs shows it again"
            ) from error
        finally:
            os.environ.update(saved_environment)


def _copy(source: Path, target: Path) -> None:
    """Copy a file, or a folder without hidden files and caches. Raises UserError if there is neither."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(
            source, target, ignore=shutil.ignore_patterns(".*", "__pycache__"), dirs_exist_ok=True
        )
    elif source.is_file():
        shutil.copyfile(source, target)
    else:
        raise UserError(f"--send {source}: no such file or folder. Give a path of this machine")


def _job(details: JobDetails) -> Job:
    started, ended = (
        None if when is None else when / 1000 for when in (details.start_time, details.end_time)
    )
    return Job(
        details.submission_id or "",
        str(details.status.value),
        details.entrypoint.removeprefix("exec "),
        started,
        ended,
        details.driver_exit_code,
        details.message or "",
    )
