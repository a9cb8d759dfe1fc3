"""A Ray session for a `with` block: the cluster of RAY_ADDRESS, or a fresh local one."""

import contextlib
import functools
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import psutil
import ray
from ray.exceptions import RayActorError

from tokenfree.core.errors import JobError, first_line
from tokenfree.core.machine import cores
from tokenfree.core.ray_access import (
    RAY_LOSSES,
    Address,
    answers,
    host_and_port,
    named_cluster,
    reach,
    require_token,
    session_folder,
)
from tokenfree.train.ray.child import end_stragglers, ray_processes
from tokenfree.train.ray.internals import check, muted, on_loopback

SETTINGS: Mapping[str, str] = {  # defaults that the user's environment overrides
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",  # how soon a lost worker is noticed; 2 by default
    "RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION": "0",
    # Ray's own cleaner gives up; it once destroyed a healthy group.
    "RAY_API_SERVER_ADDRESS": "no_state_api://here",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's future default; without it each start prints a warning
    "RAY_AIR_NEW_OUTPUT": "0",  # Tune's new output prints banners at any verbosity
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the journal of a sweep has the same
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # so that Ctrl-C interrupts as usual
    "OMP_WAIT_POLICY": "passive",  # threads that spin while waiting made a busy machine 40 times slower
}

TUNE_LOGGERS = ("ray.tune", "ray.train")  # the journal of a sweep has the same


@contextlib.contextmanager
def ray_environment(more: Mapping[str, str] | None = None, *, mute: Sequence[str] = ()) -> Iterator[None]:
    """Set `SETTINGS` and `more` for the block, except what the user has set. `mute` names loggers to silence."""
    added = {name: value for name, value in {**SETTINGS, **(more or {})}.items() if name not in os.environ}
    levels = {name: logging.getLogger(name).level for name in mute}
    os.environ.update(added)
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        with muted(RAY_LOSSES):
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        for name in added:
            del os.environ[name]


_ANSWER_SECONDS = 1.0
_HEAD_PATIENCE = 45.0  # seconds that a cluster may take to restart its head; after 60 Ray ends this process
_INTERVAL = 1.0  # seconds between checks of the parts of Ray
_SETTLE_SECONDS = 2.0
_LOOK_SECONDS = 1.0  # seconds between a worker's checks of the head and of other machines
# A worker that reaches no other machine for this time considers its own cut off.
_CUT_OFF_SECONDS = 5.0
_MAX_MACHINES = 3  # maximum number of machines to check, in addition to the head


class RayLost(JobError):
    """Raised when a part of Ray that the whole session needs is lost."""


class Session:
    """The parts of Ray that a session needs: its node and the head, which is never restarted if it is `local`."""

    def __init__(self, node: Address, head: Address, *, local: bool) -> None:
        self._node, self._head, self._local = node, head, local
        self._head_answered = time.monotonic()

    @classmethod
    def current(cls, *, local: bool) -> Self:
        context = ray.get_runtime_context()
        (node,) = (node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
        return cls((node["NodeManagerAddress"], node["NodeManagerPort"]), _head_address(), local=local)

    def check(self) -> None:
        """Raise RayLost if the node or the head is gone."""
        if answers(self._node, seconds=_ANSWER_SECONDS) is False:
            raise RayLost("the Ray node of this machine (its raylet, or another process of Ray) was lost")
        head = answers(self._head, seconds=_ANSWER_SECONDS)
        if head:
            self._head_answered = time.monotonic()
        elif (self._local and head is False) or time.monotonic() - self._head_answered > _HEAD_PATIENCE:
            raise RayLost("the head of the Ray cluster (its GCS) was lost")


def run_watched(call: Callable[[], object], session: Session) -> None:
    """Make a long call in a thread: in the main thread, Ray would handle Ctrl-C.

    Raises RayLost if Ray is lost.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # Ray raises SystemExit here when it goes down
            errors.append(error)

    thread = threading.Thread(target=run, name="watched", daemon=True)
    thread.start()
    while thread.is_alive() or errors:
        thread.join(_INTERVAL)
        if errors and isinstance(errors[0], RayActorError):
            # The controller's node may go down with it, which is then the loss to report.
            time.sleep(_SETTLE_SECONDS)
        if thread.is_alive() or errors:
            session.check()
        if errors:
            raise errors[0]


@contextlib.contextmanager
def exit_if_cut_off() -> Iterator[None]:
    """End this process, a worker, if it is cut off from the cluster during the block.

    Ray does so only after minutes. A machine that reaches none of several others is cut off. A silent head
    alone may be restarting.
    """
    head = _head_address()
    others = _other_machines(head)
    done = threading.Event()

    def watch() -> None:
        answered = reached = time.monotonic()
        with ThreadPoolExecutor(1 + len(others)) as pool:
            while not done.wait(_LOOK_SECONDS):
                answer, *reachable = pool.map(
                    functools.partial(answers, seconds=_ANSWER_SECONDS), [head, *others]
                )
                now = time.monotonic()
                answered = now if answer else answered
                reached = now if any(reply is not None for reply in (answer, *reachable)) else reached
                if now - answered > _HEAD_PATIENCE or (others and now - reached > _CUT_OFF_SECONDS):
                    os._exit(1)

    threading.Thread(target=watch, name="head", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _other_machines(head: Address) -> list[Address]:
    nodes = [node for node in ray.nodes() if node["Alive"]]
    here = {
        node["NodeManagerAddress"]
        for node in nodes
        if node["NodeID"] == ray.get_runtime_context().get_node_id()
    }
    ports = {node["NodeManagerAddress"]: node["NodeManagerPort"] for node in nodes}
    return [(address, port) for address, port in ports.items() if address not in {*here, head[0]}][
        :_MAX_MACHINES
    ]


def _head_address() -> Address:
    address = host_and_port(ray.get_runtime_context().gcs_address)
    assert address is not None
    return address


@contextlib.contextmanager
def ray_session(num_cpus: int | None = None) -> Iterator[Session]:
    """Connect to Ray for the block, or start a local cluster without RAY_ADDRESS.

    Raises JobError if that fails. A local cluster is reachable only from this machine, and never shared: two
    commands would disturb each other.
    """
    check()
    if ray.is_initialized():
        yield Session.current(local=False)
        return
    named, options = named_cluster(), dict[str, Any]()
    local, folder = named is None, ""
    if named is None:
        require_token()
        folder = session_folder()
        options = {"num_cpus": num_cpus or cores(), "include_dashboard": False, "_temp_dir": f"{folder}/ray"}
    elif not reach(named):
        raise JobError(
            f"no Ray cluster answers at RAY_ADDRESS={named}; start one and give HOST:PORT of its head, use "
            "tokenfree cluster submit, or unset it to use this machine alone"
        )
    started: list[psutil.Process] = []
    with on_loopback() if local else contextlib.nullcontext():
        try:
            ray.init(named or "local", **options, logging_level=logging.ERROR, log_to_driver=False)
        except Exception as error:  # Ray raises plain exceptions here
            where = "on this machine" if local else f"at RAY_ADDRESS={named}"
            raise JobError(
                f"Ray could not be started {where}: {first_line(error)}; fix it, such as with RAY_TMPDIR=/tmp "
                "or a HOME that can be written, and run the same command again"
            ) from error
        try:
            yield Session.current(local=local)
        finally:
            if local:
                started = ray_processes()
            ray.shutdown()
            end_stragglers(started)
            if local:
                shutil.rmtree(folder, ignore_errors=True)
