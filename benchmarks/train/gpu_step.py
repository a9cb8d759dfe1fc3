"""Measure pretraining of CANINE base on a GPU: sequences per second, and the share of the measured peak.

    python -m benchmarks.train.gpu_step                      # without torch.compile
    python -m benchmarks.train.gpu_step --compile            # with torch.compile
    python -m benchmarks.train.gpu_step --recipe bert-base --batch 128

A step consists of `--accumulate` micro batches of random text, forward and backward in bfloat16 with float32 weights,
followed by the recipe's optimizer. The peak is that of a large bfloat16 product on the same device
(train/loop/step.py). The FLOPs are six times the multiply-accumulates of the model, including its head.
"""

import argparse
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.timing import median
from tokenfree.core.settings import build
from tokenfree.preprocess.text.specials import CLS
from tokenfree.train.batches.base import MASKED
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.step import Meter, Task, pretraining_task
from tokenfree.workflows.recipes import library


def main() -> None:
    options = parse()
    if not torch.cuda.is_available():
        print("benchmarks.train.gpu_step: no CUDA device here; run it on a machine that has one", file=sys.stderr)
        raise SystemExit(2)
    device = torch.device("cuda")
    recipe = build(PretrainRecipe, library.read_based(options.recipe), source=options.recipe)
    torch.manual_seed(0)
    task = pretraining_task(recipe, options.vocabulary).to(device).train()
    meter = Meter(task.encoder, task.head, device=device, precision="bfloat16")
    batch = make_batch(recipe, options.batch, options.vocabulary)
    arrays = {name: values.numpy() for name, values in batch.items()}
    step = make_step(recipe, task, {name: values.to(device) for name, values in batch.items()}, options)
    for _ in range(2):
        step()
    torch.cuda.reset_peak_memory_stats()
    seconds = [timed(step) for _ in range(options.steps)]
    of_micro_batch = median(seconds) / options.accumulate
    print(f"{torch.cuda.get_device_name()}, {options.recipe}, {options.accumulate} x {options.batch} sequences a step")
    print(
        f"{options.batch / of_micro_batch:8.1f} sequences/s, {meter.utilisation(arrays, of_micro_batch):.1%} of the "
        f"measured peak, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--recipe", default="canine-s-base", help="canine-s and bert recipes have the batches made here"
    )
    parser.add_argument("--batch", type=int, default=32, help="sequences of a micro batch")
    parser.add_argument("--accumulate", type=int, default=8, help="micro batches of a step")
    parser.add_argument("--vocabulary", type=int, default=120_000, help="subwords of the softmax")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


def make_batch(recipe: PretrainRecipe, batch: int, vocabulary: int) -> dict[str, Tensor]:
    """Return full sequences of random symbols with the maximum number of targets of the objective."""
    length, num_targets = recipe.train.length, recipe.objective.max_predictions
    symbols = min(0x3000, getattr(recipe.model.embedder, "size", 0x3000))  # subwords of a table, or codepoints
    codepoints = torch.randint(32, symbols, (batch, length))
    codepoints[:, 0] = CLS if recipe.model.embedder.symbols == "characters" else 0
    pairs = {"segments": torch.zeros_like(codepoints), "from_elsewhere": torch.randint(2, (batch,))}
    return {
        **(pairs if recipe.objective.next_sentence else {}),
        "codepoints": codepoints,
        "mask": torch.ones(batch, length, dtype=torch.bool),
        "target_positions": torch.randint(1, length, (batch, num_targets)),
        "target_ids": torch.randint(vocabulary, (batch, num_targets)),
        "target_mask": torch.ones(batch, num_targets, dtype=torch.bool),
        "target_kinds": torch.full((batch, num_targets), MASKED),
    }


def make_step(
    recipe: PretrainRecipe, task: Task, batch: dict[str, Tensor], options: argparse.Namespace
) -> Callable[[], None]:
    optimizer: torch.optim.Optimizer = recipe.train.optimizer.build(task)
    for group in optimizer.param_groups:
        group["lr"] = 1e-5
    if options.compile:
        task.compile(fullgraph=True, dynamic=False)

    def step() -> None:
        for _ in range(options.accumulate):
            with torch.autocast("cuda", torch.bfloat16):
                total, _ = task(batch)
            (total / (options.accumulate * batch["target_mask"].numel())).backward()
        torch.nn.utils.clip_grad_norm_(task.parameters(), recipe.train.clip_norm)
        optimizer.step()
        optimizer.zero_grad()

    return step


def timed(step: Callable[[], None]) -> float:
    """Return the seconds of a step on the device, which is idle before and after."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
