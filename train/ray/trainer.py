"""Ray Train's trainer as tokenfree needs it, and the wait for its end."""

from __future__ import annotations

import threading
import time
from typing import Any

from ray.exceptions import RayActorError
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from tokenfree.train.ray.cleaner import CleanerCallback
from tokenfree.train.ray.internals import leave_out_datasets
from tokenfree.train.ray.scaling import NodeCallback
from tokenfree.train.ray.session import Session
from tokenfree.train.ray.torch_group import TorchGroup

_INTERVAL = 1.0  # seconds between two looks at the parts of Ray
_SETTLE_SECONDS = 2.0


def make_trainer(
    train_loop: Any,
    config: dict[str, Any],
    scaling: ScalingConfig,
    *,
    name: str,
    failures: FailureConfig,
    callbacks: list[Any] | None = None,
    timeout_s: int = TorchGroup.timeout_s,
    **storage: Any,
) -> TorchTrainer:
    """A trainer whose workers listen on their nodes' addresses, and whose worker groups are on nodes that answer.

    Args:
        train_loop: what every worker runs, with `config`.
        name: of the run of Ray Train; an old one would revive Ray's old state.
        callbacks: those of the run, before those that all runs have.
        timeout_s: seconds, of a collective operation.
        storage: the arguments of RunConfig for where Ray Train writes.
    """
    all_callbacks: Any = [*(callbacks or []), NodeCallback(), CleanerCallback()]  # Ray takes more than it says
    trainer = TorchTrainer(
        train_loop,
        train_loop_config=config,
        scaling_config=scaling,
        torch_config=TorchGroup(backend="nccl" if scaling.use_gpu else "gloo", timeout_s=timeout_s),
        run_config=RunConfig(
            name=name,
            failure_config=failures,
            callbacks=all_callbacks,
            **storage,
        ),
    )
    leave_out_datasets(trainer)
    return trainer


def fit(trainer: TorchTrainer, session: Session) -> None:
    """Train to the end, in a thread of its own: in the main one Ray would take Ctrl-C for itself.

    Raises:
        RayLost: a part of Ray was lost that all stands on; its other parts may still run.
        Exception: what `trainer.fit` raises.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            trainer.fit()
        except BaseException as error:  # Ray raises SystemExit here when it goes down
            errors.append(error)

    thread = threading.Thread(target=run, name="fit", daemon=True)
    thread.start()
    while thread.is_alive() or errors:
        thread.join(_INTERVAL)
        if thread.is_alive() or errors:
            session.check()
        if errors:
            _settle(errors[0], session)
            raise errors[0]


def _settle(error: BaseException, session: Session) -> None:
    """Where the controller was lost, wait whether its node is going down with it.

    Ray ends a process that uses the objects of a node that is gone: as soon as the GCS knows of the loss, this one too,
    whose training function is such an object. A raylet that was killed may be noticed here first; one that ends in
    order, since an agent of it was killed, is not.
    """
    until = time.monotonic() + (_SETTLE_SECONDS if isinstance(error, RayActorError) else 0.0)
    while time.monotonic() < until:
        time.sleep(0.2)
        session.check()
