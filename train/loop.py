"""The training loop in plain PyTorch: one process alone, or one of several joined by torch.distributed.

The loss of a step is the sum over all targets of the global batch by their number, so neither the number of workers
nor the micro batch changes it beyond rounding. Nothing random is carried from step to step: dropout is seeded by the
first sample of each micro batch, so the state of training is the model, the optimizer and the step.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from preprocess.errors import JobError
from preprocess.manifest import load_manifest
from preprocess.settings import fingerprint
from preprocess.vocabulary import Vocabulary
from train import checkpoints
from train.config import PretrainRecipe, load_vocabulary
from train.data.characters import learn_characters
from train.data.loader import Loader
from train.data.random import key
from train.data.unigram import Unigram, unigram
from train.data.validation import validation_batches
from train.model import Encoder
from train.objectives.base import Arrays, Head, Loss
from train.schedule import learning_rate
from train.state import load_optimizer, model_tensors, optimizer_tensors
from train.utilisation import Meter

OnStep = Callable[[Mapping[str, float]], None]


class NotANumber(JobError):
    """The loss or the gradient is not finite. `sample_ids` are those of the micro batches where it showed."""

    def __init__(self, step: int, sample_ids: list[int]) -> None:
        super().__init__(step, sample_ids)
        self.step, self.sample_ids = step, sample_ids

    def __str__(self) -> str:
        return (
            f"the loss or its gradient is not a number at step {self.step}; lower train.learning_rate or raise "
            "train.warmup and start another run"
        )


class Task(nn.Module):
    """The encoder with the head of its objective, as one module for the optimizer and for data parallelism."""

    def __init__(self, recipe: PretrainRecipe, vocabulary_size: int) -> None:
        super().__init__()
        self.encoder = recipe.model.build()
        self.head: Head = recipe.objective.build(recipe.model.width, vocabulary_size)

    def forward(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Sum of the losses over the targets (nats), and float64 without gradient [3 + 2 * means]: that sum again, the
        number of targets, of right answers, and the sum and count of each of the head's means.
        """
        loss: Loss = self.head(self.encoder, batch)
        means = [value for name in self.head.means for value in loss.means[name]]
        values = (loss.total, loss.num_targets, loss.num_correct, *means)
        return loss.total, torch.stack([value.detach().double() for value in values])

    def no_sums(self, device: torch.device) -> Tensor:
        """Zeros to add `forward`'s second value to."""
        return torch.zeros(3 + 2 * len(self.head.means), dtype=torch.float64, device=device)

    def report(self, sums: Sequence[float]) -> dict[str, float]:
        """Loss, number of targets, accuracy and the head's means, from `forward`'s second value (or several added)."""
        total, num_targets, num_correct, *rest = sums
        pairs = zip(self.head.means, rest[::2], rest[1::2], strict=True)
        return {
            "loss": total / max(num_targets, 1),
            "num_targets": int(num_targets),
            "accuracy": num_correct / max(num_targets, 1),
            **{name: value / max(count, 1) for name, value, count in pairs},
        }


class Loop:
    """Model, optimizer and data of one run, at one step.

    Args:
        recipe: what to train, already checked (see `train.config.check`).
        data: a data directory with a manifest.
        rank, world_size: this process among those of the default torch.distributed group (none where world_size is 1).
        device: where the model lives, such as "cpu" or "cuda:0".

    Raises:
        UserError: no such data, or data that the recipe cannot be trained on.
    """

    def __init__(
        self, recipe: PretrainRecipe, data: str, *, rank: int = 0, world_size: int = 1, device: str = "cpu"
    ) -> None:
        self.recipe, self.data, self.rank, self.world_size = recipe, data, rank, world_size
        self.device = torch.device(device)
        self.step = 0  # optimizer steps done
        config = recipe.train
        self.manifest_fingerprint = load_manifest(data).fingerprint
        self.vocabulary = load_vocabulary(data)
        self._collator = recipe.objective.collator(self.vocabulary, config.length, config.seed)
        self.loader = Loader(
            data,
            global_batch=config.global_batch,
            seed=config.seed,
            smoothing=config.smoothing,
            streams=config.streams,
            collator=self._collator,
            rank=rank,
            world_size=world_size,
        )
        self.model = build_task(recipe, self.vocabulary).to(self.device)
        learn_characters(self.model.encoder, data)
        self._parallel = _data_parallel(self.model) if world_size > 1 else self.model
        self.optimizer: torch.optim.Optimizer = config.optimizer.build(self.model)
        self._meter = Meter(self.model.encoder, self.model.head, device=self.device, precision=config.precision)

    @property
    def encoder(self) -> Encoder:
        """The model without the head of its objective."""
        return self.model.encoder

    def train_until(self, step: int, on_step: OnStep | None = None) -> None:
        """Train until `step` steps are done; `on_step` gets each step's line of metrics (see train/metrics.py).

        Raises:
            NotANumber: the loss is not a number; the model is then as it was before the step.
        """
        if self.step >= step:
            return
        with self.loader.batches(self.step, step) as batches:
            waited = 0.0
            for arrays in batches:
                wait, waited = batches.seconds_waited - waited, batches.seconds_waited
                line = self._train_step(arrays, wait)
                if on_step is not None:
                    on_step(line)

    def validate(self) -> dict[str, float]:
        """`validation_loss` (nats per target), `validation_accuracy`, `validation_targets` and what else the objective
        reports, with that prefix: fixed samples and masks.
        """
        self.model.eval()
        sums = self.model.no_sums(self.device)
        with torch.no_grad(), self._precision():
            for arrays in self._validation_batches():
                sums += self.model(self._to_device(arrays))[1]
        self.model.train()
        values = self.model.report(self._sum_over_workers(sums))
        num_targets = values.pop("num_targets")
        return {f"validation_{name}": value for name, value in {**values, "targets": num_targets}.items()}

    def unigram(self) -> Unigram | None:
        """What knowing only the frequencies would score on the validation targets; None for objectives without such."""
        symbols = self.recipe.objective.symbols(self.vocabulary)
        if symbols is None:
            return None
        held_out = (arrays["target_ids"][arrays["target_mask"]] for arrays in self._validation_batches(alone=True))
        return unigram(self.data, symbols, held_out)

    def snapshot(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """Copies of all tensors on the CPU by file and name, and the rest of the state: what a checkpoint holds."""
        parts = {"model": model_tensors(self.model), "optimizer": optimizer_tensors(self.model, self.optimizer)}
        state = {
            "step": self.step,
            "seed": self.recipe.train.seed,
            "recipe": fingerprint(self.recipe),
            "manifest": self.manifest_fingerprint,
            "vocabulary": self.vocabulary.sha256 if self.vocabulary is not None else None,
            "loader": dict(self.loader.fingerprint),
            "world_size": self.world_size,
        }
        return parts, state

    def save(self, directory: str | Path) -> None:
        """Write a checkpoint as `directory`; JobError where the disk does not take it. One worker of all calls it."""
        checkpoints.write(Path(directory), *self.snapshot())

    def restore(self, directory: str | Path) -> None:
        """Go on from what `save` wrote; the losses from there on equal those of an undisturbed run.

        Raises:
            JobError: the checkpoint is damaged.
            UserError: it is of other data or another seed.
        """
        self.load(checkpoints.read(Path(directory)))

    def load(self, checkpoint: checkpoints.Checkpoint) -> None:
        """Go on from a checkpoint that was read already; see `restore`."""
        self.loader.check(checkpoint.state["loader"], str(checkpoint.path))
        self.load_model(checkpoint)
        load_optimizer(self.model, self.optimizer, checkpoint.tensors("optimizer"))
        self.step = checkpoint.step

    def load_model(self, checkpoint: checkpoints.Checkpoint) -> None:
        """Take only the weights of a checkpoint, to validate them, on these data or others."""
        self.model.load_state_dict(checkpoint.tensors("model"))

    def _train_step(self, arrays: Arrays, wait: float) -> dict[str, float]:
        began = time.perf_counter()
        config = self.recipe.train
        self.model.train()
        sums, suspects = self._backward(arrays)
        *sums, characters = self._sum_over_workers(sums)
        total, num_targets = sums[:2]
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        scale = self.world_size / max(num_targets, 1)  # data parallelism has divided by the number of workers
        norm = torch.nn.utils.get_total_norm(gradients).item() * scale
        if not (math.isfinite(total) and math.isfinite(norm)):
            self.optimizer.zero_grad()
            raise NotANumber(self.step + 1, self._gather(suspects))
        torch._foreach_mul_(  # pyright: ignore[reportPrivateImportUsage]
            gradients, scale * min(1.0, config.clip_norm / (norm + 1e-6))
        )
        rate = learning_rate(self.step, steps=config.steps, peak=config.learning_rate, warmup=config.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        seconds = wait + time.perf_counter() - began
        return {
            "step": self.step,
            **self.model.report(sums),
            "learning_rate": rate,
            "gradient_norm": norm,
            "characters": int(characters),
            "seconds": round(seconds, 6),
            "data_wait": round(wait, 6),
            "utilisation": round(self._meter.utilisation(arrays, seconds), 4),
        }

    def _backward(self, arrays: Arrays) -> tuple[Tensor, list[int]]:
        """Gradients of the sum over this worker's examples; its sums as of `Task.forward`, and then characters."""
        sums = self.model.no_sums(self.device)
        num_characters = int(arrays["num_characters"].sum())
        suspects: list[int] = []
        micro_batches = list(self._micro_batches(arrays))
        for number, micro in enumerate(micro_batches, 1):
            torch.manual_seed(int(key(self.recipe.train.seed, "dropout", int(micro["sample_ids"][0]))))
            batch = self._to_device(micro)
            with self._exchange(last=number == len(micro_batches)):
                with self._precision():
                    total, values = self._parallel(batch)
                total.backward()
            sums += values
            if not math.isfinite(values[0].item()):
                suspects += micro["sample_ids"].tolist()
        return torch.cat([sums, sums.new_tensor([num_characters])]), suspects or arrays["sample_ids"].tolist()

    def _micro_batches(self, arrays: Arrays) -> Iterator[Arrays]:
        count = len(arrays["sample_ids"])
        size = self.recipe.train.micro_batch or count
        for start in range(0, count, size):
            yield {name: values[start : start + size] for name, values in arrays.items()}

    def _exchange(self, *, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Only the last micro batch of a step exchanges gradients among the workers."""
        if isinstance(self._parallel, DistributedDataParallel) and not last:
            return self._parallel.no_sync()
        return contextlib.nullcontext()

    def _precision(self) -> torch.autocast:
        bfloat16 = self.recipe.train.precision == "bfloat16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=bfloat16)

    def _to_device(self, arrays: Arrays) -> dict[str, Tensor]:
        return {name: torch.from_numpy(values).to(self.device, non_blocking=True) for name, values in arrays.items()}

    def _sum_over_workers(self, sums: Tensor) -> list[float]:
        if self.world_size > 1:
            dist.all_reduce(sums)
        return sums.tolist()

    def _gather(self, sample_ids: list[int]) -> list[int]:
        if self.world_size == 1:
            return sample_ids
        gathered: list[Any] = [None] * self.world_size
        dist.all_gather_object(gathered, sample_ids)
        return [sample_id for part in gathered for sample_id in part]

    def _validation_batches(self, *, alone: bool = False) -> Iterator[Arrays]:
        config = self.recipe.train
        return validation_batches(
            self.data,
            objective=self.recipe.objective,
            vocabulary=self.vocabulary,
            length=config.length,
            num_windows=config.validation_windows,
            batch=min(32, config.micro_batch or 32),
            rank=0 if alone else self.rank,
            world_size=1 if alone else self.world_size,
        )


def build_task(recipe: PretrainRecipe, vocabulary: Vocabulary | None) -> Task:
    """The model with fresh weights, which depend on `train.seed` alone; the caller's random state stays as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(int(key(recipe.train.seed, "weights")))
        return Task(recipe, vocabulary.size if vocabulary is not None else 0)


def _data_parallel(model: nn.Module) -> DistributedDataParallel:
    # An encoder's pooler has no gradient under objectives that do not use it, hence `find_unused_parameters`; it also
    # keeps the buckets of the exchange the same from the first step on, which resuming bit for bit relies on.
    return DistributedDataParallel(
        model, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
    )
