"""Fine-tuning as a sweep tries it: on the files of a task, judged by the main score on the development set.

Trials never read the test set: it is for the setting that is chosen, see train/sweep/results/task_scores.py.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from typing import Any

from tokenfree.core.errors import JobError, UserError
from tokenfree.core.settings import build, fingerprint, merge, to_mapping
from tokenfree.train.batches.base import Arrays
from tokenfree.train.config import FinetuneRecipe, check_finetuning
from tokenfree.train.finetune import PreparedRun, prepare
from tokenfree.train.jobs.start import begun
from tokenfree.train.jobs.weights import absolute, read_weights
from tokenfree.train.loop.finetuning import FinetuneJob, TaskFiles, TaskSource
from tokenfree.train.loop.step import Task
from tokenfree.train.loop.trainer import TrainingLoop
from tokenfree.train.sweep.space.recipe import SweepRecipe
from tokenfree.train.sweep.space.targets import ERROR, SCORE, Target
from tokenfree.train.tasks.base import Split


@dataclasses.dataclass(frozen=True)
class TaskInput:
    """What a sweep of a task is given besides its recipe; see `tokenfree.train.finetune.finetune`.

    Attributes:
        files: paths or addresses by split: `train` and `dev`, and `test` where the chosen setting is to be tested.
        init_from: a run or a folder of transformers, whose model takes the place of the recipe's.
        vocabulary: a SentencePiece model, for a model of subwords.
        trust_code: run the code outside tokenfree that the run `init_from` names.
    """

    files: Mapping[Split, str] = dataclasses.field(default_factory=dict)
    init_from: str | None = None
    vocabulary: str | None = None
    trust_code: bool = False


@dataclasses.dataclass(frozen=True)
class FinetuningSubject:
    """See `tokenfree.train.sweep.subjects.base.Subject`.

    Attributes:
        files: of all splits.
        target: what trials are judged by.
        init_from: path or address of the weights that trials begin with; None: fresh ones.
        sha256: of these weights.
        trust_code: see `TaskInput`.
    """

    files: TaskFiles
    target: Target
    init_from: str | None = None
    sha256: str = ""
    trust_code: bool = False

    @property
    def content(self) -> str:
        """See `Subject.content`."""
        model = hashlib.sha256(self.files.model or b"").hexdigest()
        return fingerprint({"files": self.files.content, "weights": self.sha256, "vocabulary": model})

    @property
    def parts(self) -> dict[str, Any]:
        """The fields, as plain values."""
        return dataclasses.asdict(self)

    def problems(self, recipe: FinetuneRecipe, workers: tuple[int, int]) -> list[str]:
        """See `Subject.problems`."""
        return check_finetuning(recipe, workers=workers)

    def measure(self, recipe: FinetuneRecipe) -> Mapping[str, Any]:
        """See `Subject.measure`: the task, and the development set as it reads it."""
        return {"task.name": recipe.task.name, "task": self._dev_set(recipe)}

    def make_loop(
        self, recipe: FinetuneRecipe, *, rank: int = 0, world_size: int = 1, device: str = "cpu"
    ) -> TrainingLoop[FinetuneRecipe]:
        """See `Subject.make_loop`."""
        return FinetuneJob(recipe, self._untested, run="").make_loop(rank=rank, world_size=world_size, device=device)

    def first_loop(self, recipe: FinetuneRecipe) -> TrainingLoop[FinetuneRecipe] | None:
        """See `Subject.first_loop`.

        Raises:
            UserError: the weights cannot be read.
            JobError: they are others than when the sweep began.
        """
        if self.init_from is None:
            return None
        given = read_weights(self.init_from, trust_code=self.trust_code, recipe=recipe)
        if given.sha256 != self.sha256:
            raise JobError(f"--init-from {self.init_from}: the weights are not those that the sweep was begun with")
        return begun(recipe, self.make_loop, given)[0]

    def batch(self, recipe: FinetuneRecipe) -> Arrays:
        """See `Subject.batch`."""
        return self._source(recipe).loader.batch(0)

    def build(self, recipe: FinetuneRecipe) -> Task:
        """See `Subject.build`."""
        return Task(recipe.model.build(), recipe.task.build(recipe.model))

    def judged(self, badness: float) -> dict[str, float]:
        """The main score of the best checkpoint so far, which is the one that counts."""
        return {self.target.metric: self.target.cost(badness)}

    @functools.cached_property
    def _untested(self) -> TaskFiles:
        """The files without the test set."""
        paths = {split: path for split, path in self.files.paths.items() if split != "test"}
        return dataclasses.replace(self.files, paths=paths)

    @functools.cached_property
    def _dev_sets(self) -> dict[str, str]:
        return {}

    def _dev_set(self, recipe: FinetuneRecipe) -> str:
        """A fingerprint of the examples that are evaluated; of a task that makes them, of what it makes them by."""
        task = fingerprint(recipe.task)
        if recipe.task.needs_files and task not in self._dev_sets:
            examples = repr(list(recipe.task.examples("dev", self.files.paths["dev"])))
            self._dev_sets[task] = hashlib.sha256(examples.encode("utf-8", "surrogatepass")).hexdigest()
        return self._dev_sets.get(task, task)

    def _source(self, recipe: FinetuneRecipe) -> TaskSource:
        return TaskSource(recipe, self._untested, rank=0, world_size=1)


def open_files(sweep: SweepRecipe, given: TaskInput, run: str) -> tuple[SweepRecipe, FinetuningSubject]:
    """The sweep with complete recipes: the model that trials begin with, and what the task takes from its examples.

    Every example of every split is read once, so that a wrong label is told before anything is trained.

    Args:
        sweep: of a task.
        given: its files and weights.
        run: the folder of the sweep.

    Raises:
        UserError: what is wrong with a recipe, a file or the weights.
    """
    recipes = {
        name: build(FinetuneRecipe, merge(mapping, sweep.overrides), source=name)
        for name, mapping in {"base": sweep.base, **sweep.variants}.items()
    }
    task = recipes["base"].task
    if task.needs_files and "dev" not in given.files:
        raise UserError("--dev is missing: the settings of a sweep are compared by their scores on it; give a file")
    found = {name: _prepared(sweep, recipe, given, run) for name, recipe in recipes.items()}
    files = next((each.files for each in found.values() if each.files.model is not None), found["base"].files)
    target = ERROR if task.lower_is_better else SCORE
    subject = FinetuningSubject(files, target, trust_code=given.trust_code)
    if given.init_from is not None:
        recipe = found["base"].recipe
        weights = read_weights(given.init_from, trust_code=given.trust_code, recipe=recipe)
        begun(recipe, subject.make_loop, weights)
        subject = dataclasses.replace(subject, init_from=absolute(given.init_from), sha256=weights.sha256)
    complete = {name: to_mapping(each.recipe) for name, each in found.items()}
    base = complete.pop("base")
    return dataclasses.replace(sweep, base=base, variants=complete, overrides={}), subject


def _prepared(sweep: SweepRecipe, recipe: FinetuneRecipe, given: TaskInput, run: str) -> PreparedRun:
    reads_subwords = recipe.model.embedder.symbols == "subwords"
    return prepare(
        recipe,
        given.files,
        run,
        workers=(sweep.workers, sweep.workers),
        init_from=given.init_from,
        model=sweep.overrides.get("model"),
        vocabulary=given.vocabulary if reads_subwords or not sweep.variants else None,
        trust_code=given.trust_code,
    )
