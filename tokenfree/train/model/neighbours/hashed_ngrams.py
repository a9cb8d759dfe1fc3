"""A linear model over hashed n-grams, whose scores are added to those of the head.

F features, K scores
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.kernels import embedding
from tokenfree.train.model.common.slots import NeighboursConfig


@settings
class Config(NeighboursConfig):
    """Rows of scores for the n-grams in a span and on both sides of it, found by their hashes.

    Deep layers need minutes for what such a model learns in seconds; with it, they learn the rest.

    Attributes:
        buckets: number of rows; n-grams with the same hash modulo `buckets` share a row.
        dropout: probability with which a feature is left out in training.
        rate: learning rate of the rows as a multiple of `train.learning_rate`.
    """

    name: Literal["hashed_ngrams"] = "hashed_ngrams"
    buckets: Positive = 2**18
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.2
    rate: Annotated[float, Field(gt=0)] = 3.0

    def build(self, size: int) -> "HashedNgrams":
        return HashedNgrams(self, size)


class HashedNgrams(nn.Module):
    """Sums of the rows of features. A new model scores 0."""

    def __init__(self, config: Config, size: int) -> None:
        super().__init__()
        self.dropout, self.rate_factor = config.dropout, config.rate
        self.rows = nn.Embedding(config.buckets, size)
        nn.init.zeros_(self.rows.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores [..., K] of hashes, int64 [..., F]. Negative ones are no features."""
        kept = features >= 0
        if self.training and self.dropout:
            kept = kept & (torch.rand(features.shape, device=features.device) >= self.dropout)
        rows = embedding(features.clamp(min=0) % self.rows.num_embeddings, self.rows.weight)
        return (rows * kept[..., None]).sum(dim=-2)
