"""Run the stages of a job on this machine: in this process, or in several forked from a server that has imported it."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection

from tokenfree.core.signals import OF_GROUPS, on_first_signal
from tokenfree.preprocess.job.job import PreprocessJob
from tokenfree.preprocess.job.merges import merged_names
from tokenfree.preprocess.job.read import num_runs
from tokenfree.preprocess.job.stages import STAGES, run_if_current
from tokenfree.preprocess.job.steps import num_shards

ATTEMPTS_IN_VAIN = 2


def run_stages(job: PreprocessJob, workers: int) -> None:
    """Run the job in this process if `workers` is 1, else in that many others.

    One of several that dies (killed, out of memory) loses only uncommitted work. Raises BrokenProcessPool if
    processes died in several consecutive attempts that committed nothing.
    """
    if workers == 1:
        for stage in STAGES:
            for index in range(run_if_current(stage.count, job) or 0):
                run_if_current(stage.function, job, index)
        return
    in_vain = 0
    while True:
        num_committed = _num_committed(job)
        try:
            return _attempt(job, workers)
        except BrokenProcessPool:
            in_vain = in_vain + 1 if _num_committed(job) == num_committed else 0
            if in_vain == ATTEMPTS_IN_VAIN:
                raise


def _num_committed(job: PreprocessJob) -> int:
    return num_runs(job) + len(merged_names(job)) + num_shards(job)


def _attempt(job: PreprocessJob, workers: int) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    # Nothing is sent. Workers exit as soon as this end closes, on purpose or because the command was killed.
    end, ours = context.Pipe(duplex=False)
    # The pool starts a process that tracks its semaphores.
    with _without_interrupts():
        pool = ProcessPoolExecutor(workers, context, _begin, (end, dict(os.environ)))
    with end, ours, pool:
        try:
            for stage in STAGES:
                with _without_main(), _without_interrupts():
                    tasks = [
                        pool.submit(run_if_current, stage.function, job, index)
                        for index in range(run_if_current(stage.count, job) or 0)
                    ]
                for task in as_completed(tasks):
                    task.result()
        except BaseException:
            ours.close()
            raise


def _begin(end: Connection, environment: Mapping[str, str]) -> None:
    """Prepare a worker. It ignores Ctrl-C, because the command decides how workers stop."""
    # The server that forks workers keeps the environment of the first job, but a program may have changed its
    # own.
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(end,), daemon=True).start()


def _end_with(end: Connection) -> None:
    end.poll(None)
    os._exit(1)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Delay a signal to the end of the block, and block those of groups in processes that start there.

    They end with the command. Imports would fail before.
    """
    kinds = list[signal.Signals]()
    # Another thread may get it.
    with on_first_signal(kinds.append):
        # Processes inherit it.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *OF_GROUPS})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    for kind in kinds:
        signal.raise_signal(kind)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Start workers without the main module of the command.

    They do not need it, and a script without `if __name__ == "__main__"` would run again in each of them.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
