from collections.abc import Callable

import numpy as np
import pytest
import torch

from tokenfree.core.settings import Slot
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.loop import meter as utilisation
from tokenfree.train.loop.meter import Meter, peak
from tokenfree.train.objectives.base import MaskedHead


@pytest.mark.parametrize("tied", [False, True])
def test_counts_encoder_and_head(
    make_recipe: Callable[..., PretrainRecipe], monkeypatch: pytest.MonkeyPatch, tied: bool
) -> None:
    encoder, head = make_recipe().model.build(), MaskedHead(16, 100, tied=tied)
    monkeypatch.setattr(utilisation, "peak", lambda device, dtype: 1e12)
    meter = Meter(encoder, head, device=torch.device("cpu"), precision="float32")
    mask = np.arange(5) < np.array([5, 3, 0, 0, 0, 0, 0, 1])[:, None]  # nine targets in forty slots
    arrays = {
        "codepoints": np.zeros((8, 64), dtype=np.int64),
        "target_positions": np.zeros((8, 5), dtype=np.int64),
        "target_mask": mask,
    }
    none, five = (sum(cost.multiply_accumulates for cost in encoder.costs(64, count)) for count in (0, 5))
    products = 8 * none + 9 * ((five - none) / 5 + 16 * 16 + 16 * 100)
    assert meter.utilisation(arrays, 0.5) == pytest.approx(6 * products / 0.5 / 1e12)
    assert meter.utilisation(arrays, 1e-9) == 1.0


@pytest.mark.parametrize("upsampler", Slot("tokenfree.train.model.upsamplers", "repeat_concat").names())
def test_every_target_costs_the_same(make_recipe: Callable[..., PretrainRecipe], upsampler: str) -> None:
    encoder = make_recipe(model={"upsampler": {"name": upsampler}}).model.build()
    none, one, seven = (sum(cost.multiply_accumulates for cost in encoder.costs(64, n)) for n in (0, 1, 7))
    assert seven - none == 7 * (one - none)


def test_the_peak_is_that_of_this_machine() -> None:
    assert 1e8 < peak(torch.device("cpu"), torch.float32, seconds=0.02) < 1e14
