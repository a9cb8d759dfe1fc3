"""Pretraining: windows of a data directory, masked by an objective, and the validation windows."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from tokenfree.core.signals import Stop
from tokenfree.train.batches.base import Arrays, Collator
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.loader import Loader
from tokenfree.train.data.mixture import Data, Mixture
from tokenfree.train.data.shards import ShardReader, load_data_manifest, load_data_vocabulary, paths_of
from tokenfree.train.data.validation import (
    VALIDATION_SEED,
    Baselines,
    NeighbourCounts,
    baselines,
    frequent_characters,
    symbol_counts,
    target_losses,
    validation_batches,
)
from tokenfree.train.loop.parallel import sum_over_workers
from tokenfree.train.loop.step import ModelWithHead, StepSums, build_task, on_device
from tokenfree.train.loop.trainer import Job, Source, TrainingLoop
from tokenfree.train.objectives.base import MaskedObjective, MaskingCollator, Objective
from tokenfree.train.runs.checkpoints import RunProgress

_MAX_BATCH = 32  # maximum number of examples in a validation batch; `train.micro_batch` may be lower


class WindowSource(Source):
    keeps_best = False

    def __init__(self, recipe: PretrainRecipe, data: Data, *, rank: int, world_size: int) -> None:
        self._recipe, self._data, self._rank, self._world_size = recipe, data, rank, world_size
        self._directories = paths_of(data) if isinstance(data, Mixture) else ()
        config = recipe.train
        self.content = load_data_manifest(data).fingerprint
        self.vocabulary = load_data_vocabulary(data)
        loader = Loader(
            data,
            global_batch=config.global_batch,
            seed=config.seed,
            smoothing=config.smoothing,
            streams=config.streams,
            collator=self._collator(recipe.objective, config.seed),
            rank=rank,
            world_size=world_size,
            check_shards=config.check_shards,
        )
        self.loader, self._train = loader, loader.reader

    def baselines(self) -> Baselines | None:
        symbols = self._recipe.objective.symbols(self.vocabulary)
        if symbols is None:
            return None
        held_out = list(self.held_out(whole=True, names_neighbours=True))
        result = baselines(self._train, symbols, held_out)
        if not held_out or "target_left" not in held_out[0]:
            return result
        counts = NeighbourCounts(self._train, len(symbols.usable))
        return result._replace(neighbours_N=target_losses(counts, held_out))

    def held_out(
        self, *, whole: bool = False, equally_many: bool = False, names_neighbours: bool = False
    ) -> Iterator[Arrays]:
        """Return an iterator over this worker's parts of the validation batches, or over the whole batches.

        Parts without `sample_ids` do not count.
        """
        config, objective = self._recipe.train, self._recipe.objective.for_validation()
        return validation_batches(
            self.validation,
            collator=self._collator(objective, VALIDATION_SEED, names_neighbours=names_neighbours),
            num_windows=config.validation_windows,
            batch=min(_MAX_BATCH, config.micro_batch or _MAX_BATCH),
            rank=0 if whole else self._rank,
            world_size=1 if whole else self._world_size,
            together=equally_many,
        )

    def _collator(self, objective: Objective, seed: int, *, names_neighbours: bool = False) -> Collator:
        collator = objective.collator(self.vocabulary, self._recipe.train.length, seed)
        if isinstance(collator, MaskingCollator):
            collator.names_neighbours = names_neighbours
            collator.reads_ngrams = self._recipe.model.neighbours.name != "none"
        return collator

    @functools.cached_property
    def validation(self) -> ShardReader:
        return ShardReader(self._data, "validation", check=self._recipe.train.check_shards)

    def build(self) -> ModelWithHead:
        task = build_task(self._recipe, self.vocabulary)
        if task.encoder.embedder.learns_characters:
            task.encoder.embedder.learn(frequent_characters(self._train))
        objective = self._recipe.objective
        if isinstance(objective, MaskedObjective):
            symbols = objective.symbols(self.vocabulary) if objective.output_bias == "frequencies" else None
            counts = None if symbols is None else symbol_counts(self._train, symbols)
            task.head.learn([] if self.vocabulary is None else self.vocabulary.pieces, counts)
        return task

    def validate(self, task: ModelWithHead, device: torch.device, *, equally_many: bool) -> dict[str, float]:
        """Return `validation_loss` (nats per target), `validation_accuracy`, `validation_targets` and other means.

        With several directories, these are over the targets of all, and `validation_loss_data_1` and so on
        are added.
        """
        means, reader = task.head.means, self.validation
        sums, by_directory = (
            StepSums.zeros(means, device),
            [StepSums.zeros(means, device) for _ in self._directories],
        )
        for arrays in self.held_out(equally_many=equally_many):
            _, of_batch = task(on_device(arrays, device))
            if len(arrays["sample_ids"]):
                sums = sums.plus(of_batch)
                if by_directory:
                    number = int(reader.directories_of(reader.shards_of(arrays["sample_ids"][:1]))[0])
                    by_directory[number] = by_directory[number].plus(of_batch)
        values = StepSums.unpack(sum_over_workers(sums.pack()), means).report()
        num_targets = values.pop("num_targets")
        whole = [StepSums.unpack(sum_over_workers(part.pack()), means) for part in by_directory]
        directory_losses = {
            f"loss_data_{k}": part.mean_loss() for k, part in enumerate(whole, 1) if part.num_targets
        }
        return {
            f"validation_{name}": value
            for name, value in {**values, "targets": num_targets, **directory_losses}.items()
        }

    def selection_loss(self, validation: Mapping[str, float]) -> float:
        return validation["validation_loss"]

    def result(
        self,
        task: ModelWithHead,
        device: torch.device,
        progress: RunProgress,
        folder: Path | None,
        *,
        equally_many: bool,
    ) -> dict[str, Any]:
        if self._rank:
            return {}
        assert progress.validation is not None, (
            "the last step is always validated before its checkpoint is written"
        )
        baselines = self.baselines()
        numbers = {} if baselines is None else baselines.numbers()
        validation = dict(progress.validation)
        return {
            "loss": progress.loss,
            **{
                name: validation.pop(name)
                for name in ("validation_loss", "validation_accuracy", "validation_targets")
            },
            "validation_means": validation,
            "symbol": None if baselines is None else baselines.symbol,
            "clue": None if baselines is None else baselines.clue,
            "baselines": numbers,
            "unigram_entropy": None if baselines is None else baselines.entropy,
            "unigram_cross_entropy": numbers.get("unigram"),
            "best_step": progress.best_step,
            "characters": progress.characters,
            "seconds": round(progress.seconds, 3),
        }


class Loop(TrainingLoop[PretrainRecipe]):
    def __init__(
        self,
        recipe: PretrainRecipe,
        data: Data,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: str = "cpu",
        stop: Stop | None = None,
    ) -> None:
        self.windows = WindowSource(recipe, data, rank=rank, world_size=world_size)
        super().__init__(recipe, self.windows, rank=rank, world_size=world_size, device=device, stop=stop)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainJob(Job):
    data: Data

    def make_loop(
        self, *, rank: int = 0, world_size: int = 1, device: str = "cpu", stop: Stop | None = None
    ) -> Loop:
        return Loop(self.recipe, self.data, rank=rank, world_size=world_size, device=device, stop=stop)
