"""Ray Train's trainer as tokenfree needs it."""

from __future__ import annotations

from typing import Any

from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from tokenfree.train.ray.cleaner import CleanerCallback
from tokenfree.train.ray.internals import leave_out_datasets
from tokenfree.train.ray.scaling import NodeCallback
from tokenfree.train.ray.torch_group import TorchGroup


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
