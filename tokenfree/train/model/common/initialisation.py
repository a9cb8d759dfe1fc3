"""Initial values of weights, and the layers that have their own."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from tokenfree.train.model.common.kernels import Dense

STD = 0.02
# Width of BERT-large, at which `scaled` has the standard deviation STD.
USUAL_WIDTH = 1024
Initialisation = Literal["official", "scaled"]


class GlorotDense(Dense):
    """A dense layer with Glorot-uniform initialisation, as in the multi-scale Transformer (arXiv 1912.00544)."""


class FanInDense(Dense):
    """A dense layer whose initial standard deviation in_features^-1/2 preserves the scale outside residual layers."""


class ScaledEmbedding(nn.Embedding):
    def __init__(self, num_rows: int, width: int, *, std: float) -> None:
        super().__init__(num_rows, width)
        self.std = std


class PositionTable(ScaledEmbedding):
    """A table of learned positions. The initialisation `scaled` starts it as sinusoids."""

    def __init__(self, num_rows: int, width: int, *, std: float = STD) -> None:
        super().__init__(num_rows, width, std=std)


class SinusoidTable(PositionTable):
    """A table of learned positions that starts as sinusoids with any initialisation."""


class GateDense(Dense):
    """A dense layer before a sigmoid.

    Its initial bias of -2 nearly closes the gate (Srivastava et al. 2015).
    """


def sinusoids(num_positions: int, width: int) -> Tensor:
    """Return sines in even columns and cosines in odd ones, [num_positions, width] (arXiv 1706.03762, section 3.5)."""
    rates_D = 10000.0 ** (-(torch.arange(width) // 2 * 2) / width)
    angles_XD = torch.arange(num_positions)[:, None] * rates_D
    return torch.where(torch.arange(width) % 2 == 0, angles_XD.sin(), angles_XD.cos())


@torch.no_grad()
def initialise(module: nn.Module, how: Initialisation = "official") -> None:
    """Initialise one module, for `nn.Module.apply`.

    The classes above have their own rules. The others depend on `how`:

    - `official`, as in the code of CANINE and BERT: dense kernels and tables are normal with std 0.02,
      truncated at two std. Convolutions are Glorot-uniform, and biases are 0.
    - `scaled`: dense kernels have std 0.64 / sqrt(inputs), which is 0.02 at BERT-large's width. Layers of a
      small model then have the same initial effect as those of a large one. Tables of learned positions are
      sinusoids of their std.
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
