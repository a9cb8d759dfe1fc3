"""The workers' process group under Ray Train: joined on the addresses of their Ray nodes, ended by killing them."""

from __future__ import annotations

import datetime
import os
import signal
import socket
from typing import Any

import ray
import ray.train
from ray.train.backend import Backend
from ray.train.torch import TorchConfig

from tokenfree.train.loop.parallel import join, keep_to, listen
from tokenfree.train.loop.stopping import Stop

notice = Stop()  # request to stop this process, if it is a worker; SIGTERM sets it
_listeners: list[socket.socket] = []  # used in the process of rank 0


class TorchGroup(TorchConfig):
    """A TorchConfig with the backend below. `backend` must be given."""

    @property
    def backend_cls(self) -> type[Backend]:
        """Class with which Ray Train starts and shuts down a group of workers."""
        return _TorchGroupBackend


class _TorchGroupBackend(Backend):
    share_cuda_visible_devices = True  # as in Ray's own backend for torch

    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        """Join the workers into one process group."""
        address, port = worker_group.execute_single(0, _listen)
        worker_group.execute(_join, backend_config.backend, address, port, backend_config.timeout_s)

    def on_shutdown(self, worker_group: Any, backend_config: TorchConfig) -> None:
        """Kill the workers. Their output is already written, or belongs to a step that is repeated.

        Ray's own shutdown has workers leave the process group in order. It waits up to 35 seconds for those of a lost
        node.
        """
        for worker in worker_group.get_workers():
            ray.kill(worker.actor)


def _listen() -> tuple[str, int]:
    address = ray.util.get_node_ip_address()
    _listeners.append(listen(address))
    return address, _listeners[-1].getsockname()[1]


def _join(backend: str, address: str, port: int, seconds: float) -> None:
    """Join this worker to the process group. This runs in its main thread."""
    # SIGTERM announces that this machine goes away. Training runs in another thread, which cannot handle signals.
    signal.signal(signal.SIGTERM, lambda number, frame: notice.ask("SIGTERM", goes_on=True))
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    names = {  # https://pytorch.org/docs/stable/elastic/run.html#environment-variables
        "RANK": rank,
        "WORLD_SIZE": world_size,
        "LOCAL_RANK": context.get_local_rank(),
        "LOCAL_WORLD_SIZE": context.get_local_world_size(),
        "NODE_RANK": context.get_node_rank(),
    }
    os.environ.update({name: str(value) for name, value in names.items()})
    keep_to(ray.util.get_node_ip_address())
    join(
        backend,
        rank=rank,
        world_size=world_size,
        address=address,
        port=port,
        listener=_listeners.pop() if rank == 0 else None,
        timeout=datetime.timedelta(seconds=seconds),
    )
