"""What all layers of a model agree on: widths, heads, dropout, activation, and the epsilon of LayerNorm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

Activation = Literal["gelu_tanh", "gelu"]


@dataclass(frozen=True)
class Dimensions:
    """What every BERT layer of a model agrees on: numbers of values, and the share of them that dropout sets to 0."""

    width: int
    heads: int
    inner_width: int
    dropout: float
    activation: Activation
    character_width: int = 0  # of the characters that come to DOWN; 0: the width

    def __post_init__(self) -> None:
        object.__setattr__(self, "character_width", self.character_width or self.width)

    @property
    def head_width(self) -> int:
        """Values of a head, where all heads together have the width."""
        return self.width // self.heads


LAYER_NORM_EPSILON = 1e-12


def layer_norm(width: int) -> nn.LayerNorm:
    """LayerNorm (arXiv 1607.06450) over the last `width` values, with the epsilon of BERT and CANINE."""
    return nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)


def activate(x: Tensor, activation: Activation) -> Tensor:
    """GELU (arXiv 1606.08415): the tanh approximation of the official code, or the exact form of the PyTorch ports."""
    return F.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")
