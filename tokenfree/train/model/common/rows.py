"""Vectors that are rows of a small table, not looked up yet: DOWN may compute on the table once, not at every symbol.

B batch, C characters, X rows of the table, D width
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class TableRows(NamedTuple):
    """The vectors `table_XD[index_BC]`, and the segments of the characters for DOWN to add to what it makes of them."""

    table_XD: Tensor
    index_BC: Tensor  # int64
    segments_BC: Tensor | None


def look_up(embedded: Tensor | TableRows) -> Tensor:
    """The vectors themselves, [B, C, D]."""
    return F.embedding(embedded.index_BC, embedded.table_XD) if isinstance(embedded, TableRows) else embedded


def as_rows(embedded: Tensor | TableRows) -> TableRows:
    """Vectors [B, C, D] of any embedder as the rows of a table, each used once."""
    if isinstance(embedded, TableRows):
        return embedded
    num_rows = embedded.shape[0] * embedded.shape[1]
    index_BC = torch.arange(num_rows, device=embedded.device).view(embedded.shape[:2])
    return TableRows(embedded.flatten(0, 1), index_BC, None)
