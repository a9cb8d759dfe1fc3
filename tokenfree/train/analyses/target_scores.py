"""The score of a model on each target by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tokenfree.train.batches.collator import Arrays
from tokenfree.train.batches.target_kinds import MASKED
from tokenfree.train.objectives.base import Head


class TargetScores(NamedTuple):
    """By target, in the order of the batches and row by row: N targets."""

    loss_N: np.ndarray  # float64, nats
    correct_N: np.ndarray  # bool: the right answer had the highest logit
    hidden_N: np.ndarray  # bool: the input hides the target
    sample_ids_N: np.ndarray  # int64: the window of each


@torch.no_grad()
def score_targets(encoder: nn.Module, head: Head, batches: Iterable[Arrays], device: torch.device) -> TargetScores:
    """The scores of all targets of `batches`, which have `sample_ids` (int64 [b]) besides a collator's arrays.

    Encoder and head are used as they are: put them into evaluation mode first.
    """
    parts = [[np.zeros(0)], [np.zeros(0, dtype=bool)], [np.zeros(0, dtype=bool)], [np.zeros(0, dtype=np.int64)]]
    for arrays in batches:
        batch = {name: torch.from_numpy(values).to(device) for name, values in arrays.items()}
        real = arrays["target_mask"]
        logits_NV = head.target_logits(encoder, batch).float()
        gold_N = batch["target_ids"][batch["target_mask"]]
        loss_N = functional.cross_entropy(logits_NV, gold_N, reduction="none").double()
        found = (
            loss_N.cpu().numpy(),
            (logits_NV.argmax(-1) == gold_N).cpu().numpy(),
            arrays["target_kinds"][real] == MASKED,
            np.broadcast_to(arrays["sample_ids"][:, None], real.shape)[real],
        )
        for part, values in zip(parts, found, strict=True):
            part.append(values)
    return TargetScores(*(np.concatenate(part) for part in parts))
