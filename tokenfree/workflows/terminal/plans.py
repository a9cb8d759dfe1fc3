"""Output of `preprocess --dry-run` and `tokenfree plan`: numbers for programs, lines for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenfree.pipelines.dry_run import VOCABULARY_BYTES, WORKER_BYTES, PlanDescription
from tokenfree.workflows.terminal.progress import counted
from tokenfree.workflows.terminal.results import money, size_of, time_of

if TYPE_CHECKING:
    from tokenfree.train.model.costs import Memory
    from tokenfree.train.planning import Work


def told(plan: PlanDescription, workers: int, price: float | None) -> str:
    """Return the plan of a preprocessing job as lines of text. `price` is per worker and hour."""
    reading = plan.estimated_seconds / min(workers, plan.splits)  # a split is read by one worker
    seconds = reading + plan.vocabulary_seconds
    vocabulary, included, most = "", "", WORKER_BYTES
    if plan.vocabulary_characters:
        time = time_of(plan.vocabulary_seconds)
        vocabulary = f"to train    a vocabulary, on about {plan.vocabulary_characters:,} characters: about {time}\n"
        included, most = ", that of the vocabulary included", VOCABULARY_BYTES
    made = f"{size_of(plan.estimated_output_bytes)} in about {counted(plan.estimated_shards, 'shard')}"
    paid = "" if price is None else f"\nmoney       about {money(price * workers * seconds / 3600)}"
    return (
        f"to read     {counted(plan.inputs, 'input')}, {counted(plan.splits, 'split')}, {size_of(plan.bytes)}\n"
        f"to write    about {plan.estimated_characters:,} characters of text, {made}\n"
        f"{vocabulary}"
        f"time        about {time_of(seconds)} with {counted(workers, 'worker')}{included}\n"
        f"memory      up to {size_of(most)} of the largest process, whatever the input (docs/performance.md)\n"
        f"measured    on its first pages, read here for a second at most; workers count as cores like this one{paid}"
    )


@dataclass(frozen=True)
class RunPlan:
    """A planned run. Bytes are per device, or on disk; seconds are per step or for the whole run."""

    recipe: str
    steps: int
    global_batch: int
    work: Work
    where: str  # description of the devices
    devices: int  # number of devices that are paid for
    examples: int  # number of examples that a device holds at once
    step_seconds: float  # includes the exchange of gradients
    exchange_seconds: float
    seconds: float
    memory: Memory
    device_bytes: float
    checkpoint_bytes: int
    num_checkpoints: int  # kept at the end of the run
    metrics_bytes: int
    price: float | None  # per device and hour
    measured: tuple[str, ...]  # measurements behind the numbers, one line each
    assumed: tuple[str, ...]

    @property
    def cost(self) -> float | None:
        """Cost of the whole run, in the currency of the price."""
        return None if self.price is None else self.price * self.devices * self.seconds / 3600

    def numbers(self) -> dict[str, object]:
        """Return the mapping that `--json` prints."""
        return {
            "steps": self.steps,
            "flops": self.work.example_flops * self.global_batch * self.steps,
            "parameters": self.work.parameters,
            "devices": self.devices,
            "step_seconds": self.step_seconds,
            "exchange_seconds": self.exchange_seconds,
            "seconds": self.seconds,
            "device_hours": self.devices * self.seconds / 3600,
            "memory_bytes": {**self.memory._asdict(), "total": self.memory.total},
            "checkpoint_bytes": self.checkpoint_bytes,
            "checkpoints": self.num_checkpoints,
            "metrics_bytes": self.metrics_bytes,
            "data_bytes": self.work.data_bytes,
            "cost": self.cost,
            "measured": self.measured,
            "assumed": self.assumed,
        }


def run_plan_lines(plan: RunPlan) -> Iterator[str]:
    """Yield the lines of the plan."""
    work = plan.work
    yield f"{plan.recipe} on {plan.where}: an estimate"
    yield f"work      {counted(plan.steps, 'step')} of {counted(plan.global_batch, 'example')}, " + (
        f"{work.example_flops * plan.global_batch:.3g} FLOPs a step"
    )
    yield f"model     {work.parameters:,} parameters, head of the objective included"
    exchange = f", {_seconds(plan.exchange_seconds)} of it for gradients" if plan.exchange_seconds else ""
    yield f"step      {_seconds(plan.step_seconds)}{exchange}"
    yield f"time      {time_of(plan.seconds)}, {plan.devices * plan.seconds / 3600:,.3g} device-hours"
    sizes = ", ".join(f"{name} {size_of(size)}" for name, size in plan.memory._asdict().items())
    yield f"memory    {size_of(plan.memory.total)} a device with {counted(plan.examples, 'example')} at once"
    yield f"          ({sizes})"
    if plan.memory.total > 0.9 * plan.device_bytes:
        yield f"          more than a device of {size_of(plan.device_bytes)} holds: lower train.micro_batch"
    total = plan.num_checkpoints * plan.checkpoint_bytes + plan.metrics_bytes
    yield f"disk      {size_of(total)}: {counted(plan.num_checkpoints, 'checkpoint')} of " + (
        f"{size_of(plan.checkpoint_bytes)}, metrics {size_of(plan.metrics_bytes)}"
    )
    if work.data_bytes is not None:
        yield f"data      {size_of(work.data_bytes)} of shards, read {work.epochs:.3g} times"
    cost = "give --price, of a device for an hour" if plan.cost is None else money(plan.cost)
    yield f"money     {cost}"
    yield from (f"measured  {line}" for line in plan.measured)
    yield from (f"assumed   {line}" for line in plan.assumed)


def _seconds(seconds: float) -> str:
    return f"{seconds:,.3g} s" if seconds < 1000 else time_of(seconds)
