"""A trained run on held-out windows: the same windows and masks in every evaluation."""

from __future__ import annotations

import dataclasses

from preprocess.errors import UserError
from preprocess.manifest import load_manifest
from train.config import check, load_vocabulary
from train.loop import Loop
from train.run_folder import read_config, run_at


def evaluate(run: str, data: str, *, num_windows: int | None = None, device: str = "cpu") -> dict[str, float | int]:
    """The newest checkpoint of `run` on `data`: step, validation loss, accuracy and targets, unigram baselines.

    Args:
        num_windows: how many windows, spaced evenly over the validation split; by default as in the run's recipe.

    Raises:
        UserError: there is no such run, it was imported, or its model cannot read these data.
    """
    config = read_config(run)
    if not config.manifest:  # see train/huggingface_folder.py
        raise UserError(
            f"{run} was {config.data}: an encoder without the head of an objective, so that there is no loss to "
            "evaluate; encode texts with it (train.load_encoder) or give it to `tokenfree export`"
        )
    recipe = config.recipe
    if num_windows is not None:
        recipe = dataclasses.replace(recipe, train=dataclasses.replace(recipe.train, validation_windows=num_windows))
    damaged: list[str] = []
    checkpoint = run_at(run).newest(damaged.append)
    if checkpoint is None:
        raise UserError(f"{run} has no sound checkpoint; " + ("; ".join(damaged) or "train it first"))
    vocabulary = load_vocabulary(data)
    mistakes = check(recipe, load_manifest(data), vocabulary=vocabulary)
    sha256 = vocabulary.sha256 if vocabulary is not None else None
    if checkpoint.state["vocabulary"] != sha256:
        mistakes.append(
            f"{data} has another vocabulary than the data of {run}; preprocess it with that vocabulary/subwords.model "
            "as vocabulary.model"
        )
    if mistakes:
        raise UserError("; ".join(mistakes))
    loop = Loop(recipe, data, device=device)
    loop.load_model(checkpoint)
    baseline = loop.unigram()
    return {
        "step": checkpoint.step,
        **loop.validate(),
        **({} if baseline is None else {f"unigram_{name}": value for name, value in baseline.numbers().items()}),
    }
