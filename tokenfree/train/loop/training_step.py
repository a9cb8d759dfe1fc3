"""One step of the optimizer: the loss of a batch, the guard against bad losses, the update, the line of metrics."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.profiler import record_function

from tokenfree.train.batches.collator import Arrays
from tokenfree.train.batches.counter_random import key
from tokenfree.train.config import LoopConfig
from tokenfree.train.loop.loss_spikes import NotANumber, RecentLosses, Spike
from tokenfree.train.loop.step_sums import StepSums
from tokenfree.train.loop.stopping import Stop
from tokenfree.train.loop.task import Task, matrix_precision, on_device
from tokenfree.train.loop.utilisation import Meter
from tokenfree.train.loop.weight_average import WeightAverage
from tokenfree.train.parallel.collectives import gather, sum_over_workers
from tokenfree.train.parallel.single import SingleWorker
from tokenfree.train.parallel.strategy import gradient_norm


class StepNumbers(NamedTuple):
    """Which step it is."""

    step: int  # optimizer steps with this one
    batch: int  # the number of its batch in the order of the data
    rate: float  # the learning rate
    waited: float  # seconds until its batch was there


class TrainingStep:
    """Takes the steps of one worker.

    Args:
        config: of the run. Of it the number of steps is not used: the learning rate comes with each step.
        task: what is trained.
        parallel: `task` as the workers share it.
        optimizer: of the parameters of `task`.
        average: of its weights, where the run has one.
        stop: what asks this worker to stop; all learn of it when they add up their losses.
        device: where `task` lives.
        world_size: how many workers there are.
    """

    def __init__(
        self,
        config: LoopConfig,
        task: Task,
        parallel: SingleWorker,
        optimizer: torch.optim.Optimizer,
        average: WeightAverage | None,
        *,
        stop: Stop,
        device: torch.device,
        world_size: int,
    ) -> None:
        self._config, self._task, self._parallel = config, task, parallel
        self._optimizer, self._average, self._stop = optimizer, average, stop
        self._device, self._world_size = device, world_size
        self._meter = Meter(task.encoder, task.head, device=device, precision=config.precision)
        self.recent = RecentLosses(config.spike_window, config.spike_deviations)
        self.stopping = False  # whether any worker was asked to stop before the last step

    def take(self, arrays: Arrays, numbers: StepNumbers) -> dict[str, float]:
        """Train on `arrays`, this worker's slice of the batch; returns the line of the step (see runs/metrics.py).

        Raises:
            NotANumber, Spike: see train/loop/loss_spikes.py; the model is then as it was before the step.
        """
        began = time.perf_counter()
        sums, losses = self._loss(arrays)
        self.stopping = sums.num_stops.item() > 0
        gradients = [parameter.grad for parameter in self._task.parameters() if parameter.grad is not None]
        # Data parallelism has divided the gradients of the sum of losses by the number of workers.
        scale = self._world_size / max(sums.num_targets.item(), 1)
        norm = gradient_norm(gradients) * scale
        jumps = self._guard(numbers, sums.mean_loss(), norm, lambda: self._suspects(arrays, losses))
        self._update(numbers, gradients, scale * min(1.0, self._config.clip_norm / (norm + 1e-6)))
        return self._line(numbers, sums, arrays, norm=norm, jumps=jumps, began=began)

    def _loss(self, arrays: Arrays) -> tuple[StepSums, list[Tensor]]:
        """Leaves the gradients of the summed loss; gives the sums of all workers, on the CPU, and the loss of each of
        this one's micro batches, float64 scalars.
        """
        self._task.train()
        sums = StepSums.zeros(self._task.head.means, self._device)
        losses: list[Tensor] = []
        micro_batches = list(self._micro_batches(arrays))
        for number, micro in enumerate(micro_batches, 1):
            torch.manual_seed(int(key(self._config.seed, "dropout", int(micro["sample_ids"][0]))))
            batch = on_device(micro, self._device)
            with self._parallel.gradient_sync(last=number == len(micro_batches)):
                with matrix_precision(self._config.precision, self._device), record_function("forward"):
                    total, of_micro = self._parallel.module(batch)
                with record_function("backward"):
                    total.backward()
            sums = sums.plus(of_micro)
            losses.append(of_micro.loss)
        sums = sums._replace(
            num_characters=sums.loss.new_full((), float(arrays["num_characters"].sum())),
            num_stops=sums.loss.new_full((), float(bool(self._stop))),
        )
        return StepSums.unpack(sum_over_workers(sums.pack()), self._task.head.means), losses

    def _guard(self, numbers: StepNumbers, loss: float, norm: float, suspects: Callable[[], list[int]]) -> bool:
        """Whether the loss jumps and training goes on all the same; see `take` for what is raised otherwise."""
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self._optimizer.zero_grad()
            raise NotANumber(numbers.step, numbers.batch, loss, suspects())
        jumps = self.recent.jumps(loss)
        if jumps and self._config.on_spike != "go_on":
            self._optimizer.zero_grad()
            first, size = numbers.batch * self._config.global_batch, self._config.global_batch
            raise Spike(numbers.step, numbers.batch, loss, list(range(first, first + size)))
        self.recent.add(loss)
        return jumps

    def _update(self, numbers: StepNumbers, gradients: list[Tensor], scale: float) -> None:
        """Change the weights by the gradients times `scale`, and take them into their average."""
        torch._foreach_mul_(gradients, scale)  # pyright: ignore[reportPrivateImportUsage]
        for group in self._optimizer.param_groups:
            group["lr"] = numbers.rate * group.get("rate_factor", 1.0)
        with record_function("update"):
            self._optimizer.step()
            self._optimizer.zero_grad()
            if self._average is not None:
                self._average.update(numbers.step)

    def _line(
        self, numbers: StepNumbers, sums: StepSums, arrays: Arrays, *, norm: float, jumps: bool, began: float
    ) -> dict[str, float]:
        """The line of metrics of a step that began at `began` by the clock and waited for its batch before."""
        seconds = numbers.waited + time.perf_counter() - began
        return {
            "step": numbers.step,
            **sums.report(),
            "learning_rate": numbers.rate,
            "gradient_norm": norm,
            **({"spike": 1} if jumps else {}),
            "characters": int(sums.num_characters.item()),
            "seconds": round(seconds, 6),
            "data_wait": round(numbers.waited, 6),
            "utilisation": round(self._meter.utilisation(arrays, seconds), 4),
        }

    def _micro_batches(self, arrays: Arrays) -> Iterator[Arrays]:
        count = len(arrays["sample_ids"])
        size = self._config.micro_batch or count
        for start in range(0, count, size):
            yield {name: values[start : start + size] for name, values in arrays.items()}

    def _suspects(self, arrays: Arrays, losses: list[Tensor]) -> list[int]:
        """The samples of the micro batches of all workers whose losses are not finite; all where it is not the losses
        of a worker.
        """
        parts = zip(self._micro_batches(arrays), torch.stack(losses).tolist(), strict=True)
        found = [id for micro, loss in parts if not math.isfinite(loss) for id in micro["sample_ids"].tolist()]
        return [id for ids in gather(found or arrays["sample_ids"].tolist()) for id in ids]
