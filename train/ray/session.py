"""A Ray session for a `with` block: the one this process has, the cluster of RAY_ADDRESS, or a fresh local one."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import ray

from tokenfree.preprocess.common.errors import JobError
from tokenfree.train.machine.cpus import cores
from tokenfree.train.machine.processes import end_stragglers, ray_processes

_REACH_SECONDS = 5.0


@contextmanager
def ray_session(num_cpus: int | None = None) -> Iterator[None]:
    """Be connected to Ray; a local cluster (of `num_cpus` CPUs, by default this process's) is stopped afterwards.

    A new local cluster is never shared: joining whatever runs on the machine would make two commands hurt each other.

    Raises:
        JobError: Ray could not be started, or reached.
    """
    if ray.is_initialized():
        yield
        return
    local = "RAY_ADDRESS" not in os.environ
    if not local:
        _reach(os.environ["RAY_ADDRESS"])
    own: dict[str, Any] = {"address": "local", "num_cpus": num_cpus or cores(), "include_dashboard": False}
    try:
        ray.init(**(own if local else {}), logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:  # Ray raises plain exceptions here
        where = "on this machine" if local else f"at RAY_ADDRESS={os.environ['RAY_ADDRESS']}"
        first_line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise JobError(f"Ray could not be started {where}: {first_line}; run the same command again") from error
    started: list[psutil.Process] = []
    try:
        yield
    finally:
        if local:
            started = ray_processes()
        ray.shutdown()
        end_stragglers(started)


def _reach(address: str) -> None:
    """See that something listens at HOST:PORT, for which Ray itself would wait for minutes. Raises JobError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():  # such as `auto`
        return
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_SECONDS).close()
    except OSError as error:
        raise JobError(
            f"no Ray cluster answers at RAY_ADDRESS={address} ({error.strerror or error}); start one, or unset it to "
            "use this machine alone"
        ) from error
