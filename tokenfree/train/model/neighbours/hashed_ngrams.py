"""A linear model over hashed n-grams, whose scores are added to those of the head.

F features, K scores
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import Positive, settings
from tokenfree.train.model.common.basic import Dense, dropout, embedding
from tokenfree.train.model.common.slots import NeighboursConfig

_ITERATIONS = 300  # of L-BFGS, which usually ends earlier
_STD = 0.3  # of new rows before a linear layer


@settings
class Config(NeighboursConfig):
    """Rows of scores for the n-grams in a span and on both sides of it, found by their hashes.

    A linear part beside deep layers (Cheng et al., arXiv 1606.07792, section 3) with hashed n-grams (Joulin
    et al., arXiv 1607.01759, section 2.2). Deep layers need minutes for what it learns in seconds, and can
    learn the rest.

    Attributes:
        width: width of the rows for heads with more classes than this, which get a linear layer over the mean
            of rows; otherwise rows are scores.
        buckets: number of rows; n-grams with the same hash modulo `buckets` share a row.
        dropout: probability with which a feature is left out in training.
        rate: learning rate of the rows as a multiple of `train.learning_rate`.
        output_rate: the same of the linear layer, which has a gradient in every step.
        epsilon: Adam's epsilon for the rows. Far above the gradients of rare n-grams, it keeps them in proportion
            to the error; else each n-gram that occurs once would weigh as much as a frequent one.
        weight_decay: weight decay coefficient of the rows, multiplied by their learning rate.
        min_count: training texts that a feature must occur in. Rarer features are left out, so that frequent ones,
            which unseen words share, explain the labels.
        strengths: inverse weights of squared rows (C of scikit-learn), for texts with one class each. Before the
            first step, the path becomes a logistic regression, with the strength that is best on the development
            part; without that part, with the first. Empty, or with more classes than `width`: rows begin at 0.
    """

    name: Literal["hashed_ngrams"] = "hashed_ngrams"
    width: Positive = 64
    buckets: Positive = 2**16
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    rate: Annotated[float, Field(gt=0)] = 10.0
    output_rate: Annotated[float, Field(gt=0)] = 10.0
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    min_count: Annotated[int, Field(ge=0)] = 0
    strengths: tuple[Annotated[float, Field(gt=0)], ...] = ()

    def build(self, size: int) -> "HashedNgrams":
        return HashedNgrams(self, size)


class LabelledFeatures(NamedTuple):
    """The texts of a part, of which there is at least one."""

    texts: Iterable[tuple[Tensor, Tensor]]  # of each text, features and counts as in `HashedNgrams.forward`
    classes: Sequence[int]


class HashedNgrams(nn.Module):
    """Sums of the rows of features, or means weighted by tf-idf. A new model scores 0."""

    idf: Tensor

    def __init__(self, config: Config, size: int) -> None:
        super().__init__()
        self.dropout, self.min_count = config.dropout, config.min_count
        self.strengths = config.strengths if size <= config.width else ()
        # Rows without a gradient decay all the same.
        self.optimizer_options = {
            "rate_factor": config.rate,
            "epsilon": config.epsilon,
            "weight_decay": config.weight_decay,
        }
        self.rows = nn.Embedding(config.buckets, min(size, config.width))
        nn.init.zeros_(self.rows.weight)
        self.output: Any = None
        if size > config.width:
            nn.init.normal_(self.rows.weight, std=_STD)
            self.output = Dense(config.width, size, bias=False)
            self.output.optimizer_options = {"rate_factor": config.output_rate}
            nn.init.zeros_(self.output.weight)
        self.register_buffer("idf", torch.ones(config.buckets))

    def learn(self, texts: Iterable[np.ndarray]) -> None:
        """Learn the inverse document frequency of each row from the features of each training text, int64 [F].

        That of a row with fewer texts than `min_count` is 0.
        """
        buckets, num_texts = self.rows.num_embeddings, 0
        counts = np.zeros(buckets)
        for features in texts:
            counts[np.unique(features[features >= 0] % buckets)] += 1
            num_texts += 1
        idf = np.log((1 + num_texts) / (1 + counts)) + 1
        self.idf.copy_(torch.from_numpy(np.where(counts < self.min_count, 0, idf)))

    def fit(self, train: LabelledFeatures, held_out: LabelledFeatures | None) -> Tensor:
        """Fit a logistic regression, and return its scores of a text without features, [K]."""
        from sklearn.linear_model import LogisticRegression

        used = self.idf.nonzero()[:, 0].numpy()
        train_NR = self._matrix(train)[:, used]
        models = [LogisticRegression(C=strength, max_iter=_ITERATIONS) for strength in self.strengths]
        models = [model.fit(train_NR, train.classes) for model in models[: None if held_out else 1]]
        best = models[0]
        if held_out is not None:
            held_out_NR = self._matrix(held_out)[:, used]
            best = max(models, key=lambda model: model.score(held_out_NR, held_out.classes))
        rows_KR, scores_K = best.coef_, best.intercept_
        if len(scores_K) == 1:
            rows_KR, scores_K = (
                np.concatenate([-rows_KR, rows_KR]) / 2,
                np.concatenate([-scores_K, scores_K]) / 2,
            )
        present = torch.from_numpy(best.classes_)
        self.rows.weight.data[used[:, None], present] = torch.from_numpy(rows_KR.T).float()
        return torch.zeros(self.rows.embedding_dim).index_copy(0, present, torch.from_numpy(scores_K).float())

    def _matrix(self, examples: LabelledFeatures) -> Any:
        """Return the weight of each row in each text, a `csr_array` [N, buckets]."""
        from scipy.sparse import csr_array

        columns, values, ends = list[Tensor](), list[Tensor](), [0]
        for features, counts in examples.texts:
            index, weights = self._weighted(features, counts)
            columns.append(index[weights > 0])
            values.append(weights[weights > 0])
            ends.append(ends[-1] + len(columns[-1]))
        shape = (len(examples.classes), self.rows.num_embeddings)
        return csr_array((torch.cat(values).numpy(), torch.cat(columns).numpy(), ends), shape=shape)

    def _weighted(self, features: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the rows of features and their weights, [..., F]."""
        index = features.clamp(min=0) % self.rows.num_embeddings
        weights = ((features >= 0) & (self.idf[index] > 0)).float()
        if counts is not None:
            weights = weights * (1 + counts.log()) * self.idf[index]
            weights = nn.functional.normalize(weights, dim=-1)
        return index, weights

    def forward(self, features: Tensor, counts: Tensor | None = None) -> Tensor:
        """Return the scores [..., K] of hashes, int64 [..., F]. Negative ones are no features.

        With `counts`, int64 [..., F], rows are weighted by (1 + log count) idf, divided by the norm of these
        weights.
        """
        index, weights = self._weighted(features, counts)
        weights = dropout(weights, self.dropout, self.training)
        if self.output is None:
            return (weights[..., None, :] @ embedding(index, self.rows.weight))[..., 0, :]
        weights = weights / features.shape[-1]
        return self.output((weights[..., None, :] @ embedding(index, self.rows.weight))[..., 0, :])
