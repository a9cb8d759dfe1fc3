"""Checks of how the settings of training fit together, to the data, the workers and this machine."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import torch

from tokenfree.core.errors import UserError
from tokenfree.core.machine import GIB, machine_memory
from tokenfree.core.ray_access import named_cluster
from tokenfree.core.settings_values import flatten, to_mapping
from tokenfree.preprocess.dataset.manifest import Manifest
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.records import readable_columns
from tokenfree.preprocess.text.specials import NUM_SUBWORD_SPECIALS
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe, Recipe
from tokenfree.train.model.costs import BYTES, num_parameters
from tokenfree.train.model.encoder import check as check_model

BYTES_OF_A_WEIGHT = 8  # a float32 weight and its gradient, without optimizer state


def with_rows_for(recipe: PretrainRecipe, vocabulary: Vocabulary | None) -> PretrainRecipe:
    """Return the recipe with a table row for each subword of the data, or more if the recipe asks for more."""
    embedder = recipe.model.embedder
    if vocabulary is None or embedder.symbols != "subwords":
        return recipe
    size = max(embedder.size, vocabulary.size + NUM_SUBWORD_SPECIALS)
    return replace(recipe, model=replace(recipe.model, embedder=replace(embedder, size=size)))


def check(
    recipe: PretrainRecipe,
    manifest: Manifest | None,
    *,
    workers: tuple[int, int] = (1, 1),
    vocabulary: Vocabulary | None = None,
    trains_here: bool = True,
) -> list[str]:
    """Return the problems between the parts of a recipe, its data and its workers, one line each.

    `manifest` is None if the data cannot be read. Without a `vocabulary` the needs of the objective are not
    checked. The memory of this machine is checked only if it `trains_here`.
    """
    train, problems = recipe.train, check_model(recipe.model, recipe.train.length)
    if train.global_batch % train.streams:
        problems.append(
            f"train.streams: {train.streams} streams do not divide train.global_batch {train.global_batch}"
        )
    if recipe.model.neighbours.name != "none" and not recipe.objective.takes_neighbours:
        problems.append(
            f"model.neighbours.name: {recipe.model.neighbours.name} is not for objective.name: {recipe.objective.name} "
            "as it is set; set it to none, or take canine_s without objective.next_sentence"
        )
    problems += [
        *_problems_of_workers(recipe, workers),
        *(_problems_of_memory(recipe) if trains_here else ()),
    ]
    if manifest is None:
        return problems
    problems += _problems_of_splits(manifest)
    if vocabulary is None and manifest.vocabulary_sha256 is not None:
        # The caller did not read the vocabulary.
        return problems
    if vocabulary is not None and vocabulary.sha256 != manifest.vocabulary_sha256:
        problems.append("vocabulary/subwords.model is not that of the data's manifest; preprocess again")
    return [
        *problems,
        *_problems_of_columns(recipe, manifest, vocabulary),
        *recipe.objective.check(recipe.model, vocabulary),
    ]


def check_finetuning(recipe: FinetuneRecipe, *, workers: tuple[int, int] = (1, 1)) -> list[str]:
    """Return the problems of a fine-tuning recipe that show without its files, one line each."""
    return [
        *check_model(recipe.model, recipe.train.length),
        *recipe.task.check(recipe.model, recipe.train.length),
        *_problems_of_workers(recipe, workers),
        *_problems_of_memory(recipe),
    ]


def _problems_of_workers(recipe: Recipe, workers: tuple[int, int]) -> Iterator[str]:
    min_workers, max_workers = workers
    if not 1 <= min_workers <= max_workers:
        yield f"--workers {min_workers}:{max_workers}: the fewest must be at least 1 and at most the most"
    if max_workers > recipe.train.global_batch:
        yield f"--workers: {max_workers} workers cannot share train.global_batch {recipe.train.global_batch}"


def _problems_of_memory(recipe: Recipe) -> Iterator[str]:
    if torch.cuda.is_available():
        return
    train, limit, width = recipe.train, machine_memory(), recipe.model.width
    of_model = {f"model.{key}": size for key, size in flatten(to_mapping(recipe.model)) if type(size) is int}
    of_batch = {f"train.{key}": getattr(train, key) or 0 for key in ("global_batch", "micro_batch", "length")}
    if isinstance(recipe, PretrainRecipe):
        of_batch["objective.max_predictions"] = recipe.objective.max_predictions or 0
    # Lower bounds: a square matrix in each layer; for each example an input, two layers' outputs and the
    # predictions.
    weights = BYTES_OF_A_WEIGHT * recipe.model.trunk.layers * width**2
    examples = min(train.micro_batch or train.global_batch, train.global_batch)
    kept = width * (2 * train.length + of_batch.get("objective.max_predictions", 0))
    batch = BYTES * (examples * kept + train.global_batch * train.length)
    # Then counting is worth its time.
    if weights < limit < 2 * BYTES_OF_A_WEIGHT * width**2 * max(of_model.values()):
        # Of a model that other checks refuse.
        with contextlib.suppress(ValueError):
            weights = BYTES_OF_A_WEIGHT * num_parameters(recipe.model)
    # Nothing is known about the machines of a cluster.
    if weights + batch > limit and named_cluster() is None:
        key, size = max((of_batch if batch > weights else of_model).items(), key=lambda item: item[1])
        yield (
            f"{key}: {size:,} is too large: a training step takes {(weights + batch) / GIB:,.0f} GiB and more (weights "
            f"and gradients {weights / GIB:,.1f}, a batch {batch / GIB:,.1f}), of {limit / GIB:,.1f} GiB that this "
            "machine gives; make the model or the batch smaller"
        )


def _problems_of_splits(manifest: Manifest) -> Iterator[str]:
    for split in ("train", "validation"):
        if split not in manifest.splits or not manifest.splits[split].rows:
            yield (
                f"the data have no windows to use for {split}; preprocess more text or set another "
                "validation_fraction"
            )


def _problems_of_columns(
    recipe: PretrainRecipe, manifest: Manifest, vocabulary: Vocabulary | None
) -> Iterator[str]:
    try:
        columns = set(recipe.objective.collator(vocabulary, recipe.train.length, recipe.train.seed).columns)
    except UserError as error:
        yield str(error)
        return
    missing = sorted(columns - set(readable_columns(manifest.config["columns"])))
    if missing:
        yield f"the data lack the columns {', '.join(missing)} that objective {recipe.objective.name} reads"
