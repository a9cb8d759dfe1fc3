"""Start a run from given weights: of a run or a transformers folder, which the command alone reads.

A run may also be at an fsspec address. The command writes the weights that a new model takes as the
checkpoint of step 0.
"""

import dataclasses
import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic

import torch
from torch import Tensor

from tokenfree.core.errors import UserError, first_line
from tokenfree.core.files import AnyPath, absolute_path, expand_home
from tokenfree.core.settings_values import fingerprint, flatten, to_mapping
from tokenfree.core.storage import Storage
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe, R, Recipe
from tokenfree.train.huggingface.folders import read_folder
from tokenfree.train.loop.parallel import model_tensors
from tokenfree.train.loop.trainer import TrainingLoop
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import Objective
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.config import InitFrom, RunConfig, config_before, read_any_config
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.runs.run import Run, checkpoint_of
from tokenfree.train.torch_state import default_settings

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
        """Hash of names, shapes, types and values.

        It does not depend on the kind of file that they were read from.
        """
        digest = hashlib.sha256()
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


def run_and_step(source: str) -> tuple[str, int | None]:
    """Split `RUN/checkpoints/step_N` into the run and its step; the step is None for other sources."""
    match = _CHECKPOINT.fullmatch(source)
    return (match[1], int(match[2])) if match else (source, None)


@default_settings()
def read_weights(source: AnyPath, *, trust_code: bool = False) -> GivenWeights:
    """Return the weights of a run or one of its checkpoints, or of a model in a transformers folder.

    The weights of a run are the averages if it has any. Raises UserError if there is neither or it is
    damaged.
    """
    source = expand_home(source)
    run, step = run_and_step(source)
    storage = Storage.at(absolute_path(run))
    try:
        names = storage.names()
    except Exception as error:  # stores raise many kinds, such as for missing credentials
        raise UserError(
            f"--init-from {source}: cannot be read ({first_line(error)}); fix it or give another"
        ) from None
    if "config.yaml" in names:
        return _of_run(run, step, trust_code)
    if _CONFIG in names:
        return _of_folder(storage, source)
    raise UserError(
        f"--init-from {source}: this holds neither a run (config.yaml) nor a model of transformers ({_CONFIG}); give a "
        "folder of either"
    )


def _of_run(run: str, step: int | None, trust_code: bool) -> GivenWeights:
    config = read_any_config(run, trust_code=trust_code)
    checkpoint, trained = checkpoint_of(run, step), config.recipe
    imported = config.manifest == ""
    is_task = isinstance(trained, FinetuneRecipe)
    return GivenWeights(
        absolute_path(run),
        "an imported run" if imported else f"step {checkpoint.step:,} of a run",
        checkpoint.weights(),
        trained.model,
        None if imported or is_task else trained.objective,
        checkpoint.state.vocabulary,
        trained.task if is_task else None,
    )


def _of_folder(storage: Storage, source: str) -> GivenWeights:
    if not storage.is_local:
        raise UserError(
            f"--init-from {source}: a folder of transformers must be on this machine; copy it here"
        )
    folder_model = read_folder(Path(storage.path("")))
    return GivenWeights(
        absolute_path(source),
        f"a {folder_model.kind} of transformers",
        {
            f"encoder.{name}": tensor
            for name, tensor in model_tensors(folder_model.encoder).items()
            if folder_model.has_pooler or not name.startswith("pooler.")
        },
        folder_model.encoder.config,
        None,
        folder_model.vocabulary,
    )


# Minimum share of the model's parameters; less is treated as a mistake.
MIN_SHARE = 0.01
_ABSENT, _OTHER_VOCABULARY = "not in the given weights", "of another vocabulary"
_MAX_SETTINGS = 6  # maximum number of differing settings to show
_TABLE = "encoder.embedder.table."
# Settings of an embedder that do not concern its table.
_NOT_OF_THE_TABLE = ("positions", "max_characters", "segments")


@dataclasses.dataclass(frozen=True)
class WeightMatch:
    given: GivenWeights
    taken: Mapping[str, Tensor]  # given tensors to load, by name
    new: Mapping[str, str]  # names of the model's tensors that stay fresh, with the reason
    left: Mapping[str, str]  # names of given tensors that are not loaded, with the reason
    sizes: Mapping[str, int]  # number of values of each parameter, without buffers
    other_settings: tuple[str, ...]  # settings of the models that differ, one line each

    @property
    def num_parameters(self) -> int:
        return sum(self.sizes.get(name, 0) for name in self.taken)

    @property
    def share(self) -> float:
        return self.num_parameters / sum(self.sizes.values())

    def lines(self) -> list[str]:
        weights = self.given
        lines = [
            f"weights of {weights.path} ({weights.what}): {len(self.taken)} of {len(weights.tensors)} tensors loaded, "
            f"{self.num_parameters:,} parameters, {self.share:.1%} of this model"
        ]
        for what, reasons in (("new", self.new), ("not loaded", self.left)):
            lines += [f"  {what}: {words}" for words in _by_module(reasons)]
        if self.other_settings:
            lines.append(f"  settings that differ: {'; '.join(self.other_settings)}")
        return lines


def match_weights(
    state: Mapping[str, Tensor],
    sizes: Mapping[str, int],
    weights: GivenWeights,
    recipe: Recipe,
    vocabulary: Vocabulary | None,
) -> WeightMatch:
    """Compare the tensors of a model with given ones.

    Raises UserError if (almost) none fits or one is not finite.
    """
    foreign = _foreign(state, weights, recipe, vocabulary)
    taken, new, left = dict[str, Tensor](), dict[str, str](), dict[str, str]()
    for name, tensor in state.items():
        theirs = weights.tensors.get(name)
        if theirs is None:
            new[name] = _ABSENT
        elif name in foreign:
            new[name] = left[name] = foreign[name]
        elif theirs.shape != tensor.shape:
            new[name] = left[name] = "of another shape"
        elif theirs.is_floating_point() and not theirs.isfinite().all():
            raise UserError(
                f"--init-from {weights.path}: {name} has values that are not numbers; give other weights"
            )
        else:
            taken[name] = theirs
    left |= {name: "no counterpart" for name in weights.tensors if name not in state}
    matched = WeightMatch(
        weights, taken, new, left, sizes, tuple(_other_settings(weights, recipe))[:_MAX_SETTINGS]
    )
    if matched.share < MIN_SHARE:
        what = f"only {len(taken)} tensors, {matched.share:.2%} of the parameters," if taken else "no tensor"
        why = "; ".join(matched.other_settings) or "its tensors have other names or shapes"
        raise UserError(
            f"--init-from {weights.path}: {what} of this model would be loaded ({why}); give a recipe more like the "
            "one of those weights, or leave it out"
        )
    return matched


def _by_module(reasons: Mapping[str, str]) -> Iterable[str]:
    parts = ((name.split("."), reason) for name, reason in reasons.items())
    return dict.fromkeys(f"{'.'.join(of[: 1 if of[0] == 'head' else 3])}: {reason}" for of, reason in parts)


def _foreign(
    state: Mapping[str, Tensor], weights: GivenWeights, recipe: Recipe, vocabulary: Vocabulary | None
) -> dict[str, str]:
    """Return the tensors that mean something else in the model of `recipe`, even if shapes match, with reasons."""
    reasons, of_head = dict[str, str](), [name for name in state if name.startswith("head.")]
    subwords = None if vocabulary is None else vocabulary.sha256
    here, there = (
        {key: value for key, value in to_mapping(model.embedder).items() if key not in _NOT_OF_THE_TABLE}
        for model in (recipe.model, weights.model)
    )
    if here != there:
        reasons |= {name: "of another embedder" for name in state if name.startswith(_TABLE)}
    elif recipe.model.embedder.symbols == "subwords" and weights.vocabulary != subwords:
        reasons |= {name: _OTHER_VOCABULARY for name in state if name.startswith(_TABLE)}
    if isinstance(recipe, FinetuneRecipe) and weights.task == recipe.task:
        return reasons
    if weights.task is not None:
        return reasons | dict.fromkeys(of_head, f"of the task {weights.task.name}")
    if weights.objective is not None and (
        isinstance(recipe, FinetuneRecipe) or weights.objective.name != recipe.objective.name
    ):
        return reasons | dict.fromkeys(of_head, f"of the objective {weights.objective.name}")
    if isinstance(recipe, PretrainRecipe) and weights.vocabulary != subwords:
        size = 0 if vocabulary is None else vocabulary.size
        names = _of_subwords(recipe.objective, recipe.model.width, size)
        reasons |= {f"head.{name}": _OTHER_VOCABULARY for name in names}
    return reasons


def _of_subwords(objective: Objective, width: int, num_subwords: int) -> set[str]:
    """Return the tensors of a head that have entries for each subword; their shapes change with the vocabulary."""
    with torch.device("meta"):
        heads = [objective.build(width, size).state_dict() for size in (num_subwords, num_subwords + 1)]
    return {name for name in heads[0] if heads[0][name].shape != heads[1][name].shape}


def _other_settings(weights: GivenWeights, recipe: Recipe) -> Iterator[str]:
    """Yield the settings of the models that differ. If a part has another name, only its name is yielded."""
    here, there = (dict(flatten(to_mapping(_resolved(model)))) for model in (recipe.model, weights.model))
    keys = [key for key in dict.fromkeys([*here, *there]) if here.get(key) != there.get(key)]
    parts = [key.removesuffix("name") for key in keys if key.endswith(".name")]
    for key in keys:
        if key.endswith(".name") or not key.startswith(tuple(parts)):
            yield f"model.{key} {here.get(key)!r}, there {there.get(key)!r}"


def _resolved(model: ModelConfig) -> ModelConfig:
    dimensions = model.dimensions
    trunk = dataclasses.replace(model.trunk, inner_width=dimensions.inner_width)
    return dataclasses.replace(model, trunk=trunk, character_width=dimensions.character_width)


MakeLoop = Callable[[R], TrainingLoop[R]]


class GivenStart(Generic[R]):
    """The weights at `source` as the start of `run`.

    Raises UserError if they do not exist or (almost) none fits. They are read only if the run is new or
    started from another path. `make_loop` makes the loop of a recipe.
    """

    def __init__(
        self, run: Run, recipe: R, make_loop: MakeLoop[R], source: AnyPath, *, trust_code: bool = False
    ) -> None:
        source = expand_home(source)
        one, other = (
            path.rstrip("/") if "://" in path else os.path.realpath(path) for path in (source, run.name)
        )
        if one == other:
            raise UserError(f"--init-from {source} is the run itself; give another --output")
        self._recipe, self._make_loop, self._trust_code = recipe, make_loop, trust_code
        self._path = absolute_path(source)
        self._given: GivenWeights | None = None
        self._begun: tuple[TrainingLoop[R], WeightMatch] | None = None
        self.record = self._record(config_before(run.name, recipe))

    def lines(self) -> list[str]:
        return self._fit()[1].lines()

    def write(self, run: Run, on_line: OnLine) -> None:
        """Write the first checkpoint, unless there is a valid one.

        Raises UserError if the weights have changed.
        """
        # The workers report damaged ones.
        if run.newest(lambda warning: None) is None:
            self._write(run, on_line)
        # Free their memory for training.
        self._given = self._begun = None

    def _write(self, run: Run, on_line: OnLine) -> None:
        if self._read().sha256 != self.record.sha256:
            raise UserError(
                f"--init-from {self._path}: the weights are not those that {run.name} was begun with, and it has no "
                "checkpoint yet; give another --output"
            )
        loop, matched = self._fit()
        on_line(
            run.add_event(
                "init_from",
                step=0,
                source=matched.given.path,
                sha256=matched.given.sha256,
                tensors=len(matched.taken),
                parameters=matched.num_parameters,
                share=round(matched.share, 4),
                message="\n".join(matched.lines()),
            )
        )
        parts, state = loop.snapshot()
        with run.written():
            state = dataclasses.replace(state, recipe=fingerprint(self._recipe))
            checkpoints.write(run.folder / "checkpoints" / checkpoints.checkpoint_name(0), parts, state)
            run.saved(0, keep=self._recipe.train.keep_checkpoints, best=None)

    def _record(self, previous: RunConfig[R] | None) -> InitFrom:
        if previous is None:
            self._fit()
        elif previous.init_from is None:
            # `Run.open` then raises an error.
            return InitFrom(self._path, "")
        elif previous.init_from.path == self._path:
            return previous.init_from
        return InitFrom(self._path, self._read().sha256)

    def _read(self) -> GivenWeights:
        if self._given is None:
            self._given = read_weights(self._path, trust_code=self._trust_code)
        return self._given

    def _fit(self) -> tuple[TrainingLoop[R], WeightMatch]:
        if self._begun is None:
            self._begun = loop_from_weights(self._recipe, self._make_loop, self._read())
        return self._begun


def loop_from_weights(
    recipe: R, make_loop: MakeLoop[R], weights: GivenWeights
) -> tuple[TrainingLoop[R], WeightMatch]:
    """Return the training loop of `recipe` on the CPU, started from those of `weights` that fit.

    Additional projections of attention patterns start as copies of their layer's if they are not given.
    """
    loop = make_loop(recipe)
    sizes = {name: parameter.numel() for name, parameter in loop.model.named_parameters()}
    matched = match_weights(loop.model.state_dict(), sizes, weights, recipe, loop.source.vocabulary)
    loop.begin_with(matched.taken)
    names = (
        [f"encoder.trunk.{name}" for name in loop.encoder.trunk.copy_projections()] if matched.taken else []
    )
    state = loop.model.state_dict()
    loop.begin_with({**{name: state[name].clone() for name in names}, **matched.taken})
    copied = dict.fromkeys(set(names) - matched.taken.keys(), "copies of its layer's own")
    return loop, dataclasses.replace(matched, new={**matched.new, **copied})
