"""Child processes for code that Ray may kill: calls by name, the supervised driver, and clean-up.

Ray can end a connected process without notice when a raylet is lost, so commands talk to Ray through a child
process.
"""

import contextlib
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tokenfree.core.child import Child
from tokenfree.core.errors import JobError, StoppedError, logger
from tokenfree.core.ray_access import ADDRESS, named_cluster, untested, write_token
from tokenfree.core.signals import Stop, stop_on_signals
from tokenfree.train.loop.worker import Job
from tokenfree.train.runs.metrics import Line, OnLine
from tokenfree.train.runs.run import Run


def ray_processes(pid: int | None = None, title: str = "ray::") -> list[psutil.Process]:
    """Return the descendants of process `pid` (default: this one) whose title begins with `title`."""
    return [
        process
        for process in psutil.Process(pid).children(recursive=True)
        if _title(process).startswith(title)
    ]


def end_stragglers(processes: list[psutil.Process], *, seconds: float = 3.0) -> None:
    """Give `processes` some time to exit, then kill those that have not."""
    for process in psutil.wait_procs(processes, timeout=seconds)[1]:
        # Does not kill another process that reuses its id.
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _title(process: psutil.Process) -> str:
    # It has ended, or is another user's.
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return next(iter(process.cmdline()), "")
    return ""


_INTERVAL = 0.2  # seconds between checks for a request to stop
_REPEAT_INTERVAL = 4.5  # seconds until a line about waiting is repeated
# Time after which a raylet that shuts down in order is seen to be gone.
_SETTLE_SECONDS = 5.0


class LostPart(NamedTuple):
    words: str
    is_ours: bool  # this command restarts it

    def final(self, where: str) -> JobError:
        action = "look for a lack of memory" if self.is_ours else "start it"
        return JobError(f"{self.words}; {action}, and run the same command again: it resumes {where}")


class RayChild:
    """A function that is connected to Ray and is called in child processes with a `Link` and arguments.

    It first sends its `Session`, pickled, and then messages for `take`, which may answer with `send`. It
    returns None when it is done, else which part of Ray was lost, or "" if it cannot tell. With `stops`, it
    gets the command's signal as the reason to stop. `idle` is called again and again without messages.
    """

    def __init__(
        self,
        function: str,
        *,
        take: Callable[[Any], None],
        keep: Callable[[Path], object],
        stops: bool,
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        self._function, self._stops, self._keep, self._take, self._idle = function, stops, keep, take, idle
        self._environment = _environment()
        note = untested()
        if note:
            logger.warning(note)
        self.is_local = named_cluster(self._environment) is None
        if self.is_local:
            # May be empty or `local`.
            self._environment.pop(ADDRESS, None)
            # Here, where its message is seen.
            write_token()

    def call(self, *arguments: Any) -> LostPart | None:
        """Run the function once.

        Return the part of Ray that was lost, or None. Raises JobError if it failed.
        """
        session: bytes | None = None
        stop: Stop | None = None
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".txt"))
            child = stack.enter_context(
                Child(self._function, *arguments, environment=self._environment, errors=errors)
            )
            self.send = child.send
            for message in child.messages(_INTERVAL):
                # Before that, a signal ends this process at once.
                if message is not None and session is None:
                    session, stop = message, stack.enter_context(stop_on_signals()) if self._stops else None
                elif message is not None:
                    self._take(message)
                else:
                    self._idle()
                if stop:
                    child.send(stop.reason)
            words = child.result(ended="")
            if words is not None and stop:
                message = f"stopped by {stop.reason}; the same command resumes from the newest checkpoint"
                raise StoppedError(message, reason=stop.reason)
            if words == "":
                # A full disk or failing store is reported elsewhere.
                with contextlib.suppress(OSError, JobError):
                    self._keep(Path(errors.name))
        if words is None:
            return None
        if session is None:
            raise JobError("Ray ended the process that was to connect to it; run the same command again")
        return (
            LostPart(words, is_ours=self.is_local)
            if words
            else _what_was_lost(session, is_local=self.is_local)
        )


def _what_was_lost(session: bytes, *, is_local: bool) -> LostPart:
    if is_local:
        return LostPart(
            "the Ray node of this machine (its raylet, or another process of Ray) was lost", is_ours=True
        )
    until = time.monotonic() + _SETTLE_SECONDS
    try:
        while time.monotonic() < until:
            pickle.loads(session).check()
            time.sleep(_INTERVAL)
    except JobError as error:
        return LostPart(str(error), is_ours=False)
    return LostPart("a process of Ray that leads the others was lost", is_ours=True)


def _environment() -> dict[str, str]:
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return dict(os.environ)
    return {**os.environ, ADDRESS: ray.get_runtime_context().gcs_address}


_DRIVER = "tokenfree.train.ray.driver:drive"  # by name: importing Ray takes seconds


@dataclass
class Launch:
    """Passes on lines of a run, and repeats what the start of its workers waits for, every five seconds."""

    progress: OnLine

    def take(self, line: Line) -> None:
        self._line, self._passed_on = line, time.monotonic()
        self.progress(line)

    def idle(self) -> None:
        is_due = time.monotonic() - self._passed_on >= _REPEAT_INTERVAL
        if is_due and self._line.get("event") in ("launch", "worker_lost"):
            self.take(launch_line(self._line["message"]))


def launch_line(message: str) -> Line:
    return {"event": "launch", "step": None, "message": message}


def work_on_ray(job: Job, workers: tuple[int, int], progress: OnLine) -> None:
    """Train the run `job.run` to its end with between `workers[0]` and `workers[1]` workers.

    Raises UserError or JobError if a worker raised it, and JobError if Ray was not reached or was lost too
    often.
    """
    launch, run = Launch(progress), Run(job.run, job.owner)
    launch.take(launch_line(f"starting {workers[1]} workers under Ray: waiting for Ray itself"))
    child = RayChild(
        _DRIVER,
        take=launch.take,
        idle=launch.idle,
        keep=lambda errors: run.keep(errors, "ray/standard_error.txt"),
        stops=True,
    )
    for attempts_left in reversed(range(job.recipe.train.max_restarts + 1)):
        loss = child.call(pickle.dumps(job), workers)
        # The workers were done.
        if loss is None or run.result() is not None:
            return
        if not loss.is_ours or not attempts_left:
            raise loss.final("from the newest checkpoint")
        again = (
            "Ray and the workers again" if child.is_local else "the workers again from the newest checkpoint"
        )
        launch.take(run.add_event("worker_lost", ranks=[], message=f"{loss.words}; starting {again}"))
