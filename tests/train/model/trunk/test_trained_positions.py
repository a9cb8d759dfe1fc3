"""What training makes of position codes, according to the DIET paper (arXiv 2104.08698, section 4 and figures 4 and 5).

Slow: each trains a small model for a minute or so.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from tokenfree.preprocess.common.settings import build
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop.loop import Loop

LENGTH = 56


def loop_of(corpus: str, *, positions: Any, at_input: str, steps: int) -> Loop:
    """A BERT over characters, which masks and predicts single ones."""
    model = {
        "width": 32,
        "embedder": {"buckets": 512, "hashes": 4, "max_characters": 64, "positions": at_input, "segments": 0},
        "downsampler": "identity",
        "upsampler": "identity",
        "trunk": {"layers": 2, "heads": 4, "inner_width": 64, "dropout": 0.0, "positions": positions},
    }
    train = {"steps": steps, "global_batch": 32, "length": LENGTH, "learning_rate": 0.003, "warmup": 0.05,
             "streams": 2, "threads": 1, "validation_windows": 8}  # fmt: skip
    objective = {"name": "masked_characters", "buckets": 512}
    return Loop(build(PretrainRecipe, {"model": model, "objective": objective, "train": train}, source="test"), corpus)


def shift(loop: Loop) -> float:
    """How far the bias of a pair is from that of the next along the diagonal, in standard deviations; CLS apart."""
    valid = torch.ones(1, LENGTH, dtype=torch.bool)
    with torch.no_grad():
        bias: Tensor = loop.encoder.trunk.positions(torch.zeros(1, LENGTH, 32), valid)[0].dense(slice(None))
    inner = bias[:, 1:48, 1:48]
    return ((inner[:, 1:, 1:] - inner[:, :-1, :-1]).abs().mean() / inner.std()).item()


@pytest.mark.slow
def test_absolute_codes_learn_to_shift(corpus: str) -> None:
    """Behaviour 3: DIET-ABS can be any matrix, and becomes nearly one of offsets; at first it is none at all."""
    loop = loop_of(corpus, positions={"name": "diet_abs", "rank": 16, "max_units": 64}, at_input="none", steps=400)
    assert shift(loop) == pytest.approx(1.13, abs=0.05)  # of independent entries: 2 / sqrt(pi)
    loop.train_until(400, lambda line: None)
    assert shift(loop) < 0.7
