"""What a sweep trains: pretraining, or a task, whose trials never read the test set.

Only `evaluate_chosen` does.
"""

import dataclasses
import functools
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.files import AnyPath, absolute_path
from tokenfree.core.settings import build, merge, value_at
from tokenfree.core.settings_values import fingerprint, to_mapping
from tokenfree.preprocess.dataset.manifest import Manifest
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.checks import check, check_finetuning
from tokenfree.train.config import FinetuneRecipe, PretrainRecipe
from tokenfree.train.data.mixture import Data, data_arguments
from tokenfree.train.data.shards import absolute, load_data_manifest, load_data_vocabulary
from tokenfree.train.finetune import PreparedRun, prepare
from tokenfree.train.jobs.init_from import loop_from_weights, read_weights
from tokenfree.train.loop.finetuning import FinetuneJob, TaskFiles
from tokenfree.train.loop.pretraining import Loop
from tokenfree.train.loop.trainer import TrainingLoop
from tokenfree.train.sweep.recipe import ERROR, SCORE, TASK, Metric, SweepRecipe
from tokenfree.train.tasks.base import Split

# Keys of objectives that change the model, but not the targets.
_LEARNING = ("output_bias", "output_rows")
# Keys that decide validation samples and masks.
_MEASURE = ("objective", "train.length", "train.validation_windows")


@dataclasses.dataclass(frozen=True)
class Subject(ABC):
    """Data together with what is trained on them.

    A subject is cheap to create, because data are read on first use.
    """

    @property
    @abstractmethod
    def content(self) -> str:
        """Fingerprint of the data and, if trials start from given weights, of these."""

    @property
    @abstractmethod
    def inputs(self) -> Mapping[str, Any]:
        """Where the data are, by the names of the command's options."""

    @abstractmethod
    def problems(self, recipe: Any) -> list[str]:
        """Return the reasons why a recipe cannot be trained on the data, a line each."""

    @abstractmethod
    def measure(self, recipe: Any) -> Mapping[str, Any]:
        """Return what decides how a metric is measured, by the key that sets it.

        It must be the same for all trials.
        """

    @abstractmethod
    def make_loop(self, recipe: Any, *, device: str = "cpu") -> TrainingLoop[Any]: ...

    def first_loop(self, recipe: Any) -> TrainingLoop[Any] | None:
        """Return a loop in this process with the weights that trials start from, or None if these are new.

        Raises UserError if the weights cannot be read, and JobError if they have changed since the start of
        the sweep.
        """
        return None

    def judged(self, selection_loss: float) -> dict[str, float]:
        """Return the fields that the best validation so far adds to a report.

        By default the last one counts.
        """
        return {}


@dataclasses.dataclass(frozen=True)
class PretrainingSubject(Subject):
    """Pretraining on one or several data directories, judged by the held-out loss."""

    data: Data

    @functools.cached_property
    def _manifest(self) -> Manifest:
        return load_data_manifest(self.data)

    @functools.cached_property
    def _vocabulary(self) -> Vocabulary | None:
        return load_data_vocabulary(self.data)

    @property
    def content(self) -> str:
        return self._manifest.fingerprint

    @property
    def inputs(self) -> Mapping[str, Any]:
        return {"data": data_arguments(self.data)}

    def problems(self, recipe: PretrainRecipe) -> list[str]:
        return check(recipe, self._manifest, vocabulary=self._vocabulary)

    def measure(self, recipe: PretrainRecipe) -> Mapping[str, Any]:
        mapping = to_mapping(dataclasses.replace(recipe, objective=recipe.objective.for_validation()))
        for key in _LEARNING:
            mapping["objective"].pop(key, None)
        return {key: value_at(mapping, key) for key in _MEASURE}

    def make_loop(self, recipe: PretrainRecipe, *, device: str = "cpu") -> Loop:
        return Loop(recipe, self.data, device=device)


@dataclasses.dataclass(frozen=True)
class TaskInput:
    """Input of a sweep of a task, in addition to its recipe, as for `tokenfree.train.finetune.finetune`.

    `files` has paths or URLs by split: `train`, `dev`, and `test` if the chosen setting is to be tested. The
    model of `init_from`, a run or a folder of transformers, replaces that of the recipe. `trust_code` allows
    its custom code.
    """

    files: Mapping[Split, AnyPath] = dataclasses.field(default_factory=dict)
    init_from: AnyPath | None = None
    vocabulary: AnyPath | None = None
    trust_code: bool = False


@dataclasses.dataclass(frozen=True)
class FinetuningSubject(Subject):
    """Fine-tuning on the files of a task, judged by the main score on the development set.

    `sha256` is the hash of the weights at `init_from`, from which trials start; None means new ones.
    """

    files: TaskFiles
    target: Metric
    init_from: str | None = None
    sha256: str = ""
    trust_code: bool = False

    @property
    def content(self) -> str:
        model = hashlib.sha256(self.files.model or b"").hexdigest()
        return fingerprint({"files": self.files.content, "weights": self.sha256, "vocabulary": model})

    @property
    def inputs(self) -> Mapping[str, Any]:
        return {**self.files.paths, "init_from": self.init_from}

    def problems(self, recipe: FinetuneRecipe) -> list[str]:
        return check_finetuning(recipe)

    def measure(self, recipe: FinetuneRecipe) -> Mapping[str, Any]:
        return {"task.name": recipe.task.name, "task": self._dev_set(recipe)}

    def make_loop(self, recipe: FinetuneRecipe, *, device: str = "cpu") -> TrainingLoop[FinetuneRecipe]:
        return FinetuneJob(recipe=recipe, files=self._untested, run="").make_loop(device=device)

    def first_loop(self, recipe: FinetuneRecipe) -> TrainingLoop[FinetuneRecipe] | None:
        if self.init_from is None:
            return None
        weights = read_weights(self.init_from, trust_code=self.trust_code)
        if weights.sha256 != self.sha256:
            raise JobError(
                f"--init-from {self.init_from}: the weights are not those that the sweep was begun with"
            )
        return loop_from_weights(recipe, self.make_loop, weights)[0]

    def judged(self, selection_loss: float) -> dict[str, float]:
        return {self.target.metric: self.target.cost(selection_loss)}

    @functools.cached_property
    def _untested(self) -> TaskFiles:
        paths = {split: path for split, path in self.files.paths.items() if split != "test"}
        return dataclasses.replace(self.files, paths=paths)

    @functools.cached_property
    def _dev_sets(self) -> dict[str, str]:
        return {}

    def _dev_set(self, recipe: FinetuneRecipe) -> str:
        task = fingerprint(recipe.task)
        if recipe.task.needs_files and task not in self._dev_sets:
            examples = repr(list(recipe.task.examples("dev", self.files.paths["dev"])))
            self._dev_sets[task] = hashlib.sha256(examples.encode("utf-8", "surrogatepass")).hexdigest()
        return self._dev_sets.get(task, task)


def open_files(sweep: SweepRecipe, inputs: TaskInput, run: str) -> tuple[SweepRecipe, FinetuningSubject]:
    """Complete the recipes of a sweep, with the model that trials start from and the task fitted to its examples.

    All examples are read once, so that a wrong label is reported before training. Raises UserError if
    anything is invalid.
    """
    recipes = {
        name: build(FinetuneRecipe, merge(mapping, sweep.overrides), source=name)
        for name, mapping in {"base": sweep.base, **sweep.variants}.items()
    }
    task = recipes["base"].task
    if task.needs_files and "dev" not in inputs.files:
        raise UserError(
            "--dev is missing: the settings of a sweep are compared by their scores on it; give a file"
        )
    prepared = {name: _prepared(sweep, recipe, inputs, run) for name, recipe in recipes.items()}
    files = next(
        (prepared_run.files for prepared_run in prepared.values() if prepared_run.files.model is not None),
        prepared["base"].files,
    )
    target = ERROR if task.lower_is_better else SCORE
    subject = FinetuningSubject(files, target, trust_code=inputs.trust_code)
    if inputs.init_from is not None:
        recipe = prepared["base"].recipe
        weights = read_weights(inputs.init_from, trust_code=inputs.trust_code)
        loop_from_weights(recipe, subject.make_loop, weights)
        subject = dataclasses.replace(
            subject, init_from=absolute_path(inputs.init_from), sha256=weights.sha256
        )
    complete = {name: to_mapping(prepared_run.recipe) for name, prepared_run in prepared.items()}
    base = complete.pop("base")
    return dataclasses.replace(sweep, base=base, variants=complete, overrides={}), subject


def _prepared(sweep: SweepRecipe, recipe: FinetuneRecipe, inputs: TaskInput, run: str) -> PreparedRun:
    reads_subwords = recipe.model.embedder.symbols == "subwords"
    return prepare(
        recipe,
        inputs.files,
        run,
        init_from=inputs.init_from,
        model=sweep.overrides.get("model"),
        vocabulary=inputs.vocabulary if reads_subwords or not sweep.variants else None,
        trust_code=inputs.trust_code,
    )


def open_subject(sweep: SweepRecipe, data: Data | TaskInput, run: str) -> tuple[SweepRecipe, Subject]:
    """Return the sweep with complete recipes, and what it trains.

    Raises UserError if recipes or data are invalid.
    """
    is_task = TASK in sweep.base
    if is_task and isinstance(data, Data):
        raise UserError(
            "--data is for sweeps of pretraining; this recipe is fine-tuned: give --train and --dev"
        )
    if isinstance(data, Data):
        return sweep, PretrainingSubject(absolute(data))
    if not is_task:
        raise UserError(
            "--train and --dev are for sweeps of fine-tuning; this recipe is one of pretraining: give --data"
        )
    return open_files(sweep, data, run)
