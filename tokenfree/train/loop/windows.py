"""The source of pretraining: windows of a data directory, masked by an objective, and its validation split."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.baselines import Baselines, symbol_counts
from tokenfree.train.data.loader import Loader
from tokenfree.train.loop.step_sums import StepSums
from tokenfree.train.loop.task import Task, build_task, learn_characters, on_device
from tokenfree.train.loop.validation import Validator
from tokenfree.train.mixture.contents import load_data_manifest, load_data_vocabulary
from tokenfree.train.mixture.mixture import Data, Mixture, paths_of
from tokenfree.train.objectives.base import MaskedObjective
from tokenfree.train.parallel.collectives import sum_over_workers
from tokenfree.train.runs.checkpoint_state import RunProgress


class WindowSource:
    """See `tokenfree.train.loop.source.Source`.

    Args:
        recipe: what to train, already checked (see `tokenfree.train.config.check`).
        data: a data directory with a manifest, or several.
        rank, world_size: this process among the workers.

    Raises:
        UserError: no such data, or data that the recipe cannot be trained on.
    """

    keeps_best = False

    def __init__(self, recipe: PretrainRecipe, data: Data, *, rank: int, world_size: int) -> None:
        self._recipe, self._data, self._rank = recipe, data, rank
        self._directories = paths_of(data) if isinstance(data, Mixture) else ()
        config = recipe.train
        self.content = load_data_manifest(data).fingerprint
        self.vocabulary = load_data_vocabulary(data)
        self.loader = Loader(
            data,
            global_batch=config.global_batch,
            seed=config.seed,
            smoothing=config.smoothing,
            streams=config.streams,
            collator=recipe.objective.collator(self.vocabulary, config.length, config.seed),
            rules={**recipe.objective.rules(), **config.optimizer.rules()},
            rank=rank,
            world_size=world_size,
            check_shards=config.check_shards,
        )
        self.validator = Validator(recipe, data, self.vocabulary, rank=rank, world_size=world_size)

    def build(self) -> Task:
        """The model with fresh weights, and what its embedder takes from the data."""
        task = build_task(self._recipe, self.vocabulary)
        check = self._recipe.train.check_shards
        learn_characters(task.encoder, self._data, check_shards=check)
        objective = self._recipe.objective
        if isinstance(objective, MaskedObjective):
            symbols = (
                self._recipe.objective.symbols(self.vocabulary) if objective.output_bias == "frequencies" else None
            )
            counts = None if symbols is None else symbol_counts(self._data, symbols, check_shards=check)
            task.head.learn([] if self.vocabulary is None else self.vocabulary.pieces(), counts)
        return task

    def validate(self, task: Task, device: torch.device, *, equally_many: bool) -> dict[str, float]:
        """`validation_loss` (nats per target), `validation_accuracy`, `validation_targets` and what else the objective
        reports, with that prefix: fixed samples and masks. Of several directories these are over the targets of all,
        of which each has its share, and there is `validation_loss_data_1` and so on of each that has windows.

        Raises:
            UserError: the data have no validation windows.
        """
        means = task.head.means
        sums, by_directory = StepSums.zeros(means, device), [StepSums.zeros(means, device) for _ in self._directories]
        for arrays in self.validator.batches(equally_many=equally_many):
            _, of_batch = task(on_device(arrays, device))
            if len(arrays["sample_ids"]):
                sums = sums.plus(of_batch)
                if by_directory:
                    number = self.validator.directory_of(arrays)
                    by_directory[number] = by_directory[number].plus(of_batch)
        values = StepSums.unpack(sum_over_workers(sums.pack()), means).report()
        num_targets = values.pop("num_targets")
        whole = [StepSums.unpack(sum_over_workers(each.pack()), means) for each in by_directory]
        of_each = {f"loss_data_{k}": each.mean_loss() for k, each in enumerate(whole, 1) if each.num_targets}
        return {f"validation_{name}": value for name, value in {**values, "targets": num_targets, **of_each}.items()}

    def badness(self, validation: Mapping[str, float]) -> float:
        """The loss."""
        return validation["validation_loss"]

    def baselines(self) -> Baselines | None:
        """What models without context would score on the validation targets; None for objectives without such."""
        return self.validator.baselines()

    def result(
        self, task: Task, device: torch.device, progress: RunProgress, folder: Path | None, *, equally_many: bool
    ) -> dict[str, Any]:
        """The last losses, and on rank 0 the baselines beside them."""
        if self._rank:
            return {}
        assert progress.validation is not None, "the last step is always validated before its checkpoint is written"
        baselines = self.baselines()
        numbers = {} if baselines is None else baselines.numbers()
        validation = dict(progress.validation)
        return {
            "loss": progress.loss,
            **{name: validation.pop(name) for name in ("validation_loss", "validation_accuracy", "validation_targets")},
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
