"""What is trained with the encoder for question answering: where an answer begins, where it ends, and of which type.

B batch, C characters, D width, T types of answers
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tokenfree.train.model.common.initialise import initialise


class SpanLogits(NamedTuple):
    """Logits of a batch: of starts and ends [B, C] each, of the types of answers [B, T] where they are learned."""

    start_BC: Tensor
    end_BC: Tensor
    type_BT: Tensor | None


class SpanHead(nn.Module):
    """Two logits for each character, and one for each type of answer from the pooled vector.

    Args:
        width: of the encoder's vectors.
        num_types: types of answers; 0: none are learned, as in transformers' `CanineForQuestionAnswering`.
    """

    def __init__(self, width: int, num_types: int = 0) -> None:
        super().__init__()
        self.spans = nn.Linear(width, 2)
        self.types = nn.Linear(width, num_types) if num_types else None
        self.apply(initialise)

    def forward(self, characters_BCD: Tensor, pooled_BD: Tensor) -> SpanLogits:
        """The logits, float32."""
        start_BC, end_BC = self.spans(characters_BCD).float().unbind(dim=-1)
        return SpanLogits(start_BC, end_BC, None if self.types is None else self.types(pooled_BD).float())


def span_loss(logits: SpanLogits, first_B: Tensor, last_B: Tensor, kind_B: Tensor) -> Tensor:
    """The loss of each window, [B], nats: the mean of the cross-entropies of start, end and, where learned, type.

    Padding is not left out of the softmax over positions, as in CANINE's code (spec: canine, section 6.1).

    Args:
        logits: of the head.
        first_B: int64, the first position of the answer; 0 for none.
        last_B: int64, the last one.
        kind_B: int64, its type.
    """
    pairs = [(logits.start_BC, first_B), (logits.end_BC, last_B)]
    if logits.type_BT is not None:
        pairs.append((logits.type_BT, kind_B))
    return torch.stack([functional.cross_entropy(*pair, reduction="none") for pair in pairs]).mean(dim=0)
