"""What the stack keeps of its biases during one forward pass: values for all layers that share, or memory in turn.

B batch, Q queries, K keys, H heads
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tokenfree.train.model.common.heads import Heads
from tokenfree.train.model.common.position_bias import ALL_HEADS, LayerBias, SumBias
from tokenfree.train.model.common.workspace import Workspace, works_in_place


class ReusedBias(LayerBias):
    """A bias of which the stack keeps something; what patterns see of it is the same."""

    def __init__(self, bias: LayerBias) -> None:
        self.bias = bias

    def bind(self, heads: Heads) -> Heads:
        """As the bias does. What it makes anew for the queries of one layer is nothing to keep."""
        heads = self.bias.bind(heads)
        return heads._replace(bias=self) if heads.bias is self.bias else heads

    def __call__(self, heads: slice, queries: Tensor, keys: Tensor) -> Tensor:
        """See `LayerBias`."""
        return self.bias(heads, queries, keys)

    def dense(self, heads: slice, workspace: Workspace | None = None) -> Tensor:
        """See `LayerBias`."""
        return self.bias.dense(heads, workspace)


class SharedBias(ReusedBias):
    """One bias of all layers: what they ask of all heads is computed once."""

    def __init__(self, bias: LayerBias) -> None:
        super().__init__(bias)
        self._dense: Tensor | None = None
        self._with_hidden: tuple[Tensor, Tensor] | None = None  # and the `valid_BK` it was computed for

    def dense(self, heads: slice, workspace: Workspace | None = None) -> Tensor:
        """See `LayerBias`; not to be written to."""
        if heads != ALL_HEADS:
            return self.bias.dense(heads)
        if self._dense is None:
            self._dense = self.bias.dense(heads)
        return self._dense

    def plus_hidden(self, hidden_B11K: Tensor, valid_BK: Tensor, workspace: Workspace | None = None) -> Tensor:
        """See `LayerBias`. At 512 units, the sums of all layers would take longer than the position code."""
        if self._with_hidden is None or self._with_hidden[0] is not valid_BK:
            self._with_hidden = valid_BK, self.bias.plus_hidden(hidden_B11K, valid_BK)
        return self._with_hidden[1]

    def afresh(self) -> LayerBias:
        """The same bias, of which nothing is computed yet."""
        return SharedBias(self.bias.afresh())


class BiasInTurn(ReusedBias):
    """The bias of one layer alone, which without gradients is computed in memory that all layers use in turn."""

    def __init__(self, bias: LayerBias, workspace: Workspace) -> None:
        super().__init__(bias)
        self._workspace = workspace

    def plus_hidden(self, hidden_B11K: Tensor, valid_BK: Tensor, workspace: Workspace | None = None) -> Tensor:
        """See `LayerBias`."""
        return self.bias.plus_hidden(hidden_B11K, valid_BK, self._workspace if works_in_place(hidden_B11K) else None)


def reused(biases: Sequence[LayerBias]) -> list[LayerBias]:
    """The biases of all layers for one forward pass, of which the layers that have the same object share the values."""
    if _are_one(biases):
        return [SharedBias(biases[0])] * len(biases)
    workspace = Workspace()
    return [BiasInTurn(bias, workspace) for bias in biases]


def sums(some: Sequence[LayerBias], others: Sequence[LayerBias]) -> list[LayerBias]:
    """The sums of two biases in each layer, both `reused` already; one for all layers where both are."""
    if _are_one(some) and _are_one(others):
        return [SharedBias(SumBias(some[0], others[0]))] * len(some)
    return [SumBias(*both) for both in zip(some, others, strict=True)]


def _are_one(biases: Sequence[LayerBias]) -> bool:
    return biases[0] is biases[-1]
