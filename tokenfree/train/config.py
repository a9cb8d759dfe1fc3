"""Settings of training.

A class's docstring explains its settings; a field has the range and the default.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from tokenfree.core.settings import OPERATIONAL, Positive, Slot, part, settings
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.optimizers.base import Schedule

OPTIMIZER = Slot("tokenfree.train.optimizers", "adamw", "tokenfree.train.optimizers.base.OptimizerConfig")
OBJECTIVE = Slot("tokenfree.train.objectives", "canine_s", "tokenfree.train.objectives.base.Objective")
TASK = Slot("tokenfree.train.tasks", "classification", "tokenfree.train.tasks.base.DownstreamTask")


@settings
class LoopConfig:
    """Settings of the training loop. Batches and schedule do not depend on the number of workers.

    Attributes:
        steps: number of optimizer steps.
        global_batch: batch size: examples per optimizer step over all workers.
        micro_batch: examples that a worker processes at once; null: its whole share of the global batch.
        length: positions per example, including special ones: characters, or the units that the model reads.
        seed: seed of the weights, data order, masks and dropout.
        optimizer: the optimizer.
        learning_rate: peak learning rate, at the end of the warm-up.
        embedder_rate: learning rate of the embedder as a multiple of `learning_rate`. A row of a table gets a
            gradient only in batches with its characters, so short fine-tuning runs need a higher rate there.
        warmup: share of the steps in which the learning rate rises from 0; it then falls linearly to 0.
        schedule: `linear`; or `bert`, which falls from the first step, so that the rate jumps down after the
            warm-up.
        clip_norm: maximum 2-norm of the gradient over all parameters.
        precision: precision of matrix products; weights, gradients and optimizer state stay float32. auto:
            bfloat16 on devices with instructions for it (GPUs since Ampere, CPUs with AVX512_BF16), else
            float32.
        ema_decay: decay of an exponential moving average of the weights, which is validated and exported;
            null: no average.
        parallel: each worker holds the whole model (ddp) or a part of each tensor (fsdp).
        compile: use torch.compile, on GPUs only; dropout then draws other masks. null: on a GPU, for 10,000
            steps and more, because compiling takes one to two minutes; not in trials of sweeps.
        checkpoint_activations: recompute the trunk's layers in the backward pass, for less memory and more
            time.
        on_nan: after a loss that is not finite: stop, or return to the newest checkpoint and skip that batch.
        on_spike: after a loss spike: continue, stop, or return to the newest checkpoint and skip that batch.
        spike_deviations: standard deviations above the mean of the previous losses that make a loss a spike.
        spike_window: number of previous losses that a loss is compared with.
        max_roll_backs: maximum number of returns to a checkpoint because of the loss.
        checkpoint_every_steps: steps between checkpoints.
        checkpoint_every_seconds: maximum seconds between checkpoints; null: only steps count.
        keep_checkpoints: number of newest checkpoints to keep, in addition to the best one by validation.
        validate_every_steps: steps between validations; there is one more at the end.
        patience: number of validations without a better one after which training ends; null: it ends after
            `steps`.
        threads: CPU threads of a worker; null: an even share of the machine's CPUs.
        device: device of the workers. auto: one GPU per worker if enough are available at startup, otherwise
            CPUs. cuda: one GPU per worker, even if an autoscaler must start them. Sweeps use gpus_per_worker
            instead.
        max_restarts: maximum number of restarts after lost workers.
        log_to: experiment trackers that get the metrics, in addition to metrics.jsonl and TensorBoard.
    """

    steps: Annotated[int, Field(ge=1)] = 1000
    global_batch: Annotated[int, Field(ge=1)] = 32
    micro_batch: Annotated[Positive | None, OPERATIONAL] = None
    length: Annotated[int, Field(ge=8)] = 2048
    seed: Annotated[int, Field(ge=0)] = 0
    optimizer: Annotated[Any, OPTIMIZER] = part(OPTIMIZER)
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    embedder_rate: Annotated[float, Field(gt=0)] = 1.0
    warmup: Annotated[float, Field(ge=0, le=1)] = 0.025
    schedule: Schedule = "linear"
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    parallel: Annotated[Literal["ddp", "fsdp"], OPERATIONAL] = "ddp"
    compile: bool | None = None
    checkpoint_activations: Annotated[bool, OPERATIONAL] = False
    on_nan: Annotated[Literal["stop", "roll_back"], OPERATIONAL] = "stop"
    on_spike: Annotated[Literal["go_on", "stop", "roll_back"], OPERATIONAL] = "go_on"
    spike_deviations: Annotated[float, Field(gt=0), OPERATIONAL] = 10.0
    spike_window: Annotated[int, Field(ge=2), OPERATIONAL] = 100
    max_roll_backs: Annotated[int, Field(ge=0), OPERATIONAL] = 10
    checkpoint_every_steps: Annotated[int, Field(ge=1), OPERATIONAL] = 1000
    checkpoint_every_seconds: Annotated[Annotated[float, Field(gt=0)] | None, OPERATIONAL] = 600
    keep_checkpoints: Annotated[int, Field(ge=1), OPERATIONAL] = 3
    validate_every_steps: Annotated[int, Field(ge=1)] = 500
    patience: Positive | None = None
    threads: Annotated[Annotated[int, Field(ge=1, le=1024)] | None, OPERATIONAL] = None
    device: Annotated[Literal["auto", "cpu", "cuda"], OPERATIONAL] = "auto"
    max_restarts: Annotated[int, Field(ge=0), OPERATIONAL] = 20
    log_to: Annotated[tuple[Literal["wandb", "mlflow"], ...], OPERATIONAL] = ()


@settings
class TrainConfig(LoopConfig):
    """Settings of a pretraining run. Batches, schedule and data order do not depend on the number of workers.

    Attributes:
        smoothing: exponent of a language's share of the samples. 1: in proportion to its characters; 0: equal
            shares.
        streams: number of shard streams that are read in parallel and share the global batch.
        check_shards: compare each shard's SHA-256 with the manifest before its first use by a worker.
        validation_windows: number of windows per validation, spaced evenly over the validation split, always
            the same.
    """

    smoothing: Annotated[float, Field(ge=0, le=1)] = 0.7
    streams: Annotated[int, Field(ge=1)] = 4
    check_shards: Annotated[bool, OPERATIONAL] = True
    validation_windows: Annotated[int, Field(ge=1)] = 256


@settings
class FinetuneTrainConfig(LoopConfig):
    """Settings of a fine-tuning run, which ends with the checkpoint that is best on the development set."""

    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    warmup: Annotated[float, Field(ge=0, le=1)] = 0.1
    compile: bool | None = False
    keep_checkpoints: Annotated[int, Field(ge=1), OPERATIONAL] = 1
    validate_every_steps: Annotated[int, Field(ge=1)] = 100


@settings
class PretrainRecipe:
    """Recipe of `tokenfree pretrain`: the model, its objective and the training settings.

    Attributes:
        model: the encoder: embedder, downsampler, trunk and upsampler.
        objective: what the encoder learns to predict.
        train: how long, how fast and on what order of samples.
    """

    model: ModelConfig = ModelConfig()
    objective: Annotated[Any, OBJECTIVE] = part(OBJECTIVE)
    train: TrainConfig = TrainConfig()


@settings
class FinetuneRecipe:
    """Recipe of `tokenfree finetune`: the model, its task and the training settings.

    Attributes:
        model: the encoder: embedder, downsampler, trunk and upsampler. `--init-from` replaces it.
        task: what the model predicts from texts.
        train: how long, how fast and in what batches.
    """

    model: ModelConfig = ModelConfig()
    task: Annotated[Any, TASK] = part(TASK)
    train: FinetuneTrainConfig = FinetuneTrainConfig()


Recipe = PretrainRecipe | FinetuneRecipe
R = TypeVar("R", PretrainRecipe, FinetuneRecipe)
