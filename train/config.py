"""The settings of pretraining, and the check of what no single field tells: how they fit together and to the data."""

from typing import Annotated, Any, Literal

from pydantic import Field

from preprocess.errors import UserError
from preprocess.manifest import Manifest
from preprocess.settings import Slot, part, settings
from preprocess.storage import Storage
from preprocess.vocabulary import Vocabulary
from train.model import ModelConfig
from train.model import check as check_model


@settings
class TrainConfig:
    """One pretraining run. The global batch, the schedule and the data order do not depend on the number of workers."""

    steps: Annotated[int, Field(ge=1)] = 1000
    global_batch: Annotated[int, Field(ge=1)] = 32  # examples of one optimizer step, over all workers
    micro_batch: Annotated[int, Field(ge=1)] | None = None  # examples a worker holds at once; None: its whole share
    length: Annotated[int, Field(ge=8)] = 2048  # positions of an example, special characters included
    seed: Annotated[int, Field(ge=0)] = 0

    optimizer: Annotated[Any, Slot("train.optimizers", "adamw")] = part("train.optimizers", "adamw")
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    warmup: Annotated[float, Field(ge=0, le=1)] = 0.025  # share of the steps in which the rate rises from 0
    clip_norm: Annotated[float, Field(gt=0)] = 1.0  # of the gradient over all parameters
    precision: Literal["float32", "bfloat16"] = "float32"  # of the products; weights stay float32
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None  # validate and export a running average of the weights

    parallel: Literal["ddp", "fsdp"] = "ddp"  # workers hold the whole model, or a part of each of its tensors
    compile: bool = False  # torch.compile; dropout then draws other masks
    checkpoint_activations: bool = False  # compute layers of the trunk again in the backward pass, for memory

    on_nan: Literal["stop", "roll_back"] = "stop"  # see train/incidents.py
    on_spike: Literal["go_on", "stop", "roll_back"] = "go_on"
    spike_deviations: Annotated[float, Field(gt=0)] = 10.0  # a loss so many above the mean of those before it is one
    spike_window: Annotated[int, Field(ge=2)] = 100  # how many before it
    max_roll_backs: Annotated[int, Field(ge=0)] = 10  # of a run

    smoothing: Annotated[float, Field(ge=0, le=1)] = 0.7  # a language's share is proportional to its characters ** this
    streams: Annotated[int, Field(ge=1)] = 4  # canonical streams that divide the global batch among the shards

    checkpoint_every_steps: Annotated[int, Field(ge=1)] = 1000
    checkpoint_every_seconds: Annotated[float, Field(gt=0)] | None = 600
    keep_checkpoints: Annotated[int, Field(ge=1)] = 3  # the newest; the best by validation loss is kept besides
    validate_every_steps: Annotated[int, Field(ge=1)] = 500  # and once at the end
    validation_windows: Annotated[int, Field(ge=1)] = 256
    threads: Annotated[int, Field(ge=1)] | None = None  # of a worker; None: an even share of the machine's CPUs
    max_restarts: Annotated[int, Field(ge=0)] = 20  # lost workers after which a run gives up
    log_to: tuple[Literal["wandb", "mlflow"], ...] = ()  # besides metrics.jsonl and TensorBoard


# Settings that change how a run is done but not (beyond rounding) what comes out, unless something goes wrong: they may
# differ when it goes on.
OPERATIONAL = frozenset(
    f"train.{key}"
    for key in ("micro_batch", "parallel", "checkpoint_activations", "on_nan", "on_spike", "spike_deviations",
                "spike_window", "max_roll_backs", "checkpoint_every_steps", "checkpoint_every_seconds",
                "keep_checkpoints", "threads", "max_restarts", "log_to")
)  # fmt: skip


@settings
class PretrainRecipe:
    """What `tokenfree pretrain` reads: a model, what it learns from, and how."""

    model: ModelConfig = ModelConfig()
    objective: Annotated[Any, Slot("train.objectives", "canine_s")] = part("train.objectives", "canine_s")
    train: TrainConfig = TrainConfig()


def check(
    recipe: PretrainRecipe,
    manifest: Manifest,
    *,
    workers: tuple[int, int] = (1, 1),
    vocabulary: Vocabulary | None = None,
) -> list[str]:
    """All mistakes that only show when the parts of a recipe, the data and the workers are seen together, a line each.

    With the `vocabulary` of the data (see `load_vocabulary`) the needs of the objective are checked too.
    """
    train = recipe.train
    mistakes = check_model(recipe.model, train.length)
    if train.global_batch % train.streams:
        mistakes.append(f"train.streams: {train.streams} streams do not divide train.global_batch {train.global_batch}")
    least, most = workers
    if not 1 <= least <= most:
        mistakes.append(f"--workers {least}:{most}: the fewest must be at least 1 and at most the most")
    if most > train.global_batch:
        mistakes.append(f"--workers: {most} workers cannot share train.global_batch {train.global_batch}")
    for split in ("train", "validation"):
        if split not in manifest.splits or not manifest.splits[split].rows:
            mistakes.append(
                f"the data have no windows to use for {split}; preprocess more text or set another validation_fraction"
            )
    if vocabulary is None and manifest.vocabulary_sha256 is not None:
        return mistakes  # not given
    if vocabulary is not None and vocabulary.sha256 != manifest.vocabulary_sha256:
        mistakes.append("vocabulary/subwords.model is not that of the data's manifest; preprocess again")
    try:
        columns = set(recipe.objective.collator(vocabulary, train.length, train.seed).columns)
    except UserError as error:
        return [*mistakes, str(error)]
    mistakes += recipe.objective.check(recipe.model, vocabulary)
    missing = sorted(columns - set(manifest.config["columns"]))
    if missing:
        mistakes.append(f"the data lack the columns {', '.join(missing)} that objective {recipe.objective.name} reads")
    return mistakes


def load_vocabulary(data: str) -> Vocabulary | None:
    """The subword vocabulary of a data directory, None where it has none."""
    try:
        return Vocabulary(Storage.at(data).read_bytes("vocabulary/subwords.model"))
    except FileNotFoundError:
        return None
