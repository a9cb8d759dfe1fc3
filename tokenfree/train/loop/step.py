"""The model with its head, and one optimizer step: loss, guard against bad losses, update, metrics, requests to stop.

`train.on_nan` and `train.on_spike` decide what follows a bad loss. `roll_back` returns to the newest
checkpoint and skips the batch. If training returns to the same checkpoint again, all batches since that
checkpoint are skipped, as in PaLM (Chowdhery et al., arXiv 2204.02311, section 5.1).
"""

import collections
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from tokenfree.core.errors import JobError
from tokenfree.core.signals import Stop
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.base import Arrays
from tokenfree.train.batches.counter_random import key
from tokenfree.train.config import LoopConfig, PretrainRecipe
from tokenfree.train.loop.meter import Meter
from tokenfree.train.loop.parallel import SingleWorker, WeightAverage, sum_over_workers
from tokenfree.train.model.common.basic import takes
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.objectives.base import Head, Loss
from tokenfree.train.optimizers.base import whole
from tokenfree.train.torch_state import keep_freed_memory, matrix_precision, random_numbers

_SCALARS = 5


class StepSums(NamedTuple):
    """Sums over the examples of a batch, float64: a tuple, so that data parallelism and compiler find its tensors."""

    loss: Tensor  # scalar: sum of the losses of all targets, in nats
    num_targets: Tensor  # scalar
    num_correct: Tensor  # scalar: targets whose right answer had the highest logit
    means: Mapping[str, Tensor]  # by name [2]: sum and count of each further mean that the head reports
    # Scalar: characters of text, without special ones and padding; 0 in the model's output.
    num_characters: Tensor
    num_stops: Tensor  # scalar: workers that were asked to stop; 0 in the model's output

    @classmethod
    def of(cls, loss: Loss, means: Sequence[str]) -> Self:
        total, num_targets, num_correct = (
            _detached(scalar) for scalar in (loss.total, loss.num_targets, loss.num_correct)
        )
        pairs = {name: torch.stack([_detached(value) for value in loss.means[name]]) for name in means}
        nothing = torch.zeros_like(total)
        return cls(total, num_targets, num_correct, pairs, nothing, nothing)

    @classmethod
    def zeros(cls, means: Sequence[str], device: torch.device) -> Self:
        return cls.unpack(torch.zeros(_SCALARS + 2 * len(means), dtype=torch.float64, device=device), means)

    @classmethod
    def unpack(cls, vector: Tensor, means: Sequence[str]) -> Self:
        pairs = dict(zip(means, vector[3:-2].unflatten(0, (len(means), 2)), strict=True))
        return cls(vector[0], vector[1], vector[2], pairs, vector[-2], vector[-1])

    def pack(self) -> Tensor:
        """Return all sums as one vector, float64 [5 + 2 * means], for `sum_over_workers`."""
        first, last = (self.loss, self.num_targets, self.num_correct), (self.num_characters, self.num_stops)
        return torch.cat([torch.stack(first), *self.means.values(), torch.stack(last)])

    def plus(self, other: Self) -> Self:
        return self.unpack(self.pack() + other.pack(), tuple(self.means))

    def mean_loss(self) -> float:
        """Return the loss in nats per target; 0 without targets."""
        return self.loss.item() / max(self.num_targets.item(), 1)

    def report(self) -> dict[str, float]:
        """Return `loss` (nats per target), `num_targets`, `accuracy` and the means by name.

        A mean of nothing is 0.
        """
        pairs = {name: pair.tolist() for name, pair in self.means.items()}
        return {
            "loss": self.mean_loss(),
            "num_targets": int(self.num_targets.item()),
            "accuracy": self.num_correct.item() / max(self.num_targets.item(), 1),
            **{name: value / max(count, 1) for name, (value, count) in pairs.items()},
        }


def _detached(value: Tensor) -> Tensor:
    return value.detach().double()


class ModelWithHead(nn.Module):
    """The encoder with a head, as one module for the optimizer and for data parallelism."""

    def __init__(self, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.head: Head = takes(head, "encoder, batch")

    def forward(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, StepSums]:
        """Return the summed loss over the targets of `batch` (nats, float32 scalar, with gradient) and its sums."""
        loss = self.head(self.encoder, batch)
        total = loss.total if loss.auxiliary is None else loss.total + loss.auxiliary
        return total, StepSums.of(loss, self.head.means)


def pretraining_task(recipe: PretrainRecipe, vocabulary_size: int) -> ModelWithHead:
    """Return the model of a recipe with the head of its objective. `vocabulary_size` is 0 for data without subwords."""
    encoder = recipe.model.build()
    head = recipe.objective.build(recipe.model.width, vocabulary_size)
    if recipe.objective.takes_neighbours:
        head.add_neighbours(recipe.model.neighbours.build(vocabulary_size))
    return ModelWithHead(encoder, head)


def build_task(recipe: PretrainRecipe, vocabulary: Vocabulary | None) -> ModelWithHead:
    """Return the model with new weights, which depend only on `train.seed`.

    The caller's random state is unchanged.
    """
    with random_numbers() as seed:
        seed(int(key(recipe.train.seed, "weights")))
        return pretraining_task(recipe, vocabulary.size if vocabulary is not None else 0)


def on_device(arrays: Arrays, device: torch.device) -> dict[str, Tensor]:
    return {name: torch.from_numpy(values).to(device, non_blocking=True) for name, values in arrays.items()}


class Incident(JobError):
    """A step, counted from 1, that was abandoned because of the loss of its batch.

    The loss is in nats per target.
    """

    kind = ""

    def __init__(self, step: int, batch: int, loss: float, sample_ids: list[int]) -> None:
        super().__init__(step, batch, loss, sample_ids)
        self.step, self.batch, self.loss, self.sample_ids = step, batch, loss, sample_ids


class NotANumber(Incident):
    kind = "not_a_number"

    def __str__(self) -> str:
        return (
            f"the loss or its gradient is not a number at step {self.step}; lower train.learning_rate or raise "
            "train.warmup and start another run, or continue this one with --train.on_nan roll_back"
        )


class Spike(Incident):
    kind = "loss_spike"

    def __str__(self) -> str:
        return (
            f"the loss jumped to {self.loss:.3f} at step {self.step}; lower train.learning_rate and start another run, "
            "or continue this one with --train.on_spike roll_back or go_on"
        )


def checked_validation(step: int, validation: Mapping[str, float]) -> Mapping[str, float]:
    """Return the metrics of a validation. Raises JobError if one is not finite, which JSON requires."""
    if not all(map(math.isfinite, validation.values())):
        raise JobError(
            f"the held-out loss is not a number at step {step}, after losses that were: the last updates were too "
            "large; lower train.learning_rate or raise train.warmup and start another run"
        )
    return validation


class RecentLosses(collections.deque[float]):
    """The losses of the last `window` steps.

    A loss `deviations` standard deviations above their mean is a jump.
    """

    def __init__(self, window: int, deviations: float) -> None:
        super().__init__(maxlen=window)
        self._window, self._deviations = window, deviations

    def jumps(self, loss: float) -> bool:
        """Return True if `loss` is a jump. It never is before the window is full."""
        if len(self) < self._window:
            return False
        mean = math.fsum(self) / len(self)
        return loss > mean + self._deviations * statistics.pstdev(self, mean)


class StepNumbers(NamedTuple):
    step: int  # optimizer steps including this one
    batch: int  # number of its batch in the order of the data
    rate: float  # learning rate
    waited: float  # seconds of waiting for its batch


class TrainingStep:
    """The steps of one worker.

    When the workers sum their losses, all learn whether one of them was asked to stop.
    """

    def __init__(
        self,
        config: LoopConfig,
        task: ModelWithHead,
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
        # Whether any worker was asked to stop before the last step.
        self.stopping = False
        if device.type == "cpu":
            keep_freed_memory()

    def take(self, arrays: Arrays, numbers: StepNumbers) -> dict[str, float]:
        """Train on `arrays`, this worker's slice of the batch, and return the line of metrics (see runs/metrics.py)."""
        began = time.perf_counter()
        with random_numbers(self._device) as seed:
            sums = self._loss(arrays, seed)
            self.stopping = sums.num_stops.item() > 0
            gradients = [
                parameter.grad for parameter in self._task.parameters() if parameter.grad is not None
            ]
            # Data parallelism has divided the gradients of the summed loss by the number of workers.
            scale = self._world_size / max(sums.num_targets.item(), 1)
            norm = whole(torch.nn.utils.get_total_norm(gradients)).item() * scale
            jumps = self._guard(numbers, sums.mean_loss(), norm)
            self._update(numbers, gradients, scale * min(1.0, self._config.clip_norm / (norm + 1e-6)))
        return self._line(numbers, sums, arrays, norm=norm, jumps=jumps, began=began)

    def _loss(self, arrays: Arrays, seed: Callable[[int], object]) -> StepSums:
        """Compute the gradients of the summed loss. Return the sums of all workers."""
        self._task.train()
        sums = StepSums.zeros(self._task.head.means, self._device)
        micro_batches = list(self._micro_batches(arrays))
        for number, micro in enumerate(micro_batches, 1):
            seed(int(key(self._config.seed, "dropout", int(micro["sample_ids"][0]))))
            batch = on_device(micro, self._device)
            with self._parallel.gradient_sync(last=number == len(micro_batches)):
                with matrix_precision(self._config.precision, self._device), record_function("forward"):
                    total, of_micro = self._parallel.module(batch)
                with record_function("backward"):
                    total.backward()
            sums = sums.plus(of_micro)
        sums = sums._replace(
            num_characters=sums.loss.new_full((), float(arrays["num_characters"].sum())),
            num_stops=sums.loss.new_full((), float(bool(self._stop))),
        )
        return StepSums.unpack(sum_over_workers(sums.pack()), self._task.head.means)

    def _guard(self, numbers: StepNumbers, loss: float, norm: float) -> bool:
        is_finite = math.isfinite(loss) and math.isfinite(norm)
        jumps = is_finite and self.recent.jumps(loss)
        if not is_finite or (jumps and self._config.on_spike != "go_on"):
            self._optimizer.zero_grad()
            first, size = numbers.batch * self._config.global_batch, self._config.global_batch
            kind = Spike if is_finite else NotANumber
            raise kind(numbers.step, numbers.batch, loss, list(range(first, first + size)))
        self.recent.append(loss)
        return jumps

    def _update(self, numbers: StepNumbers, gradients: list[Tensor], scale: float) -> None:
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
