"""Pretrain a model with one call: start or resume a run, in this process or with Ray workers."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from tokenfree.core.errors import SettingsError
from tokenfree.core.files import AnyPath
from tokenfree.core.settings_values import code_hashes
from tokenfree.train.checks import check, with_rows_for
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.mixture import Data
from tokenfree.train.data.shards import absolute, as_data, load_data_manifest, load_data_vocabulary
from tokenfree.train.jobs.init_from import GivenStart
from tokenfree.train.jobs.run_to_end import Extension, run_to_end
from tokenfree.train.loop.pretraining import Loop, TrainJob
from tokenfree.train.runs.checkpoints import checkpoint_name
from tokenfree.train.runs.config import RunConfig
from tokenfree.train.runs.metrics import OnLine
from tokenfree.train.runs.run import Run
from tokenfree.train.torch_state import default_settings


@dataclasses.dataclass(frozen=True)
class PretrainResult:
    """Result of a finished pretraining run. Losses and entropies are nats per target."""

    run: str  # path or address
    steps: int
    loss: float  # training loss of the last step
    validation_loss: float
    validation_accuracy: float  # share of targets whose correct answer had the highest logit
    validation_targets: int
    unigram_entropy: float | None  # entropy of the target symbols in the training split; None if not counted
    unigram_cross_entropy: float | None  # cross-entropy of the validation targets under those frequencies
    best_step: int  # step with the lowest validation loss
    characters: int  # characters trained on, without special ones and padding
    seconds: float  # seconds spent in steps, without validations and checkpoints
    restarts: int  # number of times that workers were restarted
    checkpoint: str  # path or address of the last checkpoint
    symbol: str | None = None  # kind of target, such as "subword"; None if targets are not counted
    clue: str | None = None  # what the input reveals about a hidden target without context, in words
    baselines: Mapping[str, float] = dataclasses.field(default_factory=dict)  # see `Baselines.numbers`
    # Other values of the objective.
    validation_means: Mapping[str, float] = dataclasses.field(default_factory=dict)
    already_complete: bool = False  # the run was complete before this call, which did nothing


@default_settings()
def pretrain(
    recipe: PretrainRecipe,
    data: Data | AnyPath | Sequence[AnyPath],
    run: AnyPath,
    *,
    workers: tuple[int, int] = (1, 1),
    progress: OnLine | None = None,
    init_from: AnyPath | None = None,
    extend_to: int | None = None,
    trust_code: bool = False,
) -> PretrainResult:
    """Train `recipe` on the data directory `data` in the run folder `run`, or resume that run.

    Args:
        data: Path or address of a data directory; or several, as a `Mixture` or as strings such as ["A:0.7",
            "B:0.3"].
        workers: Minimum and maximum number of workers. One worker trains in this process, without Ray.
            Several run under Ray Train, on the cluster of RAY_ADDRESS or on this machine alone.
        progress: Called with every line of metrics.jsonl and events.jsonl as it appears. By default, losses
            and events are logged at INFO, and a notebook shows a bar.
        init_from: Run or transformers folder with weights to start from. Tensors that match by name and shape
            are loaded. It is part of the run and must be the same to resume.
        extend_to: New number of steps of an existing run, finished or not; see train/jobs/run_to_end.py.
        trust_code: Run the code outside tokenfree that `init_from` names.

    Raises UserError if settings, data, weights and run do not fit together, and JobError if training failed.
    """
    data = absolute(as_data(data))
    manifest, vocabulary = load_data_manifest(data), load_data_vocabulary(data)
    recipe = with_rows_for(recipe, vocabulary)
    problems = check(recipe, manifest, workers=workers, vocabulary=vocabulary)
    if problems:
        raise SettingsError(problems=problems)
    target = Run(run)
    extension = None if extend_to is None else Extension(target, recipe, extend_to)
    if extension is not None:
        recipe = extension.before
    start = (
        None
        if init_from is None
        else GivenStart(
            target, recipe, lambda loop_recipe: Loop(loop_recipe, data), init_from, trust_code=trust_code
        )
    )
    make_job = functools.partial(TrainJob, data=data, run=target.name, has_first_checkpoint=start is not None)
    config = RunConfig(recipe, data, manifest.fingerprint, start and start.record, code_hashes(recipe))
    result, was_complete = run_to_end(
        target, config, make_job, start=start, extension=extension, workers=workers, progress=progress
    )
    # Not as recorded: the run may have been moved.
    result["checkpoint"] = f"{target.name}/checkpoints/{checkpoint_name(result['steps'])}"
    return PretrainResult(
        run=target.name, restarts=target.num_restarts(), already_complete=was_complete, **result
    )
