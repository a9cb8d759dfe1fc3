"""CPU seconds of a training step, measured on a few of this machine."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

import torch

from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.loop import Loop
from tokenfree.train.loop.utilisation import peak
from tokenfree.train.sweep.trials.budget_steps import recipe_for_timing

_WARM, _TIMED = 2, 4  # steps before the clock runs, and steps by the clock
_MOST_SECONDS = 5.0  # of a step by the clock, at half the peak; larger steps are measured on fewer examples
_AT_LEAST = 2  # examples


@dataclass(frozen=True)
class StepSeconds:
    """CPU seconds of a step: `fixed` and `of_example`; `examples` were in those that were measured."""

    fixed: float
    of_example: float
    examples: int

    def of(self, examples: float) -> float:
        """CPU seconds of a step on so many examples."""
        return self.fixed + self.of_example * examples


def measure(recipe: PretrainRecipe, data: str, example_flops: float, examples: int) -> StepSeconds:
    """Train a few steps on `examples` examples with one thread, or, where they would take long, on fewer.

    CPU seconds are counted, so that a busy machine is measured like an idle one.

    Raises:
        UserError: see `tokenfree.train.loop.loop.Loop`.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        dtype = torch.bfloat16 if recipe.train.precision == "bfloat16" else torch.float32
        room = int(_MOST_SECONDS * peak(torch.device("cpu"), dtype) / 2 / example_flops)
        measured = min(examples, max(2 * _AT_LEAST, room))
        seconds = _seconds(recipe, data, measured)
        if measured == examples:
            return StepSeconds(0.0, seconds / examples, measured)
        half = measured // 2
        of_example = max(0.0, (seconds - _seconds(recipe, data, half)) / (measured - half))
        return StepSeconds(max(0.0, seconds - measured * of_example), of_example, measured)
    finally:
        torch.set_num_threads(threads)


def _seconds(recipe: PretrainRecipe, data: str, examples: int) -> float:
    train = dataclasses.replace(recipe.train, global_batch=examples, streams=1, compile=False)
    loop = Loop(recipe_for_timing(dataclasses.replace(recipe, train=train)), data)
    loop.train_until(_WARM)
    began = time.process_time()
    loop.train_until(_WARM + _TIMED)
    return (time.process_time() - began) / _TIMED
