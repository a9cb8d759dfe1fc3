"""One optimizer step: the loss, the guard against bad losses, the update, the line of metrics, and requests to stop.

`train.on_nan` and `train.on_spike` decide what follows a bad loss. `roll_back` returns to the newest checkpoint and
skips the batch. If training returns to the same checkpoint again, all batches since that checkpoint are skipped, as in
PaLM (Chowdhery et al., arXiv 2204.02311, section 5.1).
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import math
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from tokenfree.core.errors import JobError
from tokenfree.core.signals import on_first_signal
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.base import Arrays
from tokenfree.train.batches.counter_random import key
from tokenfree.train.config import LoopConfig, PretrainRecipe
from tokenfree.train.loop.parallel import SingleWorker, copies, sum_over_workers
from tokenfree.train.model.common.basic import linear, takes
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.objectives.base import Head, Loss
from tokenfree.train.optimizers.base import is_part, part, whole
from tokenfree.train.torch_state import random_numbers


class Incident(JobError):
    """A step, counted from 1, that was abandoned because of the loss of its batch. The loss is in nats per target."""

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
    """The losses of the last `window` steps. A loss `deviations` standard deviations above their mean is a jump."""

    def __init__(self, window: int, deviations: float) -> None:
        super().__init__(maxlen=window)
        self._window, self._deviations = window, deviations

    def jumps(self, loss: float) -> bool:
        """Return True if `loss` is a jump. It never is before the window is full."""
        if len(self) < self._window:
            return False
        mean = math.fsum(self) / len(self)
        return loss > mean + self._deviations * statistics.pstdev(self, mean)


_SCALARS = 5


class StepSums(NamedTuple):
    """Sums over the examples of a batch, float64: a tuple, so that data parallelism and compiler find its tensors."""

    loss: Tensor  # scalar: sum of the losses of all targets, in nats
    num_targets: Tensor  # scalar
    num_correct: Tensor  # scalar: targets whose right answer had the highest logit
    means: Mapping[str, Tensor]  # by name [2]: sum and count of each further mean that the head reports
    num_characters: Tensor  # scalar: characters of text, without special ones and padding; 0 in the model's output
    num_stops: Tensor  # scalar: workers that were asked to stop; 0 in the model's output

    @classmethod
    def of(cls, loss: Loss, means: Sequence[str]) -> StepSums:
        total, num_targets, num_correct = (_detached(each) for each in (loss.total, loss.num_targets, loss.num_correct))
        pairs = {name: torch.stack([_detached(value) for value in loss.means[name]]) for name in means}
        nothing = torch.zeros_like(total)
        return cls(total, num_targets, num_correct, pairs, nothing, nothing)

    @classmethod
    def zeros(cls, means: Sequence[str], device: torch.device) -> StepSums:
        return cls.unpack(torch.zeros(_SCALARS + 2 * len(means), dtype=torch.float64, device=device), means)

    @classmethod
    def unpack(cls, vector: Tensor, means: Sequence[str]) -> StepSums:
        pairs = dict(zip(means, vector[3:-2].unflatten(0, (len(means), 2)), strict=True))
        return cls(vector[0], vector[1], vector[2], pairs, vector[-2], vector[-1])

    def pack(self) -> Tensor:
        """Return all sums as one vector, float64 [5 + 2 * means], for `sum_over_workers`."""
        first, last = (self.loss, self.num_targets, self.num_correct), (self.num_characters, self.num_stops)
        return torch.cat([torch.stack(first), *self.means.values(), torch.stack(last)])

    def plus(self, other: StepSums) -> StepSums:
        return StepSums.unpack(self.pack() + other.pack(), tuple(self.means))

    def mean_loss(self) -> float:
        """Return the loss in nats per target; 0 without targets."""
        return self.loss.item() / max(self.num_targets.item(), 1)

    def report(self) -> dict[str, float]:
        """Return `loss` (nats per target), `num_targets`, `accuracy` and the means by name. A mean of nothing is 0."""
        pairs = {name: pair.tolist() for name, pair in self.means.items()}
        return {
            "loss": self.mean_loss(),
            "num_targets": int(self.num_targets.item()),
            "accuracy": self.num_correct.item() / max(self.num_targets.item(), 1),
            **{name: value / max(count, 1) for name, (value, count) in pairs.items()},
        }


def _detached(value: Tensor) -> Tensor:
    return value.detach().double()


class Task(nn.Module):
    """The encoder with a head, as one module for the optimizer and for data parallelism."""

    def __init__(self, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.encoder = encoder
        self.head: Head = takes(head, "encoder, batch")

    def forward(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, StepSums]:
        """Return the summed loss over the targets of `batch` (nats, float32 scalar, with gradient) and its sums."""
        loss = self.head(self.encoder, batch)
        return loss.total, StepSums.of(loss, self.head.means)


def pretraining_task(recipe: PretrainRecipe, vocabulary_size: int) -> Task:
    """Return the model of a recipe with the head of its objective. `vocabulary_size` is 0 for data without subwords."""
    return Task(recipe.model.build(), recipe.objective.build(recipe.model.width, vocabulary_size))


def build_task(recipe: PretrainRecipe, vocabulary: Vocabulary | None) -> Task:
    """Return the model with new weights, which depend only on `train.seed`. The caller's random state is unchanged."""
    with random_numbers() as seed:
        seed(int(key(recipe.train.seed, "weights")))
        return pretraining_task(recipe, vocabulary.size if vocabulary is not None else 0)


def on_device(arrays: Arrays, device: torch.device) -> dict[str, Tensor]:
    return {name: torch.from_numpy(values).to(device, non_blocking=True) for name, values in arrays.items()}


@contextlib.contextmanager
def matrix_precision(precision: str, device: torch.device) -> Iterator[None]:
    """Compute matrix products within the block in `train.precision`. Stored tensors stay float32."""
    enabled = uses_bfloat16(precision, device)
    try:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled, cache_enabled=True):
            yield
    finally:
        # Inside an autocast of the caller, copies of weights would stay, and the next step would use the old weights.
        torch.clear_autocast_cache()


def uses_bfloat16(precision: str, device: torch.device) -> bool:
    """Return True if `train.precision` means bfloat16 products. `auto` does on devices with instructions for them.

    Without these, a step of canine-fast-tiny takes seven times as long in bfloat16 as in float32 (on Zen 3).
    """
    if precision != "auto":
        return precision == "bfloat16"
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported()


def inference_precision(precision: str) -> str:
    """Return the precision in which a trained run is used: bfloat16 only if it was trained so and `auto` chooses it."""
    return "auto" if precision == "bfloat16" else precision


_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # parameters of mallopt(3)


def keep_freed_memory() -> None:
    """Let this process keep freed memory, if it uses glibc. That saves 11% of a bfloat16 step of CANINE base."""
    with contextlib.suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, -1)


_PASSES = 3  # a backward pass has two products for each one of the forward pass


class Meter:
    """Utilisation of one worker's device by training steps. The device is measured on first use."""

    def __init__(self, encoder: Encoder, head: Head, *, device: torch.device, precision: str) -> None:
        self._encoder = encoder
        self._head_products = head.multiply_accumulates()
        self._device = device
        self._dtype = torch.bfloat16 if uses_bfloat16(precision, device) else torch.float32
        self._peak: float | None = None
        self._products: dict[int, tuple[int, int]] = {}

    def utilisation(self, arrays: Arrays, seconds: float) -> float:
        """Return the share (0 to 1) of the measured peak in a step over this worker's `arrays` that took `seconds`."""
        if self._peak is None:
            self._peak = peak(self._device, self._dtype)
        return self.flops(arrays) / seconds / self._peak

    def flops(self, arrays: Arrays) -> int:
        """Return the floating-point operations of a step over `arrays`, forward and backward."""
        num_examples, length = arrays["codepoints"].shape
        if length not in self._products:
            self._products[length] = self._count(length)
        of_example, of_target = self._products[length]
        return 2 * _PASSES * (of_example * num_examples + of_target * int(arrays["target_mask"].sum()))

    def _count(self, length: int) -> tuple[int, int]:
        """Return the multiply-accumulates of the forward pass for an example without targets, and for each target."""
        none, one = (sum(cost.multiply_accumulates for cost in self._encoder.costs(length, n)) for n in (0, 1))
        return none, one - none + self._head_products


def peak(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.1) -> float:
    """Return the floating-point operations per second of the fastest large matrix product within `seconds`."""
    size = 8192 if device.type == "cuda" else 512
    generator = torch.Generator(device).manual_seed(0)  # an H100 multiplies equal numbers 3% faster than random ones
    left, right = (torch.rand(size, size, generator=generator, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    until = time.perf_counter() + seconds
    products = [torch.mm, linear]  # they may use different libraries
    while time.perf_counter() < until:
        products.reverse()
        began = time.perf_counter()
        products[0](left, right)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


class WeightAverage:
    """A moving average of the parameters of `model`, which starts at the current weights.

    After update number n (from 1), e <- d * e + (1 - d) * w with d = min(`decay`, (1 + n) / (10 + n)), so the first
    weights are soon forgotten. If workers hold parts of the parameters, each averages its own part.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        self._averages = {name: parameter.clone() for name, parameter in self._parameters.items()}

    @torch.no_grad()
    def update(self, number: int) -> None:
        decay = min(self._decay, (1 + number) / (10 + number))
        averages, weights = _here(self._averages), _here(self._parameters)
        torch._foreach_lerp_(averages, weights, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Replace the model's weights by the averages within the block, and restore them exactly after it."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def tensors(self, *, keep: bool = True) -> dict[str, Tensor]:
        """Return whole copies of the averages on the CPU by parameter name. Without `keep`, return none."""
        return copies(self._averages.items(), keep=keep)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, average in self._averages.items():
            average.copy_(part(tensors[name], like=average))

    @torch.no_grad()
    def _swap(self) -> None:
        for average, weight in zip(_here(self._averages), _here(self._parameters), strict=True):
            before = weight.clone()
            weight.copy_(average)
            average.copy_(before)


def _here(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the parts of some tensors that this worker holds, as views: changes to them change the tensors."""
    return [tensor.to_local() if is_part(tensor) else tensor for tensor in tensors.values()]


class StepNumbers(NamedTuple):
    step: int  # optimizer steps including this one
    batch: int  # number of its batch in the order of the data
    rate: float  # learning rate
    waited: float  # seconds of waiting for its batch


class TrainingStep:
    """The steps of one worker. When the workers sum their losses, all learn whether one of them was asked to stop."""

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
        if device.type == "cpu":
            keep_freed_memory()

    def take(self, arrays: Arrays, numbers: StepNumbers) -> dict[str, float]:
        """Train on `arrays`, this worker's slice of the batch, and return the line of metrics (see runs/metrics.py)."""
        began = time.perf_counter()
        with random_numbers(self._device) as seed:
            sums = self._loss(arrays, seed)
            self.stopping = sums.num_stops.item() > 0
            gradients = [parameter.grad for parameter in self._task.parameters() if parameter.grad is not None]
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
        """Return True if the loss jumps and training continues regardless."""
        first, size = numbers.batch * self._config.global_batch, self._config.global_batch
        samples = list(range(first, first + size))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self._optimizer.zero_grad()
            raise NotANumber(numbers.step, numbers.batch, loss, samples)
        jumps = self.recent.jumps(loss)
        if jumps and self._config.on_spike != "go_on":
            self._optimizer.zero_grad()
            raise Spike(numbers.step, numbers.batch, loss, samples)
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


_STANDARD_ERROR = 2
ANSWER = b"\nstopping after this step, with a checkpoint; Ctrl-C again ends it now\n"


class Stop:
    """A flag that asks training to stop after the current step, with the reason. The first request counts."""

    def __init__(self) -> None:
        self.reason = ""
        self.resumes = False  # whether the workers will be restarted, so that the run itself does not end

    def ask(self, reason: str, *, resumes: bool = False) -> None:
        if not self.reason:
            self.reason, self.resumes = reason, resumes

    def __bool__(self) -> bool:
        return bool(self.reason)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Yield a request to stop, which the first signal of `on_first_signal` within the block makes."""
    stop = Stop()

    def note(kind: signal.Signals) -> None:
        stop.ask(kind.name)
        if kind == signal.SIGINT:
            with contextlib.suppress(OSError):  # not with print, which the signal may have interrupted
                os.write(_STANDARD_ERROR, ANSWER)

    with on_first_signal(note):
        yield stop
