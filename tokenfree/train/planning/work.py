"""What a recipe's steps come to: arithmetic, parameters and targets, by shapes and, where there are data, one batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tokenfree.preprocess.config import PreprocessConfig
from tokenfree.train.batches.collator import Arrays
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.loader import Loader
from tokenfree.train.loop.task import pretraining_task
from tokenfree.train.loop.utilisation import Meter
from tokenfree.train.mixture.contents import load_data_manifest, load_data_vocabulary
from tokenfree.train.mixture.mixture import Data

_SAMPLED = 256  # examples of the data whose shapes are counted


@dataclass(frozen=True)
class Work:
    """The work of a run.

    Attributes:
        parameters: of the encoder with the head of its objective.
        head_parameters: of these.
        example_flops: floating point operations of an example, forward and backward.
        targets: of an example.
        classes: what a head's largest matrix chooses from.
        data_bytes: of all shards, None without data.
        epochs: how often the run goes through the text, None without data.
        source: what the shapes were taken from.
    """

    parameters: int
    head_parameters: int
    example_flops: float
    targets: float
    classes: int
    data_bytes: int | None
    epochs: float | None
    source: str


def work_of(recipe: PretrainRecipe, data: Data | None) -> Work:
    """The work of `recipe` on `data`, or on full windows with as many targets as there can be.

    Raises:
        UserError: the data cannot be read.
    """
    train, most = recipe.train, recipe.objective.max_predictions
    if data is None:
        needed = recipe.objective.vocabulary_size(recipe.model)
        size = PreprocessConfig().vocabulary.size if needed is None else needed
        source = f"full windows of {train.length:,} with {most} targets" + (f", {size:,} subwords" if size else "")
        arrays: Arrays = {
            "codepoints": np.zeros((1, train.length), np.int64),
            "target_mask": np.ones((1, most), np.bool_),
        }
        data_bytes = epochs = None
    else:
        manifest, vocabulary = load_data_manifest(data), load_data_vocabulary(data)
        size = vocabulary.size if vocabulary is not None else 0
        collator = recipe.objective.collator(vocabulary, train.length, train.seed)
        arrays = Loader(
            data, global_batch=_SAMPLED, seed=train.seed, smoothing=train.smoothing, streams=1, collator=collator
        ).batch(0)
        source = f"{_SAMPLED} examples of {data}"
        data_bytes = sum(shard.bytes for split in manifest.splits.values() for shard in split.shards)
        epochs = train.steps * train.global_batch / manifest.splits["train"].rows
    with torch.device("meta"):
        task = pretraining_task(recipe, size)
    meter = Meter(task.encoder, task.head, device=torch.device("cpu"), precision=train.precision)
    mask = arrays.get("target_mask")
    num_examples = len(arrays["codepoints"])
    of_head = sum(parameter.numel() for parameter in task.head.parameters())
    return Work(
        parameters=sum(parameter.numel() for parameter in task.parameters()),
        head_parameters=of_head,
        example_flops=meter.flops(arrays) / num_examples,
        targets=train.length if mask is None else float(mask.sum()) / num_examples,
        classes=max((parameter.shape[0] for parameter in task.head.parameters()), default=0),
        data_bytes=data_bytes,
        epochs=epochs,
        source=source,
    )
