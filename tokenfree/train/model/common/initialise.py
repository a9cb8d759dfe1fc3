"""How weights begin: as in CANINE's official code (Clark et al., arXiv 2103.06874), or by the width of each layer."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from tokenfree.train.model.common.dense import Dense

STD = 0.02
USUAL_WIDTH = 1024  # BERT-large's: what STD is at this width, `scaled` is at every one
Initialisation = Literal["official", "scaled"]


class GlorotDense(Dense):
    """A dense layer that begins Glorot-uniform, as the multi-scale Transformer's do (Guo et al., arXiv 1912.00544)."""


class FanInDense(Dense):
    """A dense layer that begins with a standard deviation of in_features^-1/2: what comes out is as large as the input.

    For layers that stand alone; inside residual layers 0.02 keeps the branches small.
    """


class ScaledEmbedding(nn.Embedding):
    """A table that begins with the standard deviation `std`."""

    def __init__(self, num_rows: int, width: int, *, std: float) -> None:
        super().__init__(num_rows, width)
        self.std = std


class PositionTable(ScaledEmbedding):
    """A row for each position, learned. Of the initialisation `scaled` it begins as sinusoids."""

    def __init__(self, num_rows: int, width: int, *, std: float = STD) -> None:
        super().__init__(num_rows, width, std=std)


class SinusoidTable(PositionTable):
    """A row for each position, learned, which begins as sinusoids whatever the initialisation."""


class GateDense(Dense):
    """A dense layer before a sigmoid, whose biases begin at -2: the gate is nearly shut (Srivastava et al. 2015)."""


def sinusoids(num_positions: int, width: int) -> Tensor:
    """Sines in even columns, cosines in odd ones, [num_positions, width] (Vaswani et al., arXiv 1706.03762, 3.5)."""
    rates_D = 10000.0 ** (-(torch.arange(width) // 2 * 2) / width)
    angles_XD = torch.arange(num_positions)[:, None] * rates_D
    return torch.where(torch.arange(width) % 2 == 0, angles_XD.sin(), angles_XD.cos())


@torch.no_grad()
def initialise(module: nn.Module, how: Initialisation = "official") -> None:
    """Initialise one module (for `nn.Module.apply`). The classes above begin as they say, all others thus:

    - `official`, as CANINE's and BERT's code: dense kernels and tables normal with std 0.02, cut at two std;
      convolutions Glorot-uniform; biases 0.
    - `scaled`: kernels have std 0.64 / sqrt(inputs), which is 0.02 at BERT-large's width, so that the layers of a small
      model do as much at first as those of a large one; tables of learned positions begin as sinusoids of their std.
    """
    if isinstance(module, (nn.Conv1d, GlorotDense)):
        nn.init.xavier_uniform_(module.weight)
    elif isinstance(module, SinusoidTable) or (isinstance(module, PositionTable) and how == "scaled"):
        module.weight.copy_(sinusoids(*module.weight.shape) * module.std * 2**0.5)
    elif isinstance(module, (nn.Linear, nn.Embedding)):
        std = _std(module, how)
        nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
    if isinstance(module, (nn.Linear, nn.Conv1d)) and module.bias is not None:
        nn.init.constant_(module.bias, -2.0 if isinstance(module, GateDense) else 0.0)


def _std(module: nn.Linear | nn.Embedding, how: Initialisation) -> float:
    if isinstance(module, FanInDense):
        return module.in_features**-0.5
    if isinstance(module, ScaledEmbedding):
        return module.std
    if isinstance(module, nn.Linear) and how == "scaled":
        return STD * (USUAL_WIDTH / module.in_features) ** 0.5
    return STD
