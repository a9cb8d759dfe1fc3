"""Weights to begin with, wherever they come from: a run, or a folder of transformers such as the official CANINE.

Either may lie on this machine or at an address that fsspec knows. Only the command reads them: workers need not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.train.config import FinetuneRecipe, Recipe
from tokenfree.train.huggingface.folders import WEIGHTS, read_folder
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import Objective
from tokenfree.train.parallel.full_state import model_tensors
from tokenfree.train.runs.locate import checkpoint_of
from tokenfree.train.runs.run_config import read_any_config

_CONFIG = "config.json"
_CHECKPOINT = re.compile(r"(.+)/checkpoints/step_(\d+)/?")


@dataclasses.dataclass(frozen=True)
class GivenWeights:
    """The weights of a trained model, on the CPU, and what tells whether they fit another."""

    path: str  # absolute path or address
    what: str  # in words, such as "step 400 of a run"
    tensors: Mapping[str, Tensor]  # by the names of a run: `encoder.` and what follows, `head.` and what follows
    model: ModelConfig
    objective: Objective | None  # None: there is no head of an objective
    vocabulary: str | None  # SHA-256 of its subwords; None: none, or not known
    task: Any = None  # of a fine-tuned run: what its head is for

    @functools.cached_property
    def sha256(self) -> str:
        """Of names, shapes, types and values; the same whatever kind of file they were read from."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


def absolute(source: str) -> str:
    """The absolute path, or the address as it is, by which `source` is remembered."""
    return source if "://" in source else os.path.abspath(source)


def run_and_step(source: str) -> tuple[str, int | None]:
    """Return a source of weights without the checkpoint that it names, and the step of that checkpoint."""
    match = _CHECKPOINT.fullmatch(source)
    return (match[1], int(match[2])) if match else (source, None)


def read_weights(source: str, *, trust_code: bool = False, recipe: Recipe | None = None) -> GivenWeights:
    """The weights of a run (the averages where it has some; see `checkpoint_of` for which checkpoint), or those in a
    folder of transformers.

    Args:
        source: path or address; RUN/checkpoints/step_N names a checkpoint.
        trust_code: run the code outside tokenfree that a run names.
        recipe: one of the user's, whose own code is run in any case.

    Raises:
        UserError: there is neither, or it is damaged; the message names the option `--init-from`.
        JobError: the checkpoint is damaged.
    """
    run, step = run_and_step(source)
    storage = Storage.at(absolute(run))
    try:
        names = storage.names()
    except Exception as error:  # whatever a store raises, such as a lack of credentials
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"--init-from {source}: cannot be read ({reason}); mend that or give another") from None
    if "config.yaml" in names:
        return _of_run(run, step, trust_code, recipe)
    if _CONFIG in names:
        return _of_folder(storage, source)
    raise UserError(f"--init-from {source}: {_missing(storage, names)}")


def _of_run(run: str, step: int | None, trust_code: bool, recipe: Recipe | None) -> GivenWeights:
    config = read_any_config(run, trust_code=trust_code, recipe=recipe)
    checkpoint, trained = checkpoint_of(run, step), config.recipe
    imported = config.manifest == ""
    is_task = isinstance(trained, FinetuneRecipe)
    return GivenWeights(
        absolute(run),
        "an imported run" if imported else f"step {checkpoint.step:,} of a run",
        checkpoint.weights(),
        trained.model,
        None if imported or is_task else trained.objective,
        checkpoint.state.vocabulary,
        trained.task if is_task else None,
    )


def _of_folder(storage: Storage, source: str) -> GivenWeights:
    with _on_this_machine(storage) as folder:
        found = read_folder(folder)
    tensors = {f"encoder.{name}": tensor for name, tensor in model_tensors(found.encoder).items()}
    if not found.has_pooler:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("encoder.pooler.")}
    what = f"a {found.kind} of transformers"
    return GivenWeights(absolute(source), what, tensors, found.encoder.config, None, found.vocabulary)


@contextlib.contextmanager
def _on_this_machine(storage: Storage) -> Iterator[Path]:
    """The folder itself, or a copy of what is read of it, for the time of the block."""
    if storage.is_local:
        yield Path(storage.path(""))
        return
    names = storage.names()
    with tempfile.TemporaryDirectory(prefix="tokenfree-") as scratch:
        for name in (_CONFIG, *[name for name in WEIGHTS if name in names][:1]):
            storage.get(name, f"{scratch}/{name}")
        try:
            yield Path(scratch)
        except UserError as error:
            raise UserError(str(error).replace(scratch, storage.url)) from None


def _missing(storage: Storage, names: list[str]) -> str:
    """What is wrong with a place that holds neither a run nor a model, and what to give."""
    path = Path(storage.path(""))
    if storage.is_local and path.is_file():
        return f"is a file; give the folder that it is in, {path.parent}"
    if storage.is_local and not path.exists():
        return "there is no such folder; give a run, or a folder with a model of transformers, downloaded before"
    return f"this holds neither a run (config.yaml) nor a model of transformers ({_CONFIG}); give a folder of either"
