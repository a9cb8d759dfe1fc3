"""Heads of tasks for whole texts and for places in them, and the linear-chain field over tags.

Only those encoder outputs are computed that a head needs. B batch, C characters, P places, U units after
DOWN, D width, V features of a text, K classes or tags
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from tokenfree.train.model.common.basic import Dense, Dropout, gather_rows, initialise
from tokenfree.train.model.encoder import EncoderOutput, ModelConfig, mean_of_text
from tokenfree.train.objectives.base import Loss
from tokenfree.train.tasks.base import TaskHead


class LinearChain(nn.Module):
    """A linear-chain conditional random field over tags (Lafferty et al. 2001; arXiv 1603.01360, section 2.2).

    It adds scores of a first tag, of a last tag and of each pair of consecutive tags to the scores of places.

    The places of a sentence are the first ones of its row of `mask_BP`, bool.
    """

    # The scores of pairs must reach several nats within some hundred steps.
    optimizer_options = {"rate_factor": 100.0}

    def __init__(self, num_tags: int) -> None:
        super().__init__()
        self.pairs_KK = nn.Parameter(torch.zeros(num_tags, num_tags))  # from row to column
        self.first_K = nn.Parameter(torch.zeros(num_tags))
        self.last_K = nn.Parameter(torch.zeros(num_tags))

    def loss(self, scores_BPK: Tensor, tags_BP: Tensor, mask_BP: Tensor) -> Tensor:
        """Return the sum of -log p(tags) over the sentences, nats."""
        own_BP = scores_BPK.gather(2, tags_BP[..., None])[..., 0]
        pairs_BP = self.pairs_KK[tags_BP[:, :-1], tags_BP[:, 1:]]
        last_B1 = tags_BP.gather(1, (mask_BP.sum(dim=1, keepdim=True) - 1).clamp(min=0))
        ends_B = (self.first_K[tags_BP[:, 0]] + self.last_K[last_B1[:, 0]]) * mask_BP[:, 0]
        path = (own_BP * mask_BP).sum() + (pairs_BP * mask_BP[:, 1:]).sum() + ends_B.sum()
        return self.log_partition(scores_BPK, mask_BP).sum() - path

    def log_partition(self, scores_BPK: Tensor, mask_BP: Tensor) -> Tensor:
        """Return the logarithm of the sum of exp(score) over all paths, [B]; 0 for a row without places."""
        total_BK = self.first_K + scores_BPK[:, 0]
        for place in range(1, scores_BPK.shape[1]):
            next_BK = torch.logsumexp(total_BK[:, :, None] + self.pairs_KK, dim=1) + scores_BPK[:, place]
            total_BK = torch.where(mask_BP[:, place, None], next_BK, total_BK)
        return torch.logsumexp(total_BK + self.last_K, dim=1) * mask_BP[:, 0]

    def best(self, scores_BPK: Tensor, mask_BP: Tensor) -> Tensor:
        """Return the tags of the path with the highest score (Viterbi), int64 [B, P]; 0 where there is no place."""
        best_BK, pointers = self.first_K + scores_BPK[:, 0], list[Tensor]()
        for place in range(1, scores_BPK.shape[1]):
            next_BK, pointer_BK = (best_BK[:, :, None] + self.pairs_KK).max(dim=1)
            inside_B1 = mask_BP[:, place, None]
            best_BK = torch.where(inside_B1, next_BK + scores_BPK[:, place], best_BK)
            pointers.append(
                torch.where(inside_B1, pointer_BK, torch.arange(pointer_BK.shape[1], device=mask_BP.device))
            )
        tag_B1 = (best_BK + self.last_K).argmax(dim=1, keepdim=True)
        tags = [tag_B1]
        for pointer_BK in reversed(pointers):
            tag_B1 = pointer_BK.gather(1, tag_B1)
            tags.append(tag_B1)
        return torch.cat(tags[::-1], dim=1) * mask_BP

    def marginals(self, scores_BPK: Tensor, mask_BP: Tensor) -> Tensor:
        """Return the probability of each tag at each place over all paths, [B, P, K]; 0 where there is no place.

        It is the gradient of the log-partition with respect to the scores.
        """
        with torch.enable_grad():
            scores_BPK = scores_BPK.detach().requires_grad_()
            return torch.autograd.grad(self.log_partition(scores_BPK, mask_BP).sum(), scores_BPK)[0]


Representation = Literal["mean", "pooled", "class_max"]
Combine = Literal["difference", "product"]
_OPTIONAL_INPUTS = {"segments_BC": "segments", "unit_ends_BU": "unit_ends", "global_BC": "global"}
_NO_TARGET = -100


def _optional_inputs(batch: Mapping[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    return {name: batch[prefix + key] for name, key in _OPTIONAL_INPUTS.items() if prefix + key in batch}


def encode_units(encoder: Any, batch: Mapping[str, Tensor], prefix: str = "") -> tuple[Tensor, Tensor]:
    """Return the units [B, U, D] and which of them are real, bool [B, U]. Nothing is upsampled."""
    down, units_BUD = encoder.encode(
        batch[f"{prefix}codepoints"], batch[f"{prefix}mask"], **_optional_inputs(batch, prefix)
    )
    return units_BUD, down.valid_BU


def upsampled(encoder: Any, batch: Mapping[str, Tensor], prefix: str = "", **options: Any) -> EncoderOutput:
    return encoder(
        batch[f"{prefix}codepoints"], batch[f"{prefix}mask"], **options, **_optional_inputs(batch, prefix)
    )


def encode_places(encoder: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the vectors [B, P, D] at `places`, int64 [B, P], of words or symbols.

    Only these are upsampled.
    """
    places_BP = batch["places"]
    if "unit_ends" in batch:
        units_BUD, _ = encode_units(encoder, batch)
        return gather_rows(units_BUD, places_BP)
    return upsampled(encoder, batch, targets_BP=places_BP).characters


def encode_all(encoder: Any, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return all vectors [B, P, D], of units if units are words of the text, else of symbols; and the pooled vector."""
    if "unit_ends" in batch:
        units_BUD, _ = encode_units(encoder, batch)
        return units_BUD, encoder.pool(units_BUD)
    out = upsampled(encoder, batch)
    return out.characters, out.pooled


def mean_of_places(encoder: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the mean of the vectors of each place, [B, P, D]: those from `places` to `place_ends`, int64 [B, P]."""
    x_BCD, _ = encode_all(encoder, batch)
    symbols_C = torch.arange(x_BCD.shape[1], device=x_BCD.device)
    starts_BP1, ends_BP1 = batch["places"][..., None], batch["place_ends"][..., None]
    inside_BPC = ((symbols_C >= starts_BP1) & (symbols_C < ends_BP1)).to(x_BCD.dtype)
    return (inside_BPC / (ends_BP1 - starts_BP1).clamp(min=1)) @ x_BCD


def class_and_maximum(units_BUD: Tensor, valid_BU: Tensor) -> Tensor:
    """Return the class node and the maximum over all real units, [B, 2 D] (arXiv 1912.00544, section 3.2)."""
    largest_BD = units_BUD.masked_fill(~valid_BU[..., None], -torch.inf).amax(dim=1)
    return torch.cat([units_BUD[:, 0], largest_BD], dim=-1)


class TextVector(nn.Module):
    """One vector for a whole text.

    `mean` is the mean over the characters, or over the words if units are words. `pooled` is a tanh layer on
    CLS, as in BERT. `class_max` is the class node and the maximum over all units. Only `mean` upsamples.
    """

    def __init__(self, representation: Representation, width: int) -> None:
        super().__init__()
        self.representation = representation
        self.width = 2 * width if representation == "class_max" else width

    def forward(self, encoder: Any, batch: Mapping[str, Tensor], prefix: str = "") -> Tensor:
        if self.representation == "mean" and f"{prefix}unit_ends" not in batch:
            return mean_of_text(upsampled(encoder, batch, prefix).characters, batch[f"{prefix}mask"])
        units_BUD, valid_BU = encode_units(encoder, batch, prefix)
        if self.representation == "mean":
            return mean_of_text(units_BUD, valid_BU)
        return (
            encoder.pool(units_BUD)
            if self.representation == "pooled"
            else class_and_maximum(units_BUD, valid_BU)
        )


class Classifier(nn.Module):
    """A dense layer, or a two-layer MLP of width `hidden` with ReLU. Dropout precedes each layer."""

    def __init__(self, features: int, hidden: int | None, size: int, dropout: float) -> None:
        super().__init__()
        self.hidden = None if hidden is None else Dense(features, hidden)
        self.output = Dense(features if hidden is None else hidden, size)
        self.dropout = Dropout(dropout)
        self.apply(initialise)

    def forward(self, x_BV: Tensor) -> Tensor:
        x_BV = self.dropout(x_BV)
        if self.hidden is not None:
            x_BV = self.dropout(torch.relu(self.hidden(x_BV)))
        return self.output(x_BV).float()


class ClassHead(TaskHead):
    regression = False

    def loss(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Loss:
        """Return the cross-entropy in nats or, for numbers, half the squared error; no number counts as correct."""
        logits_NK, is_target_N = outputs["logits"].flatten(end_dim=-2), batch["target_mask"].flatten()
        if self.regression:
            total = 0.5 * ((logits_NK[:, 0] - batch["numbers"]).square() * is_target_N).sum()
            return Loss(total, is_target_N.sum(), is_target_N.sum().new_zeros(()))
        gold_N = batch["classes"].flatten().masked_fill(~is_target_N, _NO_TARGET)
        total = functional.cross_entropy(logits_NK, gold_N, ignore_index=_NO_TARGET, reduction="sum")
        return Loss(total, is_target_N.sum(), (logits_NK.argmax(dim=-1) == gold_N).sum())


class TextHead(ClassHead):
    """A head for classes, or a number, of texts and pairs of texts.

    `combine` gives the features of a pair whose texts are encoded separately. `difference`: [r1, r2, |r1 -
    r2|, r1 - r2] (arXiv 1912.00544); `product`: [r1, r2, |r1 - r2|, r1 * r2]. None: one text, or both encoded
    together.
    """

    def __init__(
        self,
        model: ModelConfig,
        representation: Representation,
        size: int,
        *,
        dropout: float,
        combine: Combine | None = None,
        regression: bool = False,
    ) -> None:
        super().__init__()
        self.vector = TextVector(representation, model.width)
        self.combine, self.regression = combine, regression
        features = self.vector.width * (4 if combine else 1)
        hidden = model.width if combine or representation == "class_max" else None
        self.classifier = Classifier(features, hidden, size, dropout)
        self.neighbours = model.neighbours.build(size)

    def outputs(self, encoder: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        x_BV = self.vector(encoder, batch)
        if self.combine is not None:
            other_BV = self.vector(encoder, batch, "second_")
            difference_BV = x_BV - other_BV
            last_BV = difference_BV if self.combine == "difference" else x_BV * other_BV
            x_BV = torch.cat([x_BV, other_BV, difference_BV.abs(), last_BV], dim=-1)
        logits_BK = self.classifier(x_BV)
        if self.neighbours is not None:
            logits_BK = logits_BK + self.neighbours(batch["ngrams"], batch["ngram_counts"]).sum(dim=1)
        return {"logits": logits_BK}


class PlaceHead(ClassHead):
    """A head for tags of places.

    With `pooled`, the vector of a place is the mean over its characters. With `chained`, a linear-chain CRF
    scores the tags of a sentence together. In training, `miss_cost` is added to the score of the tag
    `outside` at places with another tag.
    """

    def __init__(
        self,
        model: ModelConfig,
        size: int,
        *,
        dropout: float,
        pooled: bool = False,
        chained: bool = False,
        outside: int = 0,
        miss_cost: float = 0.0,
    ) -> None:
        super().__init__()
        self.classifier = Classifier(model.width, None, size, dropout)
        self.neighbours = model.neighbours.build(size)
        self.chain = LinearChain(size) if chained else None
        self.pooled, self.outside, self.miss_cost = pooled, outside, miss_cost

    def outputs(self, encoder: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        x_BPD = (mean_of_places if self.pooled else encode_places)(encoder, batch)
        logits_BPK = self.classifier(x_BPD)
        if self.neighbours is not None:
            logits_BPK = logits_BPK + self.neighbours(batch["ngrams"])
        if self.chain is None or self.training:
            return {"logits": logits_BPK}
        mask_BP = batch["place_mask"]
        return {
            "logits": logits_BPK,
            "tags": self.chain.best(logits_BPK, mask_BP),
            "probabilities": self.chain.marginals(logits_BPK, mask_BP),
        }

    def loss(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Loss:
        logits_BPK, tags_BP = outputs["logits"], batch["classes"]
        if self.training and self.miss_cost:
            logits_BPK = logits_BPK.clone()
            logits_BPK[..., self.outside] += self.miss_cost * (tags_BP != self.outside)
        loss = super().loss({"logits": logits_BPK}, batch)
        if self.chain is None:
            return loss
        return loss._replace(total=self.chain.loss(logits_BPK, tags_BP, batch["target_mask"]))

    def everywhere(self, encoder: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return `logits` [B, P, K] of all vectors, not only those that the task reads."""
        return {"logits": self.classifier(encode_all(encoder, batch)[0])}
