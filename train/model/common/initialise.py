"""How weights begin, as in CANINE's official code (Clark et al., arXiv 2103.06874)."""

from __future__ import annotations

from torch import nn

from tokenfree.train.model.common.dense import Dense

STD = 0.02


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


class GateDense(Dense):
    """A dense layer before a sigmoid, whose biases begin at -2: the gate is nearly shut (Srivastava et al. 2015)."""


def initialise(module: nn.Module) -> None:
    """Initialise one module as the official CANINE does (for `nn.Module.apply`).

    Dense kernels and tables: normal with std 0.02, cut at two std; convolutions: Glorot-uniform; biases 0. The classes
    above begin as they say.
    """
    if isinstance(module, (nn.Conv1d, GlorotDense)):
        nn.init.xavier_uniform_(module.weight)
    elif isinstance(module, (nn.Linear, nn.Embedding)):
        std = STD
        if isinstance(module, FanInDense):
            std = module.in_features**-0.5
        elif isinstance(module, ScaledEmbedding):
            std = module.std
        nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
    if isinstance(module, (nn.Linear, nn.Conv1d)) and module.bias is not None:
        nn.init.constant_(module.bias, -2.0 if isinstance(module, GateDense) else 0.0)
