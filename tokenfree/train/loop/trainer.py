"""The training loop in plain PyTorch, and its interface to data, model and validation.

The summed loss of all targets of the global batch is divided by their number. Except for rounding, it depends
neither on the number of workers nor on the micro batch. No random state is carried from step to step: dropout
is seeded by the first sample of each micro batch.
"""

import contextlib
import dataclasses
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic

import torch
from torch import Tensor

from tokenfree.core.settings_values import fingerprint
from tokenfree.core.signals import Stop
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.config import R
from tokenfree.train.data.loader import StepLoader, batch_of
from tokenfree.train.loop.parallel import (
    DataParallel,
    FullyShardedDataParallel,
    SingleWorker,
    WeightAverage,
    broadcast,
    check_compile,
    compile_task,
    compiles,
    load_model,
    load_optimizer,
    model_tensors,
    optimizer_tensors,
    recompute,
)
from tokenfree.train.loop.step import ModelWithHead, StepNumbers, TrainingStep
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.optimizers.base import learning_rate, set_options
from tokenfree.train.runs.checkpoints import (
    AVERAGE,
    MODEL,
    OPTIMIZER,
    Checkpoint,
    CheckpointState,
    RunProgress,
)
from tokenfree.train.runs.run import Run
from tokenfree.train.torch_state import matrix_precision


class Source(ABC):
    content: str  # fingerprint of the data
    vocabulary: Vocabulary | None  # of the data, or of the texts that the model reads
    loader: StepLoader
    # Whether the best checkpoint is the result of the run; it is then written as soon as it is found.
    keeps_best: bool

    @abstractmethod
    def build(self) -> ModelWithHead:
        """Return the encoder with its head, with the same new weights on every worker and at every start."""

    @abstractmethod
    def validate(self, task: ModelWithHead, device: torch.device, *, equally_many: bool) -> dict[str, float]:
        """Return metrics named `validation_...`, the same on all workers.

        With `equally_many`, all workers make the same number of forward passes, as sharded models require.
        """

    @abstractmethod
    def selection_loss(self, validation: Mapping[str, float]) -> float:
        """Return the number by which validations are compared. The lowest is the best."""

    @abstractmethod
    def result(
        self,
        task: ModelWithHead,
        device: torch.device,
        progress: RunProgress,
        folder: Path | None,
        *,
        equally_many: bool,
    ) -> dict[str, Any]:
        """Return the content of result.json.

        All workers call this; rank 0's counts, which has a `folder` for files.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job(ABC):
    """The arguments that every worker of a run gets. It is pickled in transit."""

    recipe: Any
    run: str  # path or URL
    has_first_checkpoint: bool = False  # whether the run starts from given weights
    owner: str | None = None  # see `Run.claimed`

    @abstractmethod
    def make_loop(
        self, *, rank: int = 0, world_size: int = 1, device: str = "cpu", stop: Stop | None = None
    ) -> "TrainingLoop[Any]":
        """Return a new training loop of one worker."""


class TrainingLoop(Generic[R]):
    """Model, optimizer and data of one run, at one step. `recipe` was already checked."""

    def __init__(
        self,
        recipe: R,
        source: Source,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: str = "cpu",
        stop: Stop | None = None,
    ) -> None:
        self.recipe, self.source, self.rank, self.world_size = recipe, source, rank, world_size
        self.device = torch.device(device)
        # Completed optimizer steps.
        self.step = 0
        # Numbers of batches that are skipped.
        self.left_out: frozenset[int] = frozenset()
        self.stop = Stop() if stop is None else stop
        config = recipe.train
        self.loader = source.loader
        self.model = source.build().to(self.device)
        self.encoder: Encoder = self.model.encoder
        self.parallel = self._shared(self.model)
        self.optimizer: torch.optim.Optimizer = config.optimizer.build(self.model)
        if config.embedder_rate != 1:
            set_options(self.optimizer, self.encoder.embedder, rate_factor=config.embedder_rate)
        for module in self.model.modules():
            options: dict[str, float] = getattr(module, "optimizer_options", {})
            if options:
                set_options(self.optimizer, module, **options)
        self._average = None if config.ema_decay is None else WeightAverage(self.model, config.ema_decay)
        self._training_step = TrainingStep(
            config,
            self.model,
            self.parallel,
            self.optimizer,
            self._average,
            stop=self.stop,
            device=self.device,
            world_size=world_size,
        )

    @property
    def stopping(self) -> bool:
        """Whether a worker was asked to stop. Several workers agree: they exchange it in each step."""
        return self._training_step.stopping if self.world_size > 1 else bool(self.stop)

    def steps(self, until: int) -> Generator[dict[str, float], None, None]:
        config = self.recipe.train
        check_compile(config.compile, self.device.type)
        with self.loader.batches(self.step, until, left_out=self.left_out) as batches:
            while self.step < until:
                began = time.perf_counter()
                arrays = next(batches)
                waited = time.perf_counter() - began
                batch = batch_of(self.step, self.left_out)
                rate = learning_rate(
                    self.step,
                    steps=config.steps,
                    peak=config.learning_rate,
                    warmup=config.warmup,
                    schedule=config.schedule,
                )
                numbers = StepNumbers(step=self.step + 1, batch=batch, rate=rate, waited=waited)
                line = self._training_step.take(arrays, numbers)
                self.step += 1
                yield line

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        with self.evaluating():
            metrics = self.source.validate(self.model, self.device, equally_many=self.parallel.is_sharded)
            self.parallel.reshard()
        return metrics

    @torch.no_grad()
    def result(self, run: Run, progress: RunProgress) -> dict[str, Any]:
        """Return the result of `Source.result`.

        If the best checkpoint is the run's result, its weights stay loaded.
        """
        if self.source.keeps_best and progress.best_step is not None:
            best = broadcast(run.at(progress.best_step) if self.rank == 0 else None)
            assert best is not None, "rank 0 has it"
            self.load_model(run.here(best))
        with self.evaluating():
            scores = self.source.result(
                self.model,
                self.device,
                progress,
                run.folder if self.rank == 0 else None,
                equally_many=self.parallel.is_sharded,
            )
            self.parallel.reshard()
        return scores

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the model in evaluation mode within the block, with the average of the weights if there is one."""
        self.model.eval()
        weights = contextlib.nullcontext() if self._average is None else self._average.in_use()
        try:
            with weights, matrix_precision(self.recipe.train.precision, self.device):
                yield
        finally:
            self.model.train()

    def leave_out(self, batches: Iterable[int]) -> None:
        self.left_out |= frozenset(batches)

    def snapshot(self) -> tuple[dict[str, dict[str, Tensor]], CheckpointState]:
        """Return copies of all tensors, on rank 0, and the rest of the state.

        Sharded workers must all call this.
        """
        keep = self.rank == 0
        parts = {
            MODEL: model_tensors(self.model, keep=keep),
            OPTIMIZER: optimizer_tensors(self.model, self.optimizer, keep=keep),
        }
        if self._average is not None:
            parts[AVERAGE] = self._average.tensors(keep=keep)
        return parts, CheckpointState(
            step=self.step,
            seed=self.recipe.train.seed,
            recipe=fingerprint(self.recipe),
            manifest=self.source.content,
            vocabulary=self.source.vocabulary.sha256 if self.source.vocabulary is not None else None,
            loader=dict(self.loader.fingerprint),
            world_size=self.world_size,
            left_out=tuple(sorted(self.left_out)),
            recent_losses=tuple(self._training_step.recent),
        )

    def load(self, checkpoint: Checkpoint) -> None:
        """Resume from a checkpoint. The following losses equal those of an uninterrupted run."""
        state = checkpoint.state
        self.loader.check(state.loader, str(checkpoint.path))
        self.load_model(checkpoint)
        load_optimizer(self.model, self.optimizer, checkpoint.tensors(OPTIMIZER))
        self.leave_out(state.left_out)
        self._training_step.recent.clear()
        self._training_step.recent.extend(state.recent_losses)
        self.step = state.step

    def begin_with(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace new weights by these whole tensors, by name, before the first step.

        The average starts at them.
        """
        state = model_tensors(self.model)
        load_model(self.model, {**state, **tensors})
        if self._average is not None:
            self._average.load({**state, **tensors})

    def load_model(self, checkpoint: Checkpoint) -> None:
        tensors = checkpoint.tensors(MODEL)
        checkpoint.check_fit(self.model, tensors)
        load_model(self.model, tensors)
        if self._average is not None:
            self._average.load(checkpoint.tensors(AVERAGE))

    def _shared(self, task: ModelWithHead) -> SingleWorker:
        config = self.recipe.train
        layers = list(task.encoder.trunk.layers)
        if config.checkpoint_activations:
            for layer in layers:
                recompute(layer)
        sharded = config.parallel == "fsdp" and self.world_size > 1
        if compiles(config, self.device):
            compile_task(task, layers, in_parts=sharded)
        if sharded:
            return FullyShardedDataParallel(task, layers, self.device)
        return DataParallel(task) if self.world_size > 1 else SingleWorker(task)
