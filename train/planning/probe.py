"""CPU seconds of a training step, measured on a few of this machine."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

import torch

from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.loop import Loop
from tokenfree.train.loop.utilisation import peak
from tokenfree.train.mixture.mixture import Data

_WARM, _TIMED, _LEAST_SECONDS = 2, 4, 4.0  # steps before the clock runs; steps by the clock, and seconds of it
_AT_REST = 1e-12  # a learning rate at which nothing moves, whatever the recipe's own would do to the weights
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


def measure(recipe: PretrainRecipe, data: Data, example_flops: float, examples: int) -> StepSeconds:
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


def _seconds(recipe: PretrainRecipe, data: Data, examples: int) -> float:
    most = _WARM + 100 * _TIMED
    train = dataclasses.replace(
        recipe.train, global_batch=examples, streams=1, compile=False, steps=most, learning_rate=_AT_REST
    )
    loop = Loop(dataclasses.replace(recipe, train=train), data)
    loop.train_until(_WARM)
    began, used = time.process_time(), 0.0
    while used < _LEAST_SECONDS and loop.step < most:
        loop.train_until(loop.step + _TIMED)
        used = time.process_time() - began
    return used / (loop.step - _WARM)
