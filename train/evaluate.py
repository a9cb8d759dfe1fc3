"""A trained run on held-out windows: the same windows and masks in every evaluation."""

from __future__ import annotations

import dataclasses

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.dataset.manifest import load_manifest
from tokenfree.preprocess.dataset.vocabulary import load_vocabulary
from tokenfree.train.config import check
from tokenfree.train.loop.loop import Loop
from tokenfree.train.runs.locate import newest_checkpoint
from tokenfree.train.runs.run_config import read_config


def evaluate(run: str, data: str, *, num_windows: int | None = None, device: str = "cpu") -> dict[str, float | int]:
    """The newest checkpoint of `run` on `data`: `step`, what `Loop.validate` gives, and for objectives that have one
    the numbers of the unigram baseline, prefixed `unigram_` (see train/data/unigram.py).

    Args:
        run: path or address of a run with a checkpoint.
        data: path or address of a data directory, with the vocabulary of the run's own data.
        num_windows: how many windows, spaced evenly over the validation split; by default as in the run's recipe.
        device: such as "cpu" or "cuda:0".

    Raises:
        UserError: there is no such run, it has no sound checkpoint, it was imported, or its model cannot read these
            data.
    """
    config = read_config(run)
    if not config.manifest:  # see train/huggingface/folders.py
        raise UserError(
            f"{run} was {config.data}: an encoder without the head of an objective, so that there is no loss to "
            "evaluate; encode texts with it (tokenfree.load_encoder) or give it to `tokenfree export`"
        )
    recipe = config.recipe
    if num_windows is not None:
        recipe = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, validation_windows=num_windows))
    checkpoint = newest_checkpoint(run)
    vocabulary = load_vocabulary(data)
    problems = check(recipe, load_manifest(data), vocabulary=vocabulary)
    sha256 = vocabulary.sha256 if vocabulary is not None else None
    if checkpoint.state.vocabulary != sha256:
        problems.append(
            f"{data} has another vocabulary than the data of {run}; preprocess it with that vocabulary/subwords.model "
            "as vocabulary.model"
        )
    if problems:
        raise UserError("; ".join(problems))
    loop = Loop(recipe, data, device=device)
    loop.load_model(checkpoint)
    baseline = loop.unigram()
    return {
        "step": checkpoint.step,
        **loop.validate(),
        **({} if baseline is None else {f"unigram_{name}": value for name, value in baseline.numbers().items()}),
    }
