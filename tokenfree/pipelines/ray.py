"""Run the stages of a job as tasks of a Ray cluster, with one CPU each.

Only this file of `pipelines` imports Ray.
"""

import contextlib
import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any

import ray
from ray.exceptions import NodeDiedError, RayError, RayTaskError

from tokenfree.core.errors import JobError, TakenOverError, UserError, first_line
from tokenfree.core.ray_access import named_cluster, reach
from tokenfree.preprocess.job.job import PreprocessJob
from tokenfree.preprocess.job.stages import STAGES, Stage, run_if_current
from tokenfree.preprocess.records import InputSplit

_QUIET_SECONDS = 60.0  # without any finished task, until a notice
MAX_LOSSES = 3  # lost workers per task


def check_cluster() -> None:
    """Raise UserError if no cluster is named, or the named one does not answer."""
    if ray.is_initialized():
        return
    named = named_cluster()
    if named is None:
        raise UserError(
            "--runner ray: no Ray cluster is named; set RAY_ADDRESS=HOST:PORT on a machine of it, or use tokenfree "
            "cluster submit -- preprocess ... --runner ray"
        )
    if not reach(named):
        raise UserError(
            f"--runner ray: no head of a Ray cluster answers at RAY_ADDRESS={named}. Start a cluster, give "
            "HOST:PORT of its head, or use tokenfree cluster submit, as for a local cluster or the URL of a dashboard"
        )


def run_stages(job: PreprocessJob, workers: int, notice: Callable[[str], None]) -> None:
    """Run the job on the cluster, in at most `workers` concurrent tasks, or 0 for as many as it has CPUs for.

    `notice` receives a line for each lost worker, whose task another worker repeats. Raises UserError if a
    node does not see the files of the job, JobError if the cluster cannot be joined, and BrokenExecutor if
    workers died repeatedly at one task.
    """
    splits = [InputSplit.from_json(line) for line in (*job.split_lines(), *job.template_lines())]
    read = {path for split in splits for path in split.inputs} | {job.config.vocabulary.model or ""}
    with _joined_cluster():
        shared = ray.put(job), ray.put(sorted(filter(os.path.exists, read)))
        for stage in STAGES:
            _run_stage(stage, run_if_current(stage.count, job) or 0, shared, workers, notice)


def _run_stage(stage: Stage, count: int, shared: Any, workers: int, notice: Callable[[str], None]) -> None:
    # Ray retries silently, but losses must be reported.
    options: Any = {"num_cpus": 1, "max_retries": 0, "scheduling_strategy": "SPREAD", "name": stage.name}
    task: Any = ray.remote(**options)(_do_task)
    waiting, losses = list(reversed(range(count))), Counter[int]()
    running: dict[Any, int] = {}
    is_quiet = False
    try:
        while waiting or running:
            while waiting and len(running) < (workers or count):
                index = waiting.pop()
                running[task.remote(*shared, stage.function, index)] = index
            done, _ = ray.wait(list(running), timeout=_QUIET_SECONDS)
            if not done and not is_quiet:
                is_quiet = True
                notice(
                    f"no task has ended for {_QUIET_SECONDS:g} s. See ray status for whether CPUs are free"
                )
            for future in done:
                index = running.pop(future)
                try:
                    ray.get(future)
                except RayTaskError as error:
                    raise error.cause from error
                except RayError as error:
                    losses[index] += 1
                    if losses[index] == MAX_LOSSES:
                        raise BrokenExecutor from error
                    what = "its node was lost" if isinstance(error, NodeDiedError) else "out of memory?"
                    notice(f"a worker on the Ray cluster died ({what}); its task is repeated")
                    waiting.append(index)
    finally:
        for future in running:
            ray.cancel(future, force=True)


def _do_task(
    job: PreprocessJob, paths: Sequence[str], function: Callable[[PreprocessJob, int], object], index: int
) -> None:
    missing = _missing(job, paths)
    if missing is not None:
        raise UserError(
            f"{missing}: the Ray node {ray.util.get_node_ip_address()} does not see it; give an address such as "
            "s3://bucket/data, or the whole path in a folder that all nodes have mounted"
        )
    run_if_current(function, job, index)


def _missing(job: PreprocessJob, paths: Sequence[str]) -> str | None:
    storage = job.storage
    if storage.is_local:
        try:
            storage.check()
        except TakenOverError:
            return storage.url
    return next((path for path in paths if not os.path.exists(path)), None)


@contextlib.contextmanager
def _joined_cluster() -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=named_cluster(), logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:  # Ray raises plain exceptions here
        raise JobError(
            f"the Ray cluster at RAY_ADDRESS={named_cluster()} could not be joined: {first_line(error)}"
        ) from error
    if threading.current_thread() is threading.main_thread():
        # Ray's handler prints a stack.
        signal.signal(signal.SIGTERM, terminate or signal.SIG_DFL)
    try:
        yield
    finally:
        ray.shutdown()
