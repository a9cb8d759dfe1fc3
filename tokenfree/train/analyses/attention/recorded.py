"""What the attention of each layer of the deep stack does with one text: its weights, and the logits behind them.

Attention is linear in the values. With a unit vector for each key in their place, its output is the weights themselves:
so every pattern tells its own, the blocks of a banded one and parts of one's own too.

B batch of one text, H heads, Q queries, K keys, U units, E width of a head, D width
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tokenfree.train.model.common.grouping import Downsampled, any_of_units
from tokenfree.train.model.common.heads import Heads
from tokenfree.train.model.common.position_bias import ALL_HEADS
from tokenfree.train.model.encoder import Encoder


class TextUnits(NamedTuple):
    """The real units of a text, the first `count`: what is left of the input after padding."""

    count: int
    separator: int | None  # the unit of SEP; None where units are groups of characters, among which SEP may be


class SeenLayer(NamedTuple):
    """One layer with one text; only real queries and keys are told, but all keys that are mixtures of units."""

    core: Any  # the attention pattern, an `Attention` of slots/trunk.py
    heads: Heads
    units: TextUnits

    @property
    def keys_are_units(self) -> bool:
        """False for patterns whose keys are mixtures of all units, such as Linformer's: these have no place."""
        num_units = self.heads.queries_BHQE.shape[2]
        return all(self.core.num_keys(number) == number for number in (num_units, num_units + 1))

    def weights(self) -> Tensor:
        """The attention weights, float [H, Q, K]; each row sums to 1."""
        values_BHKE = self.heads.values_BHKE
        eye_KK = torch.eye(values_BHKE.shape[2], dtype=values_BHKE.dtype, device=values_BHKE.device)
        probe = self.heads._replace(values_BHKE=eye_KK.expand(*values_BHKE.shape[:2], -1, -1), offset_values=None)
        with _own_values_as(self.core, values_BHKE.shape[1], eye_KK):
            return self._real(self.core.forward(probe)[0])

    def content(self) -> Tensor:
        """The logits of the content, q k^T / sqrt(E), float64 [H, Q, K]; nan for heads that need no logits."""
        q_HQE, k_HKE = self.heads.queries_BHQE[0].double(), self.heads.keys_BHKE[0].double()
        logits = self._real(q_HQE @ k_HKE.transpose(-2, -1) * q_HQE.shape[-1] ** -0.5)
        missing = self.heads.values_BHKE.shape[1] - len(logits)
        return torch.cat([logits.new_full((missing, *logits.shape[1:]), torch.nan), logits])

    def bias(self) -> Tensor | None:
        """What positions and segments add to the logits, float64 [H, Q, K]; None where there are none."""
        if self.heads.bias is None:
            return None
        bias = self.heads.bias.dense(ALL_HEADS).double()
        return self._real(bias if bias.dim() == 3 else bias[0])

    def _real(self, pairs_HQK: Tensor) -> Tensor:
        queries_HQK = pairs_HQK[:, : self.units.count]
        return queries_HQK[..., : self.units.count] if self.keys_are_units else queries_HQK


See = Callable[[int, SeenLayer], None]


@contextlib.contextmanager
def watched(encoder: Encoder, see: See) -> Iterator[None]:
    """Within it, `see` is called with the number (from 0) and the sight of each layer of the deep stack, for one text.

    What it is given is to be used before it returns: the memory may be that of the next layer.
    """
    found: list[TextUnits] = []

    def after_down(module: nn.Module, given: Any, down: Downsampled) -> None:
        found[:] = [_units(given[1], down)]

    def before_core(number: int) -> Callable[[nn.Module, Any], None]:
        return lambda core, given: see(number, SeenLayer(core, given[0], found[0]))

    layers: list[Any] = list(encoder.trunk.layers)
    hooks = [layer.core.register_forward_pre_hook(before_core(number)) for number, layer in enumerate(layers)]
    hooks.append(encoder.downsampler.register_forward_hook(after_down))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _units(mask_BC: Tensor, down: Downsampled) -> TextUnits:
    """Real are CLS and the units that stand for a real character; `valid_BU` leaves out one of CANINE's."""
    num_units = down.valid_BU.shape[1]
    real_U = any_of_units(mask_BC, down.grouping, num_units)[0]
    count = int(real_U.nonzero().max()) + 1
    if down.grouping.rate is not None:
        return TextUnits(count, None)
    last = int(mask_BC[0].nonzero().max())  # the last real symbol is SEP
    return TextUnits(count, int(down.grouping.unit_BC[0, last]))


class _UnitVectors(nn.Module):
    """In the place of a projection to values: a unit vector for each unit, the same for all heads."""

    def __init__(self, num_heads: int, eye_UU: Tensor) -> None:
        super().__init__()
        self.num_heads, self.eye_UU = num_heads, eye_UU

    def forward(self, x_BUD: Tensor) -> Tensor:
        return self.eye_UU.repeat(1, self.num_heads).expand(len(x_BUD), -1, -1)


@contextlib.contextmanager
def _own_values_as(core: Any, num_heads: int, eye_UU: Tensor) -> Iterator[None]:
    """A pattern with a projection to values of its own, as for global units, gives unit vectors as well."""
    if not getattr(core, "separate", False):
        yield
        return
    own = core.value
    core.value = _UnitVectors(num_heads, eye_UU)
    try:
        yield
    finally:
        core.value = own
