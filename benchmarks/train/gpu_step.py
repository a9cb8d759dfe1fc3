"""Measure pretraining of CANINE base on a GPU: sequences per second, and the share of the measured peak.

    python -m benchmarks.train.gpu_step                      # without torch.compile
    python -m benchmarks.train.gpu_step --compile            # with torch.compile
    python -m benchmarks.train.gpu_step --peer               # transformers.CanineModel, with fused AdamW
    python -m benchmarks.train.gpu_step --recipe bert-base --batch 128

A step consists of `--accumulate` micro batches, forward and backward in bfloat16 with float32 weights,
followed by the recipe's optimizer. Characters are those of Python's help, because hash buckets of frequent
characters collide in the backward pass. The peak is that of a large bfloat16 product on the same device
(train/loop/meter.py). The FLOPs are six times the multiply-accumulates of the model, including its head.
"""

import argparse
import itertools
import pydoc_data.topics as topics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.timing import median
from tokenfree.core.settings import build
from tokenfree.preprocess.text.specials import CLS
from tokenfree.train.batches.base import MASKED
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.meter import Meter
from tokenfree.train.loop.model_with_head import ModelWithHead, pretraining_task
from tokenfree.workflows.recipes import library

TEXT = "".join(topics.topics.values())


def main() -> None:
    options = parse()
    if not torch.cuda.is_available():
        print(
            "benchmarks.train.gpu_step: no CUDA device here; run it on a machine that has one",
            file=sys.stderr,
        )
        raise SystemExit(2)
    device = torch.device("cuda")
    recipe = build(PretrainRecipe, library.read_based(options.recipe), source=options.recipe)
    torch.manual_seed(0)
    batch = make_batch(recipe, options.batch, options.vocabulary)
    on_device = {name: values.to(device) for name, values in batch.items()}
    meter = None
    if options.peer:
        step = make_peer_step(on_device, options)
    else:
        task = pretraining_task(recipe, options.vocabulary).to(device).train()
        task.head.learn(list(itertools.islice(itertools.cycle(TEXT.split()), options.vocabulary)), None)
        meter = Meter(task.encoder, task.head, device=device, precision="bfloat16")
        step = make_step(recipe, task, on_device, options)
    for _ in range(2):
        step()
    torch.cuda.reset_peak_memory_stats()
    of_micro_batch = median([timed(step) for _ in range(options.steps)]) / options.accumulate
    name = "transformers.CanineModel" if meter is None else options.recipe
    print(f"{torch.cuda.get_device_name()}, {name}, {options.accumulate} x {options.batch} sequences a step")
    arrays = {name: values.numpy() for name, values in batch.items()}
    share = "" if meter is None else f"{meter.utilisation(arrays, of_micro_batch):.1%} of the measured peak, "
    print(
        f"{options.batch / of_micro_batch:8.1f} sequences/s, {share}{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--recipe", default="canine-s-base", help="canine-s and bert recipes have the batches made here"
    )
    parser.add_argument("--batch", type=int, default=32, help="sequences of a micro batch")
    parser.add_argument("--accumulate", type=int, default=8, help="micro batches of a step")
    parser.add_argument("--vocabulary", type=int, default=120_000, help="subwords of the softmax")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument(
        "--peer", action="store_true", help="measure transformers.CanineModel, with canine-s-base"
    )
    return parser.parse_args()


def make_batch(recipe: PretrainRecipe, batch: int, vocabulary: int) -> dict[str, Tensor]:
    """Return full sequences of text, or random ids for a table of subwords, with the maximum number of targets."""
    length, num_targets = recipe.train.length, recipe.objective.max_predictions
    if recipe.model.embedder.symbols == "characters":
        windows = torch.tensor([ord(character) for character in TEXT]).unfold(0, length, 97)
        codepoints = windows[torch.randperm(len(windows))[:batch]]
        codepoints[:, 0] = CLS
    else:
        codepoints = torch.randint(1, getattr(recipe.model.embedder, "size", 0x3000), (batch, length))
        codepoints[:, 0] = 0
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
    recipe: PretrainRecipe, task: ModelWithHead, batch: dict[str, Tensor], options: argparse.Namespace
) -> Callable[[], None]:
    optimizer: torch.optim.Optimizer = recipe.train.optimizer.build(task)
    for group in optimizer.param_groups:
        group["lr"] = 1e-5
    if options.compile:
        task.compile(fullgraph=True, dynamic=False)
    scale = 1 / (options.accumulate * batch["target_mask"].numel())

    def step() -> None:
        for _ in range(options.accumulate):
            with torch.autocast(batch["mask"].device.type, torch.bfloat16):
                total, _ = task(batch)
            (total * scale).backward()
        torch.nn.utils.clip_grad_norm_(task.parameters(), recipe.train.clip_norm)
        optimizer.step()
        optimizer.zero_grad()

    return step


def make_peer_step(
    batch: dict[str, Tensor], options: argparse.Namespace, **fields: Any
) -> Callable[[], None]:
    """Return a step of transformers.CanineModel, whose configuration has these `fields`, on the same batch."""
    from transformers import CanineConfig, CanineModel

    device = batch["mask"].device
    model: Any = CanineModel(CanineConfig(**fields))
    model.to(device).train()
    head = nn.Linear(model.config.hidden_size, options.vocabulary, device=device)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-5, fused=True)
    positions = batch["target_positions"][..., None].expand(-1, -1, model.config.hidden_size)

    def compute_loss() -> Tensor:
        with torch.autocast(device.type, torch.bfloat16):
            rows = model(batch["codepoints"], attention_mask=batch["mask"].long()).last_hidden_state
            logits = head(rows.gather(1, positions))
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), batch["target_ids"].flatten())

    loss_of_batch = torch.compile(compute_loss) if options.compile else compute_loss

    def step() -> None:
        for _ in range(options.accumulate):
            (loss_of_batch() / options.accumulate).backward()
        torch.nn.utils.clip_grad_norm_([*model.parameters(), *head.parameters()], 1.0)
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
