"""Fine-tune a model for a task with one call, in this process or with Ray workers, and evaluate it."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenfree.core import own_code
from tokenfree.core.errors import SettingsError, UserError
from tokenfree.core.files import AnyPath, absolute_path, expand_home
from tokenfree.core.settings import build, merge
from tokenfree.core.settings_values import code_hashes, to_mapping
from tokenfree.core.storage import Storage
from tokenfree.preprocess.dataset.manifest import MODEL, load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.checks import check_finetuning
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.data.shards import paths_of
from tokenfree.train.jobs.init_from import GivenStart, read_weights, run_and_step
from tokenfree.train.jobs.run_to_end import run_to_end
from tokenfree.train.loop.finetuning import SPLITS, FinetuneJob, TaskFiles, TaskSource, content_of
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.runs.config import RunConfig, config_before, read_any_config
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.runs.run import Run
from tokenfree.train.tasks.base import Split
from tokenfree.train.tasks.examples.texts import SCHEME
from tokenfree.train.torch_state import default_settings


@dataclasses.dataclass(frozen=True)
class FinetuneResult:
    run: str  # path or address
    task: str
    steps: int
    best_step: int | None  # step of the evaluated checkpoint; None without a development set: the last one
    checkpoint: str  # the evaluated checkpoint, relative to the run
    restarts: int  # number of times that workers were restarted
    dev: Mapping[str, float] = dataclasses.field(default_factory=dict)  # scores by name
    test: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # Scores by split and name of a baseline.
    baseline: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Used and all, of sampled splits.
    baseline_lines: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # By split: the only label predicted.
    only_label: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    already_complete: bool = False  # the run was complete before this call, which did nothing


@default_settings()
def finetune(
    recipe: FinetuneRecipe,
    files: Mapping[Split, AnyPath],
    run: AnyPath,
    *,
    workers: tuple[int, int] = (1, 1),
    progress: OnLine | None = None,
    init_from: AnyPath | None = None,
    model: Mapping[str, Any] | None = None,
    vocabulary: AnyPath | None = None,
    trust_code: bool = False,
    baselines: Mapping[str, Any] | None = None,
) -> FinetuneResult:
    """Train the model of `recipe`, or the one at `init_from`, for its task, and evaluate the best checkpoint.

    The best checkpoint is chosen on the development set. It is evaluated on that set and, once, on the test
    set. `run` is the path or address of a new or unfinished run.

    Args:
        files: Paths or addresses by split: `train`, and `dev` and `test` if available.
        workers: Minimum and maximum number of workers. One worker trains in this process, without Ray.
        progress: Called with every line of metrics.jsonl and events.jsonl as it appears. By default, losses
            and events are logged at INFO, and a notebook shows a bar.
        init_from: Run or transformers folder. Its model replaces the recipe's, and training starts from its
            weights. It is part of the run and must be the same to resume.
        model: Settings that override those of the model at `init_from`, such as another dropout.
        vocabulary: Path of a SentencePiece model, for a subword model; by default that of `init_from`.
        trust_code: Run the code outside tokenfree that `init_from` or `model` names.
        baselines: Scores of the task's baselines on the same files. By default they are computed.

    Raises UserError if settings, files, weights and run do not fit together, and JobError if training failed.
    """
    prepared = prepare(
        recipe,
        files,
        run,
        workers=workers,
        init_from=init_from,
        model=model,
        vocabulary=vocabulary,
        trust_code=trust_code,
    )
    target, start, used = Run(run), prepared.start(trust_code=trust_code), prepared.files

    make_job = functools.partial(
        FinetuneJob,
        files=used,
        run=target.name,
        has_first_checkpoint=start is not None,
        baselines=baselines,
    )
    config = RunConfig(
        prepared.recipe,
        used.paths.get("train", ""),
        used.content,
        None if start is None else start.record,
        code_hashes(prepared.recipe),
        files={str(split): path for split, path in used.paths.items()},
    )
    keep = functools.partial(_keep_vocabulary, used.vocabulary)
    result, was_complete = run_to_end(
        target, config, make_job, start=start, keep=keep, workers=workers, progress=progress
    )
    return FinetuneResult(
        run=target.name, restarts=target.num_restarts(), already_complete=was_complete, **result
    )


@dataclasses.dataclass(frozen=True)
class PreparedRun:
    """A run with a complete recipe: with the model to start from, and the task's settings taken from its examples."""

    recipe: FinetuneRecipe
    files: TaskFiles
    run: str
    init_from: str | None

    def start(self, *, trust_code: bool = False) -> GivenStart[FinetuneRecipe] | None:
        if self.init_from is None:
            return None
        return GivenStart(
            Run(self.run),
            self.recipe,
            lambda recipe: FinetuneJob(recipe=recipe, files=self.files, run=self.run).make_loop(),
            self.init_from,
            trust_code=trust_code,
        )


def prepare(
    recipe: FinetuneRecipe,
    files: Mapping[Split, AnyPath],
    run: AnyPath,
    *,
    workers: tuple[int, int] = (1, 1),
    init_from: AnyPath | None = None,
    model: Mapping[str, Any] | None = None,
    vocabulary: AnyPath | None = None,
    trust_code: bool = False,
) -> PreparedRun:
    """Check that everything a run needs can be read, without writing.

    Raises UserError if something is invalid.
    """
    run, init_from = Run(run).name, None if init_from is None else expand_home(init_from)
    named: dict[Split, str] = {split: expand_home(files[split]) for split in SPLITS if split in files}
    paths: dict[Split, str] = {
        split: path if path.startswith(SCHEME) else absolute_path(path) for split, path in named.items()
    }
    if recipe.task.needs_files and "train" not in paths:
        raise UserError(f"task.name: {recipe.task.name} learns from examples; give a file of them as --train")
    if init_from is not None:
        recipe = dataclasses.replace(recipe, model=_model_of(init_from, run, recipe, model or {}, trust_code))
    problems = check_finetuning(recipe, workers=workers)
    if problems:
        raise SettingsError(problems=problems)
    loaded_vocabulary = _vocabulary(recipe, run, init_from, vocabulary, trust_code)
    used = TaskFiles(paths, content_of(paths), None if loaded_vocabulary is None else loaded_vocabulary.model)
    task = recipe.task.fitted(recipe.task.examples("train", paths.get("train")))
    recipe = dataclasses.replace(recipe, task=task)
    TaskSource(recipe, used, rank=0, world_size=1).check()
    return PreparedRun(recipe, used, run, init_from)


def _with_overrides(model: ModelConfig, over: Mapping[str, Any], trust_code: bool) -> ModelConfig:
    with own_code.trusting(trust_code, "model"):
        return build(ModelConfig, merge(to_mapping(model), over), source="model") if over else model


def _model_of(
    init_from: str, run: str, recipe: FinetuneRecipe, over: Mapping[str, Any], trust_code: bool
) -> ModelConfig:
    """Return the adapted settings of the model at `init_from`, or those that a run that started from it recorded."""
    previous = config_before(Run(run).name, recipe)
    if (
        previous is not None
        and previous.init_from is not None
        and previous.init_from.path == absolute_path(init_from)
    ):
        return _with_overrides(previous.recipe.model, over, trust_code)
    source, _ = run_and_step(init_from)
    if Storage.at(absolute_path(source)).size("config.yaml") is not None:
        source_model = read_any_config(source, trust_code=trust_code).recipe.model
    else:
        source_model = read_weights(init_from, trust_code=trust_code).model
    # The overrides are applied twice: the task sees the user's choices, such as another pattern, and cannot
    # undo them.
    adapted = recipe.task.adapted(_with_overrides(source_model, over, trust_code))
    # The linear path belongs to the head, which has new weights.
    adapted = dataclasses.replace(adapted, neighbours=recipe.model.neighbours)
    return _with_overrides(adapted, over, trust_code)


def _vocabulary(
    recipe: FinetuneRecipe, run: str, init_from: str | None, path: AnyPath | None, trust_code: bool
) -> Vocabulary | None:
    if recipe.model.embedder.symbols != "subwords":
        if path is not None:
            raise UserError(
                f"--vocabulary {path}: this model reads {recipe.model.embedder.symbols}; leave it out"
            )
        return None
    if path is not None:
        try:
            return Vocabulary.load(Path(expand_home(path)).read_bytes())
        except OSError as error:
            raise UserError(f"--vocabulary {path}: {error.strerror}; give a SentencePiece model") from None
    places = [Run(run).name]
    if init_from is not None:
        places.append(absolute_path(run_and_step(init_from)[0]))
        if Storage.at(places[-1]).size("config.yaml") is not None:
            places += paths_of(read_any_config(places[-1], trust_code=trust_code).data)
    return next((vocabulary for place in places if (vocabulary := load_vocabulary(place)) is not None), None)


def _keep_vocabulary(vocabulary: Vocabulary | None, run: Run) -> None:
    if vocabulary is not None and load_vocabulary(run.name) is None:
        run.write(MODEL, vocabulary.model)
