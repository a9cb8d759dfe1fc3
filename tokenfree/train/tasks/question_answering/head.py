"""What is trained with the encoder for question answering: where an answer begins, where it ends, and of which type.

B batch, P vectors of a window, D width, T types of answers
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tokenfree.train.model.common.initialise import initialise
from tokenfree.train.objectives.base import Loss
from tokenfree.train.tasks.base import TaskHead
from tokenfree.train.tasks.encode import encode_all
from tokenfree.train.tasks.question_answering.readable import NOWHERE
from tokenfree.train.tasks.question_answering.spans import SpanDecoder


class SpanHead(TaskHead):
    """Two logits for each vector, and one for each type of answer from the pooled vector.

    Args:
        width: of the encoder's vectors.
        decoder: that finds the best span of a window.
        num_types: types of answers; 0: none are learned, as in transformers' `CanineForQuestionAnswering`.
    """

    def __init__(self, width: int, decoder: SpanDecoder, num_types: int = 0) -> None:
        super().__init__()
        self.spans = nn.Linear(width, 2)
        self.types = nn.Linear(width, num_types) if num_types else None
        self._decoder = decoder
        self.apply(initialise)

    def outputs(self, encoder: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`start` and `end`, float32 [B, P], and where types are learned `type` [B, T]."""
        vectors_BPD, pooled_BD = encode_all(encoder, batch)
        start_BP, end_BP = self.spans(vectors_BPD).float().unbind(dim=-1)
        found = {"start": start_BP, "end": end_BP}
        return found if self.types is None else found | {"type": self.types(pooled_BD).float()}

    def loss(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Loss:
        """The mean of the cross-entropies of start, end and, where learned, type; correct are spans that are exact.

        Over positions the softmax is that over the `choices` of the batch.
        """
        start_BP, end_BP = _among_choices(outputs, batch)
        pairs = [(start_BP, batch["first"]), (end_BP, batch["last"])]
        if self.types is not None:
            pairs.append((outputs["type"], batch["kind"]))
        real_B = batch["target_mask"][:, 0]
        loss_B = torch.stack([functional.cross_entropy(*pair, reduction="none") for pair in pairs]).mean(dim=0)
        right_B = (start_BP.argmax(dim=-1) == batch["first"]) & (end_BP.argmax(dim=-1) == batch["last"]) & real_B
        return Loss((loss_B * real_B).sum(), real_B.sum(), right_B.sum())

    def kept(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The best span of each window: `score`, -inf for none, and `begin` and `end`, bytes of the original; [B]."""
        start_BP, end_BP = (logits_BP.cpu().numpy() for logits_BP in _among_choices(outputs, batch))
        starts_BP, ends_BP = (batch[name].cpu().numpy() for name in ("starts", "ends"))
        score_B, first_B, last_B = self._decoder.best(start_BP, end_BP, starts_BP != NOWHERE)
        rows: Any = np.arange(len(score_B))
        found = {"score": score_B, "begin": starts_BP[rows, first_B], "end": ends_BP[rows, last_B]}
        return {name: torch.from_numpy(values) for name, values in found.items()}


def _among_choices(outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The logits [B, P] of starts and of ends, -inf where there is no choice."""
    start_BP, end_BP = (outputs[name].masked_fill(~batch["choices"], -torch.inf) for name in ("start", "end"))
    return start_BP, end_BP
