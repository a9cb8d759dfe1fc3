"""The workers of a run under Ray Train, and the channel between the command and rank 0.

Ray places the workers, joins them to one torch.distributed group and restarts them after a loss. The training
state is not Ray's: each new group of workers resumes from the newest valid checkpoint of the run folder.
"""

import contextlib
import datetime
import functools
import os
import pickle
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
import ray.train
from pyarrow.fs import FSSpecHandler, PyFileSystem
from ray.exceptions import RayError
from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
from ray.train.backend import Backend
from ray.train.torch import TorchConfig, TorchTrainer, get_device
from ray.util.metrics import Gauge
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tokenfree.core.child import Link
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.machine import cores
from tokenfree.core.own_code import working_directory_first
from tokenfree.core.ray_access import named_cluster
from tokenfree.core.settings_values import to_mapping
from tokenfree.core.signals import STOP_SIGNALS, Stop
from tokenfree.core.storage import Storage
from tokenfree.train.loop.worker import Job, work
from tokenfree.train.ray.callbacks import NodeCallback, ResizeCallback
from tokenfree.train.ray.child import launch_line
from tokenfree.train.ray.cluster import (
    RayLost,
    Session,
    exit_if_cut_off,
    ray_environment,
    ray_session,
    run_watched,
)
from tokenfree.train.ray.internals import leave_out_datasets
from tokenfree.train.ray.process_group import join, keep_to, listen
from tokenfree.train.ray.worker_errors import LossCallback, LostPeer, explain, is_of_collective
from tokenfree.train.runs.metrics import Line, OnLine
from tokenfree.train.runs.run import STARTS, Run

_INTERVAL = 0.2  # seconds between calls
# Seconds to wait for an answer, because Ray may never answer without its head.
_TIMEOUT = 20.0


class Channel:
    """An actor on the machine of the command that passes on lines and requests to stop.

    Its methods return at once.
    """

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._asked: tuple[str, bool] | None = None

    def post(self, lines: list[Line]) -> tuple[str, bool] | None:
        """Add lines of metrics or events.

        Return the arguments of `Stop.ask` if training must stop, else None.
        """
        self._lines += lines
        asked = self._asked
        if asked is not None and asked[1]:
            # Restarted workers must not stop again.
            self._asked = None
        return asked

    def take(self) -> list[Line]:
        lines, self._lines = self._lines, []
        return lines

    def ask_to_stop(self, reason: str, resumes: bool) -> None:
        """Ask the workers to stop.

        A request after which the run resumes (`resumes`) does not replace one to end it.
        """
        if self._asked is None or not resumes:
            self._asked = (reason, resumes)


@contextlib.contextmanager
def connect_worker(channel: Any, stop: Stop) -> Iterator[OnLine]:
    """Yield a function that sends lines to the command, in the worker of rank 0.

    Ask `stop` if training must stop.
    """
    waiting: list[Line] = []

    def post() -> None:
        lines = waiting.copy()
        asked = ray.get(channel.post.remote(lines), timeout=_TIMEOUT)
        del waiting[: len(lines)]
        if asked is not None:
            stop.ask(asked[0], resumes=asked[1])

    with _repeated(post):
        yield waiting.append


@contextlib.contextmanager
def _repeated(act: Callable[[], None]) -> Iterator[None]:
    ended = threading.Event()

    def run() -> None:
        while True:
            last = ended.wait(_INTERVAL)
            # The cluster is going down.
            with contextlib.suppress(RayError):
                act()
            if last:
                return

    thread = threading.Thread(target=run, name="channel", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


GAUGES = {
    "loss": "Training loss in nats per target",
    "validation_loss": "Held-out loss in nats per target",
    "characters_per_second": "Characters trained per second",
    "utilisation": "Share of the measured peak of the devices",
    "restarts": "Restarts of the workers of the run",
}


class RunGauges:
    """Gauges of one run on the metrics endpoint of the node of the command, such as `ray_tokenfree_loss{run=...}`.

    All lines of the run pass through the process of the command, so workers take no part in this.
    """

    def __init__(self, run: Run) -> None:
        self._tags, self._values = {"run": run.name}, {"restarts": float(run.num_restarts())}
        self._gauges = {name: Gauge(f"tokenfree_{name}", text, ("run",)) for name, text in GAUGES.items()}

    def record(self, lines: Sequence[Line]) -> None:
        """Take new lines, and set all gauges, because Ray exports a value only once."""
        for line in lines:
            self._values |= {name: line[name] for name in GAUGES.keys() & line.keys()}
            self._values["restarts"] += line.get("event") in STARTS
            if "seconds" in line:
                self._values["characters_per_second"] = line["characters"] / line["seconds"]
        for name, value in self._values.items():
            self._gauges[name].set(value, self._tags)


notice = Stop()  # request to stop this process, if it is a worker; signals set it
_listeners: list[socket.socket] = []  # used in the process of rank 0


class TorchGroup(TorchConfig):
    """A TorchConfig whose workers join on the addresses of their Ray nodes, and are ended by killing them."""

    @property
    def backend_cls(self) -> type[Backend]:
        return _TorchGroupBackend


class _TorchGroupBackend(Backend):
    share_cuda_visible_devices = True  # as in Ray's own backend for torch

    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        address, port = worker_group.execute_single(0, _listen)
        worker_group.execute(_join, backend_config.backend, address, port, backend_config.timeout_s)

    def on_shutdown(self, worker_group: Any, backend_config: TorchConfig) -> None:
        """Kill the workers, whose output is written.

        Ray's own shutdown waits 35 seconds for those of a lost node.
        """
        for worker in worker_group.get_workers():
            ray.kill(worker.actor)


def _listen() -> tuple[str, int]:
    address = ray.util.get_node_ip_address()
    _listeners.append(listen(address))
    return address, _listeners[-1].getsockname()[1]


def _join(backend: str, address: str, port: int, seconds: float) -> None:
    # They announce that this machine or process ends. Training runs in another thread, which cannot handle
    # signals.
    for kind in STOP_SIGNALS[1:]:
        signal.signal(kind, lambda number, frame: notice.ask(signal.Signals(number).name, resumes=True))
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


# Seconds between checks for room for more workers.
_RESIZE_INTERVAL = 20.0
# A local cluster has no dashboard. It is never drained, so it needs no watcher, which is a process that starts
# with each group of workers.
_ALONE = {"RAY_TRAIN_METRICS_ENABLED": "0", "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0"}


def drive(link: Link, job: bytes, workers: tuple[int, int]) -> str | None:
    """Train a pickled `Job`, as the function of a `RayChild`.

    Raises UserError or JobError if a worker or Ray fails.
    """
    stop = Stop()
    link.listen(stop.ask)
    more = {
        # Timeout for room on the nodes, then Ray plans again.
        **({"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "10"} if workers[0] < workers[1] else {}),
        # Fills the page Train of the dashboard.
        **(_ALONE if named_cluster() is None else {"RAY_TRAIN_ENABLE_STATE_TRACKING": "1"}),
    }
    with ray_environment(more):
        try:
            _in_session(_unpickled(job), workers, link, stop)
        except RayLost as error:
            return str(error)
        except RayError:  # an actor was lost or does not answer
            return ""
    return None


def _in_session(job: Job, workers: tuple[int, int], link: Link, stop: Stop) -> None:
    train, (min_workers, max_workers) = job.recipe.train, workers
    threads = train.threads or (max(1, cores() // max_workers) if named_cluster() is None else 1)
    with ray_session(max(cores(), threads * max_workers)) as session:
        use_gpu = uses_gpus(train.device, ray.cluster_resources().get("GPU", 0), min_workers)
        link.send(pickle.dumps(session))
        link.send(
            launch_line(f"waiting for Ray to place and start {max_workers} workers, each with CPU: {threads}")
        )
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        channel: Any = ray.remote(num_cpus=0)(Channel)
        channel = channel.options(scheduling_strategy=here).remote()

        gauges = RunGauges(Run(job.run))

        def forward() -> None:
            if stop:
                channel.ask_to_stop.remote(stop.reason, False)
            lines = ray.get(channel.take.remote(), timeout=_TIMEOUT)
            gauges.record(lines)
            for line in lines:
                link.send(line)

        with _repeated(forward):
            _run_trainer(job, workers, threads, use_gpu, channel, session)


def _run_trainer(
    job: Job, workers: tuple[int, int], threads: int, use_gpu: bool, channel: Any, session: Session
) -> None:
    storage = Storage.at(job.run)
    # New, or Ray would restore its old state.
    name = f"attempt_{1 + len(storage.names('ray')):04d}"
    restarts = job.recipe.train.max_restarts
    scaling = ScalingConfig(
        num_workers=workers[0] if workers[0] == workers[1] else workers,
        use_gpu=use_gpu,
        elastic_resize_monitor_interval_s=_RESIZE_INTERVAL,
        resources_per_worker={"CPU": threads, **({"GPU": 1} if use_gpu else {})},
    )
    callbacks: list[Any] = [LossCallback(job.run, job.owner, channel, restarts)]
    if scaling.elasticity_enabled:
        callbacks.append(ResizeCallback(scaling, channel))
    # Ray accepts more than it declares.
    callbacks.append(NodeCallback())
    trainer = TorchTrainer(
        functools.partial(_work_on_worker, pickle.dumps(job), channel),
        # The dashboard shows it.
        train_loop_config={"run": job.run, "recipe": to_mapping(job.recipe), "threads": threads},
        scaling_config=scaling,
        torch_config=TorchGroup(backend="nccl" if use_gpu else "gloo"),
        run_config=RunConfig(
            name=name,
            failure_config=FailureConfig(max_failures=-1, controller_failure_limit=restarts),
            callbacks=callbacks,
            storage_path=storage.path("ray"),
            storage_filesystem=None if storage.is_local else PyFileSystem(FSSpecHandler(storage.fs)),
        ),
    )
    leave_out_datasets(trainer)
    run = Run(job.run)
    try:
        run_watched(trainer.fit, session)
    except TrainingFailedError as error:
        # Otherwise the workers were done.
        if run.result() is None:
            raise explain(error, run, f"ray/{name}") from error
    finally:
        _keep_logs(run, f"ray/{name}/logs")


def _work_on_worker(pickled_job: bytes, channel: Any, config: dict[str, Any]) -> None:
    context = ray.train.get_context()
    rank, job = context.get_world_rank(), _unpickled(pickled_job)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(exit_if_cut_off())
            on_line = stack.enter_context(connect_worker(channel, notice)) if rank == 0 else None
            if on_line:
                on_line(launch_line("the workers are connected; they load the model and the data"))
            work(
                job,
                rank=rank,
                world_size=context.get_world_size(),
                device=str(get_device()),
                threads=config["threads"],
                on_line=on_line,
                on_report=lambda line: ray.train.report(dict(line)),
                stop=notice,
            )
    except (UserError, JobError):
        raise
    except Exception as error:
        if is_of_collective(error):
            raise LostPeer(str(error)) from error
        run, name = Run(job.run), f"ray/error_of_worker_{rank}.txt"
        run.storage.write_bytes(name, traceback.format_exc().encode())
        raise JobError(f"{type(error).__name__}: {error}; its traceback is in {run.name}/{name}") from error


def _unpickled(job: bytes) -> Job:
    """Return the job in a worker. Ray would treat an import error as a loss and restart workers forever."""
    try:
        # As in the command: a user's module may hide another one.
        with working_directory_first():
            return pickle.loads(job)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"a part of your own cannot be imported ({error}); have its module on every node: at the same path, "
            "installed, or sent along with the job"
        ) from error


def uses_gpus(device: str, there: float, min_workers: int) -> bool:
    """Return True if each of at least `min_workers` workers gets a GPU that Ray has now, by `train.device`."""
    return device == "cuda" or (device == "auto" and there >= min_workers)


def _keep_logs(run: Run, folder: str) -> None:
    context = ray.get_runtime_context()
    logs = Path(context.get_temp_dir()) / context.get_session_name() / "logs" / "train"
    for log in sorted(logs.iterdir()) if logs.is_dir() else []:
        run.keep(log, f"{folder}/{log.name}")
