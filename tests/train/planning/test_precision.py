"""Whether bfloat16 pays is measured, and said to the recipes that could change."""

import pytest
import torch
from torch import Tensor, nn

from tokenfree.train import planning as precision
from tokenfree.train.model.common.basic import Dimensions
from tokenfree.train.planning import advice, bfloat16_speed, bfloat16_summary

DIMENSIONS = Dimensions(12, 3, 20, 0.0, "gelu")


class SlowInFloat32(nn.Module):
    """A layer with twenty times as much to do in float32."""

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        for _ in range(1 if torch.is_autocast_enabled("cpu") else 20):
            x = (self.weight * x).sin()
        return x


@pytest.mark.skipif(torch.cuda.is_available(), reason="the layer is timed on the GPU")
def test_the_speed_is_that_of_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "BertLayer", SlowInFloat32)
    threads = torch.get_num_threads()
    assert bfloat16_speed(DIMENSIONS) > 4
    assert torch.get_num_threads() == threads


def test_a_layer_is_timed() -> None:
    assert 0.01 < bfloat16_speed(DIMENSIONS, repeats=1) < 100


def test_advice_is_given_where_something_would_change() -> None:
    assert advice(1.9, "float32") == "set train.precision to bfloat16 to train faster"
    assert advice(0.8, "bfloat16") == "set train.precision to float32: it is no slower"
    assert advice(1.9, "bfloat16") == advice(0.8, "float32") == ""
    assert bfloat16_summary(1.94).startswith("a layer is 1.9 times as fast in bfloat16")
    assert bfloat16_summary(0.2).startswith("a layer is 5.0 times as fast in float32 as in bfloat16")
