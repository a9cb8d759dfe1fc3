"""A Ray session for a `with` block: the one this process has, the cluster of RAY_ADDRESS, or a fresh local one."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from train.processes import Process, end_stragglers, ray_processes


def cores() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def ray_session(num_cpus: int | None = None) -> Iterator[None]:
    """Be connected to Ray; a local cluster (of `num_cpus`, by default this process's) is stopped afterwards.

    A new local cluster is never shared: joining whatever runs on the machine would make two commands hurt each other.
    """
    if ray.is_initialized():
        yield
        return
    local = "RAY_ADDRESS" not in os.environ
    if not local:
        ray.init(logging_level=logging.ERROR, log_to_driver=False)
    else:
        ray.init(
            address="local",
            num_cpus=num_cpus or cores(),
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    started: list[Process] = []
    try:
        yield
    finally:
        if local:
            started = ray_processes()
        ray.shutdown()
        end_stragglers(started)
