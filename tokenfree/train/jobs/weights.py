"""Weights from a run or a transformers folder, and which of them a new model takes.

Both may lie on this machine or at an fsspec address. Only the command reads them, never the workers.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.settings import flatten, to_mapping
from tokenfree.core.storage import Storage
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.config import FinetuneRecipe, Recipe
from tokenfree.train.huggingface.folders import WEIGHTS, read_folder
from tokenfree.train.loop.parallel import model_tensors
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import Objective
from tokenfree.train.runs.config import read_any_config
from tokenfree.train.runs.run import checkpoint_of

_CONFIG = "config.json"
_CHECKPOINT = re.compile(r"(.+)/checkpoints/step_(\d+)/?")


@dataclasses.dataclass(frozen=True)
class GivenWeights:
    """The weights of a trained model, on the CPU, with what is needed to tell whether they fit another model."""

    path: str  # absolute path or address
    what: str  # description, such as "step 400 of a run"
    tensors: Mapping[str, Tensor]  # by their names in a run, which begin with `encoder.` or `head.`
    model: ModelConfig
    objective: Objective | None  # None: without the head of an objective
    vocabulary: str | None  # SHA-256 of its subwords; None: none, or unknown
    task: Any = None  # task of the head of a fine-tuned run

    @functools.cached_property
    def sha256(self) -> str:
        """Hash of names, shapes, types and values. It does not depend on the kind of file that they were read from."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


def absolute(source: str) -> str:
    """Return the absolute path of `source`, or the address unchanged, for records."""
    return source if "://" in source else os.path.abspath(source)


def run_and_step(source: str) -> tuple[str, int | None]:
    """Split `RUN/checkpoints/step_N` into the run and its step; the step is None for other sources."""
    match = _CHECKPOINT.fullmatch(source)
    return (match[1], int(match[2])) if match else (source, None)


def read_weights(source: str, *, trust_code: bool = False) -> GivenWeights:
    """Return the weights of a run, or of a model in a transformers folder.

    For a run, they are the averages if it has any. `checkpoint_of` says which checkpoint is the default.

    Args:
        source: Path or address; RUN/checkpoints/step_N names a checkpoint.
        trust_code: Run the code outside tokenfree that a run names.

    Raises:
        UserError: There is neither a run nor a model, or it is damaged; the message names the option `--init-from`.
        JobError: The checkpoint is damaged.
    """
    run, step = run_and_step(source)
    storage = Storage.at(absolute(run))
    try:
        names = storage.names()
    except Exception as error:  # stores raise many kinds, such as for missing credentials
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"--init-from {source}: cannot be read ({reason}); fix it or give another") from None
    if "config.yaml" in names:
        return _of_run(run, step, trust_code)
    if _CONFIG in names:
        return _of_folder(storage, source)
    raise UserError(f"--init-from {source}: {_missing(storage, names)}")


def _of_run(run: str, step: int | None, trust_code: bool) -> GivenWeights:
    config = read_any_config(run, trust_code=trust_code)
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
    """Yield the folder itself, or for the duration of the block a local copy of the files to read."""
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
    """Return what is wrong with a place that has neither a run nor a model, and what to do."""
    path = Path(storage.path(""))
    if storage.is_local and path.is_file():
        return f"is a file; give the folder that it is in, {path.parent}"
    if storage.is_local and not path.exists():
        return "there is no such folder; give a run, or a folder with a model of transformers, downloaded before"
    return f"this holds neither a run (config.yaml) nor a model of transformers ({_CONFIG}); give a folder of either"


LEAST_SHARE = 0.01  # minimum share of the model's parameters; less is treated as a mistake
_ABSENT = "not in the given weights"
_MOST_SETTINGS = 6  # maximum number of differing settings to show
_TABLE = "encoder.embedder.table."
_NOT_OF_THE_TABLE = ("positions", "max_characters", "segments")  # settings of an embedder that do not concern its table
_IN_LAYER = re.compile(r"(.*\blayers)\.(\d+)\.")


@dataclasses.dataclass(frozen=True)
class Fit:
    """The use of each tensor of a new model, and of each given tensor."""

    given: GivenWeights
    taken: Mapping[str, Tensor]  # given tensors to load, by name
    new: Mapping[str, str]  # names of the model's tensors that stay fresh, with the reason
    left: Mapping[str, str]  # names of given tensors that are not loaded, with the reason
    sizes: Mapping[str, int]  # number of values of each parameter, without buffers
    other_settings: tuple[str, ...]  # settings of the models that differ, one line each

    @property
    def num_parameters(self) -> int:
        """Number of the model's parameters that start from the given weights."""
        return sum(self.sizes.get(name, 0) for name in self.taken)

    @property
    def share(self) -> float:
        """Share of the model's parameters that start from the given weights."""
        return self.num_parameters / sum(self.sizes.values())

    def lines(self) -> list[str]:
        """Return lines for the user: tensors loaded, new and not loaded."""
        given = self.given
        lines = [
            f"weights of {given.path} ({given.what}): {len(self.taken)} of {len(given.tensors)} tensors loaded, "
            f"{self.num_parameters:,} parameters, {self.share:.1%} of this model"
        ]
        lines += [f"  new: {words}" for words in grouped(self.new, self.sizes)]
        lines += [f"  not loaded: {words}" for words in grouped(self.left, {})]
        if self.other_settings:
            lines.append(f"  settings that differ: {_shortened(self.other_settings)}")
        return lines


def fit(
    own: Mapping[str, Tensor],
    sizes: Mapping[str, int],
    given: GivenWeights,
    recipe: Recipe,
    vocabulary: Vocabulary | None,
) -> Fit:
    """Compare the tensors of a model with given ones.

    Args:
        own: Tensors of the model of `recipe`, by name.
        sizes: Number of values of its parameters, by name.
        vocabulary: Vocabulary of the data; None if they have none.

    Raises:
        UserError: (Almost) nothing fits, or given weights are not finite.
    """
    foreign = _foreign(own, given, recipe, vocabulary)
    taken, new, left = dict[str, Tensor](), dict[str, str](), dict[str, str]()
    for name, tensor in own.items():
        theirs = given.tensors.get(name)
        if theirs is None:
            new[name] = _ABSENT
        elif name in foreign:
            new[name] = left[name] = foreign[name]
        elif theirs.shape != tensor.shape:
            new[name] = left[name] = f"of another shape: {_shape(theirs)} there, {_shape(tensor)} here"
        else:
            taken[name] = theirs
    left |= {name: "no counterpart" for name in given.tensors if name not in own}
    _check_finite(taken, given)
    found = Fit(given, taken, new, left, sizes, tuple(_other_settings(given, recipe)))
    if found.share < LEAST_SHARE:
        raise UserError(_refusal(found))
    return found


def grouped(reasons: Mapping[str, str], sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each module and kind of reason, with the number of its tensors.

    A kind is the part of a reason before its colon. Lines also have the number of parameters if `sizes` has them.
    """
    groups = collections.defaultdict[tuple[str, str], list[str]](list)
    for name, reason in reasons.items():
        groups[_module(name), reason.partition(":")[0]].append(name)
    for (module, kind), names in groups.items():
        numbers = sorted({int(match[2]) for name in names if (match := _IN_LAYER.match(name))})
        layers = f" {_ranges(numbers)}" if numbers else ""
        count = f"{len(names)} tensor{'s' if len(names) > 1 else ''}"
        values = sum(sizes.get(name, 0) for name in names)
        example = reasons[names[0]].removeprefix(kind)
        of = f" ({names[0].removeprefix(module)[1:]})" if example and len(names) > 1 else ""
        yield f"{module}{layers}: {count}{f', {values:,} parameters' if values else ''}, {kind}{example}{of}"


def _foreign(
    own: Mapping[str, Tensor], given: GivenWeights, recipe: Recipe, vocabulary: Vocabulary | None
) -> dict[str, str]:
    """Return the tensors that mean something else in the model of `recipe`, even if shapes match, with reasons."""
    found = dict[str, str]()
    subwords = None if vocabulary is None else vocabulary.sha256
    other_vocabulary = "of another vocabulary" if given.vocabulary else "of a vocabulary that is not known"
    here, there = (_table_settings(embedder) for embedder in (recipe.model.embedder, given.model.embedder))
    other = [f"{key} {here.get(key)!r} here, {there.get(key)!r} there" for key in {**here, **there}
             if here.get(key) != there.get(key)]  # fmt: skip
    if other:
        found |= {name: f"another embedder, {other[0]}" for name in own if name.startswith(_TABLE)}
    elif recipe.model.embedder.symbols == "subwords" and given.vocabulary != subwords:
        found |= {name: other_vocabulary for name in own if name.startswith(_TABLE)}
    if isinstance(recipe, FinetuneRecipe):
        return found | _foreign_to_task(own, given, recipe)
    if given.task is not None:
        return found | dict.fromkeys(_of_head(own), f"of the task {given.task.name}")
    if given.objective is not None and given.objective.name != recipe.objective.name:
        return found | dict.fromkeys(_of_head(own), f"of the objective {given.objective.name}")
    if given.vocabulary != subwords:
        size = 0 if vocabulary is None else vocabulary.size
        found |= {f"head.{name}": other_vocabulary for name in _of_subwords(recipe.objective, recipe.model.width, size)}
    return found


def _foreign_to_task(own: Mapping[str, Tensor], given: GivenWeights, recipe: FinetuneRecipe) -> dict[str, str]:
    """Return the tensors of the task's head, with a reason, if the given weights are of another task."""
    if given.task == recipe.task:
        return {}
    if given.task is not None:
        return dict.fromkeys(_of_head(own), "of the same task with other settings or labels"
                             if given.task.name == recipe.task.name else f"of the task {given.task.name}")  # fmt: skip
    return {} if given.objective is None else dict.fromkeys(_of_head(own), f"of the objective {given.objective.name}")


def _of_head(own: Mapping[str, Tensor]) -> list[str]:
    return [name for name in own if name.startswith("head.")]


def _table_settings(embedder: Any) -> dict[str, Any]:
    """Return the settings that decide which row of an embedder's table a symbol has."""
    return {key: value for key, value in to_mapping(embedder).items() if key not in _NOT_OF_THE_TABLE}


def _of_subwords(objective: Objective, width: int, num_subwords: int) -> set[str]:
    """Return the tensors of a head that have entries for each subword; their shapes change with the vocabulary."""
    with torch.device("meta"):
        heads = [objective.build(width, size).state_dict() for size in (num_subwords, num_subwords + 1)]
    return {name for name in heads[0] if heads[0][name].shape != heads[1][name].shape}


def _other_settings(given: GivenWeights, recipe: Recipe) -> Iterator[str]:
    """Yield the settings of the models that differ. If a part has another name, only its name is yielded."""
    here, there = (dict(flatten(to_mapping(_resolved(model)))) for model in (recipe.model, given.model))
    keys = [key for key in dict.fromkeys([*here, *there]) if here.get(key) != there.get(key)]
    parts = [key.removesuffix("name") for key in keys if key.endswith(".name")]
    for key in keys:
        if key.endswith(".name") or not key.startswith(tuple(parts)):
            yield f"model.{key} {here.get(key)!r}, there {there.get(key)!r}"


def _resolved(model: ModelConfig) -> ModelConfig:
    """Return the same model with the widths that it derives from others filled in."""
    dimensions = model.dimensions
    trunk = dataclasses.replace(model.trunk, inner_width=dimensions.inner_width)
    return dataclasses.replace(model, trunk=trunk, character_width=dimensions.character_width)


def _check_finite(taken: Mapping[str, Tensor], given: GivenWeights) -> None:
    for name, tensor in taken.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise UserError(f"--init-from {given.path}: {name} has values that are no numbers; give other weights")


def _refusal(found: Fit) -> str:
    given, taken = found.given, len(found.taken)
    what = f"only {taken} tensors, {found.share:.2%} of the parameters," if taken else "no tensor"
    why = _shortened(found.other_settings) or "; ".join(grouped(found.new, {}))
    return (
        f"--init-from {given.path}: {what} of this model would be loaded ({why}); give a recipe more like the one of "
        "those weights, or leave it out"
    )


def _shortened(settings: Sequence[str]) -> str:
    more = len(settings) - _MOST_SETTINGS
    return "; ".join([*settings[:_MOST_SETTINGS], *([f"and {more} more"] if more > 0 else [])])


def _module(name: str) -> str:
    match = _IN_LAYER.match(name)
    return match[1] if match else ".".join(name.split(".")[: 1 if name.startswith("head.") else 2])


def _ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers as text such as 0-3, 7."""
    runs = list[list[int]]()
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a number"
