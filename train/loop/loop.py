"""The training loop in plain PyTorch: one process alone, or one of several joined by torch.distributed.

The loss of a step is the sum over all targets of the global batch by their number, so neither the number of workers
nor the micro batch changes it beyond rounding. Nothing random is carried from step to step: dropout is seeded by the
first sample of each micro batch, so the state of training is the model, the optimizer and the step (and, where asked
for, the average of the weights and which batches are left out).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import record_function

from preprocess.manifest import load_manifest
from preprocess.settings import fingerprint
from train import averaging, checkpoints
from train.averaging import Average
from train.compilation import compile_task
from train.config import PretrainRecipe, load_vocabulary
from train.data.characters import learn_characters
from train.data.loader import Loader, batch_of
from train.data.random import key
from train.data.unigram import Unigram
from train.incidents import NotANumber, RecentLosses, Spike
from train.model import Encoder
from train.objectives.base import Arrays
from train.parallel import gradient_norm, share
from train.recompute import recompute
from train.schedule import learning_rate
from train.state import load_model, load_optimizer, model_tensors, optimizer_tensors
from train.stopping import Stop
from train.task import build_task
from train.utilisation import Meter
from train.validating import Validator, sum_over_workers

OnStep = Callable[[Mapping[str, float]], None]


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
        self.left_out: frozenset[int] = frozenset()  # numbers of batches that are not trained on
        self.stop = Stop()  # what asks this worker to stop; all workers learn of it in the exchange of each step
        self.stopping = False  # whether any worker was asked before the last step
        config = recipe.train
        self.manifest_fingerprint = load_manifest(data).fingerprint
        self.vocabulary = load_vocabulary(data)
        self.loader = Loader(
            data,
            global_batch=config.global_batch,
            seed=config.seed,
            smoothing=config.smoothing,
            streams=config.streams,
            collator=recipe.objective.collator(self.vocabulary, config.length, config.seed),
            rank=rank,
            world_size=world_size,
        )
        self._validator = Validator(recipe, data, self.vocabulary, rank=rank, world_size=world_size)
        self.model = build_task(recipe, self.vocabulary).to(self.device)
        learn_characters(self.model.encoder, data)
        layers = list(self.model.encoder.trunk.layers)
        if config.checkpoint_activations:
            for layer in layers:
                recompute(layer)
        sharded = config.parallel == "fsdp" and world_size > 1
        if config.compile:
            compile_task(self.model, layers, device=self.device, in_parts=sharded)
        self.parallel = share(self.model, layers, sharded=sharded, world_size=world_size, device=self.device)
        self.optimizer: torch.optim.Optimizer = config.optimizer.build(self.model)
        self._average = None if config.ema_decay is None else Average(self.model, config.ema_decay)
        self._recent = RecentLosses(config.spike_window, config.spike_deviations)
        self._meter = Meter(self.model.encoder, self.model.head, device=self.device, precision=config.precision)

    @property
    def encoder(self) -> Encoder:
        """The model without the head of its objective."""
        return self.model.encoder

    @property
    def batch(self) -> int:
        """The number of the batch of the next step."""
        return batch_of(self.step, self.left_out)

    def train_until(self, step: int, on_step: OnStep | None = None) -> None:
        """Train until `step` steps are done; `on_step` gets each step's line of metrics (see train/metrics.py).

        Raises:
            NotANumber, Spike: see train/incidents.py; the model is then as it was before the step.
        """
        if self.step >= step:
            return
        with self.loader.batches(self.step, step, left_out=self.left_out) as batches:
            waited = 0.0
            for arrays in batches:
                wait, waited = batches.seconds_waited - waited, batches.seconds_waited
                line = self._train_step(arrays, wait)
                if on_step is not None:
                    on_step(line)

    def validate(self) -> dict[str, float]:
        """`validation_loss` (nats per target), `validation_accuracy`, `validation_targets` and what else the objective
        reports, with that prefix: fixed samples and masks, and the average of the weights where there is one.
        """
        self.model.eval()
        weights = contextlib.nullcontext() if self._average is None else self._average.in_use()
        with weights, self._precision():
            sums = self._validator.add(
                self.model.no_sums(self.device),
                lambda arrays: self.model(self._to_device(arrays))[1],
                together=self.parallel.together,
            )
            self.parallel.settle()
        self.model.train()
        values = self.model.report(sum_over_workers(sums, self.world_size))
        num_targets = values.pop("num_targets")
        return {f"validation_{name}": value for name, value in {**values, "targets": num_targets}.items()}

    def unigram(self) -> Unigram | None:
        """What knowing only the frequencies would score on the validation targets; None for objectives without such."""
        return self._validator.unigram()

    def leave_out(self, batches: Iterable[int]) -> None:
        """Never train on these batches; for `train_until` calls from now on."""
        self.left_out |= frozenset(batches)

    def snapshot(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """Copies of all tensors on the CPU by file and name, and the rest of the state: what a checkpoint holds.

        Rank 0 has them. Workers that act together (see `train.parallel`) must all call it.
        """
        keep = self.rank == 0
        parts = {
            "model": model_tensors(self.model, keep=keep),
            "optimizer": optimizer_tensors(self.model, self.optimizer, keep=keep),
        }
        if self._average is not None:
            parts[averaging.PART] = self._average.tensors(keep=keep)
        state = {
            "step": self.step,
            "seed": self.recipe.train.seed,
            "recipe": fingerprint(self.recipe),
            "manifest": self.manifest_fingerprint,
            "vocabulary": self.vocabulary.sha256 if self.vocabulary is not None else None,
            "loader": dict(self.loader.fingerprint),
            "world_size": self.world_size,
            "left_out": sorted(self.left_out),
            "recent_losses": self._recent.state(),
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
        load_model(self.model, checkpoint.tensors("model"))
        load_optimizer(self.model, self.optimizer, checkpoint.tensors("optimizer"))
        if self._average is not None:
            self._average.load(checkpoint.tensors(averaging.PART))
        self.leave_out(checkpoint.state.get("left_out", ()))
        self._recent.load(checkpoint.state.get("recent_losses", ()))
        self.step = checkpoint.step

    def load_model(self, checkpoint: checkpoints.Checkpoint) -> None:
        """Take only the weights of a checkpoint, to validate them, on these data or others."""
        load_model(self.model, checkpoint.tensors("model"))
        if self._average is not None:
            self._average.load(checkpoint.tensors(averaging.PART))

    def _train_step(self, arrays: Arrays, wait: float) -> dict[str, float]:
        began = time.perf_counter()
        config = self.recipe.train
        self.model.train()
        sums, losses = self._backward(arrays)
        *sums, characters, stops = sum_over_workers(sums, self.world_size)
        self.stopping = stops > 0
        total, num_targets = sums[:2]
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        scale = self.world_size / max(num_targets, 1)  # data parallelism has divided by the number of workers
        norm = gradient_norm(gradients) * scale
        loss = total / max(num_targets, 1)
        if not (math.isfinite(total) and math.isfinite(norm)):
            self.optimizer.zero_grad()
            raise NotANumber(self.step + 1, self.batch, loss, self._gather(self._suspects(arrays, losses)))
        jumps = self._recent.jumps(loss)
        if jumps and config.on_spike != "go_on":
            self.optimizer.zero_grad()
            first = self.batch * config.global_batch
            raise Spike(self.step + 1, self.batch, loss, list(range(first, first + config.global_batch)))
        self._recent.add(loss)
        torch._foreach_mul_(  # pyright: ignore[reportPrivateImportUsage]
            gradients, scale * min(1.0, config.clip_norm / (norm + 1e-6))
        )
        rate = learning_rate(self.step, steps=config.steps, peak=config.learning_rate, warmup=config.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        with record_function("update"):
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
            if self._average is not None:
                self._average.update(self.step)
        seconds = wait + time.perf_counter() - began
        return {
            "step": self.step,
            **self.model.report(sums),
            "learning_rate": rate,
            "gradient_norm": norm,
            **({"spike": 1} if jumps else {}),
            "characters": int(characters),
            "seconds": round(seconds, 6),
            "data_wait": round(wait, 6),
            "utilisation": round(self._meter.utilisation(arrays, seconds), 4),
        }

    def _backward(self, arrays: Arrays) -> tuple[Tensor, list[Tensor]]:
        """Gradients of the sum over this worker's examples; its sums as of `Task.forward`, characters, whether it is to
        stop; and the loss of each micro batch.
        """
        sums = self.model.no_sums(self.device)
        losses: list[Tensor] = []
        micro_batches = list(self._micro_batches(arrays))
        for number, micro in enumerate(micro_batches, 1):
            torch.manual_seed(int(key(self.recipe.train.seed, "dropout", int(micro["sample_ids"][0]))))
            batch = self._to_device(micro)
            with self.parallel.exchange(last=number == len(micro_batches)):
                with self._precision(), record_function("forward"):
                    total, values = self.parallel.module(batch)
                with record_function("backward"):
                    total.backward()
            sums += values
            losses.append(values[0])
        others = sums.new_tensor([int(arrays["num_characters"].sum()), bool(self.stop)])
        return torch.cat([sums, others]), losses

    def _micro_batches(self, arrays: Arrays) -> Iterator[Arrays]:
        count = len(arrays["sample_ids"])
        size = self.recipe.train.micro_batch or count
        for start in range(0, count, size):
            yield {name: values[start : start + size] for name, values in arrays.items()}

    def _suspects(self, arrays: Arrays, losses: list[Tensor]) -> list[int]:
        """The samples of the micro batches whose losses are not finite; all of them where it is not the losses."""
        parts = zip(self._micro_batches(arrays), torch.stack(losses).tolist(), strict=True)
        found = [id for micro, loss in parts if not math.isfinite(loss) for id in micro["sample_ids"].tolist()]
        return found or arrays["sample_ids"].tolist()

    def _gather(self, sample_ids: list[int]) -> list[int]:
        if self.world_size == 1:
            return sample_ids
        gathered: list[Any] = [None] * self.world_size
        dist.all_gather_object(gathered, sample_ids)
        return [sample_id for part in gathered for sample_id in part]

    def _precision(self) -> torch.autocast:
        bfloat16 = self.recipe.train.precision == "bfloat16"
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=bfloat16)

    def _to_device(self, arrays: Arrays) -> dict[str, Tensor]:
        return {name: torch.from_numpy(values).to(self.device, non_blocking=True) for name, values in arrays.items()}
