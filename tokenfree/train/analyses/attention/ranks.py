"""Ranks of attention matrices before softmax, and what position codes are like, as DIET analyses them.

Chen et al., "A Simple and Effective Positional Encoding for Transformers", https://arxiv.org/abs/2104.08698.

H heads, Q queries, K keys, U units
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tokenfree.train.analyses.attention.position_terms import (
    PositionShape,
    own_segment,
    position_terms,
    segment_tables,
    shape_of,
)
from tokenfree.train.analyses.attention.recorded import SeenLayer, watched
from tokenfree.train.analyses.subject.model import AnalysedModel
from tokenfree.train.analyses.subject.texts import SampledTexts

OF_TEXTS = ("rank_content", "effective_content", "rank", "effective")
OF_POSITIONS = ("rank_positions", "effective_positions", *PositionShape._fields)


def ranks_of(matrices_HQK: Tensor) -> tuple[Tensor, Tensor]:
    """The numerical and the entropy-effective rank of each matrix, float64 [H]; nan where it has nan.

    Numerical: singular values above the largest times the longer side times the precision of float32, in which models
    compute. Effective: e to the entropy of the singular values as shares of their sum (Roy, Vetterli, "The effective
    rank", EUSIPCO 2007); 0 of a matrix of zeros.
    """
    missing_H = matrices_HQK.isnan().any(dim=2).any(dim=1)
    values = torch.linalg.svdvals(torch.where(missing_H[:, None, None], 0, matrices_HQK.double()))
    least = max(matrices_HQK.shape[1:]) * torch.finfo(torch.float32).eps
    numerical_H = (values > values[:, :1] * least).sum(dim=1).double()
    shares = values / values.sum(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    effective_H = torch.exp(-torch.special.xlogy(shares, shares).sum(dim=1))
    effective_H = torch.where(values[:, 0] > 0, effective_H, 0.0)
    return tuple(torch.where(missing_H, torch.nan, found) for found in (numerical_H, effective_H))  # pyright: ignore[reportReturnType]


def attention_ranks(model: AnalysedModel, sampled: SampledTexts) -> dict[str, Any]:
    """The ranks of the logits of each head of the deep stack, and the shape of its position term.

    Logits are those of all pairs of real units, also where the pattern shows fewer.

    Returns:
        `rows`, one for each head: `layer` and `head` (from 1); the mean over texts of the ranks (see `ranks_of`) of the
        content's logits, `rank_content` and `effective_content`, and of all, `rank` and `effective`; the ranks of the
        position term for as many units as in training, `rank_positions` and `effective_positions`, with what
        `PositionShape` has; and `own_segment` (see there). None for what there is not. Beside them the number of
        `texts`, how many of these were `cut`, the mean `units` of a text, the units of the position terms and the
        `segments` tables, by layer and head.
    """
    encoder = model.encoder
    num_layers = len(encoder.trunk.layers)
    sums: list[Any] = [0.0] * num_layers
    counts: list[int] = []

    def see(layer: int, seen: SeenLayer) -> None:
        content, bias = seen.content(), seen.bias()
        of_content = torch.stack(ranks_of(content), dim=1)
        of_all = of_content if bias is None else torch.stack(ranks_of(content + bias), dim=1)
        sums[layer] = sums[layer] + torch.cat([of_content, of_all], dim=1)
        if layer == 0:
            counts.append(seen.units.count)

    with watched(encoder, see):
        for text in sampled.texts:
            model.read(text)
    num_units = encoder.downsampler.num_units(model.reader.length)  # of the longest input in training
    terms, tables = position_terms(encoder, num_units), segment_tables(encoder)
    rows = []
    for layer in range(num_layers):
        of_positions = _of_positions(terms[layer])
        for head, values in enumerate((sums[layer] / len(counts)).tolist()):
            table_HSS = tables[layer]
            rows.append(
                {"layer": layer + 1, "head": head + 1}
                | {name: _known(value) for name, value in zip(OF_TEXTS, values, strict=True)}
                | (of_positions[head] if of_positions else dict.fromkeys(OF_POSITIONS))
                | {"own_segment": None if table_HSS is None else own_segment(table_HSS[head])}
            )
    return {
        "analysis": "ranks",
        **model.record(),
        "attention": encoder.config.trunk.attention.name,
        "positions": encoder.config.trunk.positions.name,
        "texts": len(counts),
        "cut": sampled.num_cut,
        "units": sum(counts) / len(counts),
        "units_of_positions": num_units,
        "segments": [None if table is None else table.tolist() for table in tables],
        "rows": rows,
    }


def _of_positions(term_HUU: Tensor | None) -> list[dict[str, float | None]]:
    """For each head what its position term is like; nothing where there is none."""
    if term_HUU is None:
        return []
    numerical_H, effective_H = ranks_of(term_HUU)
    return [
        {"rank_positions": float(numerical), "effective_positions": float(effective)}
        | {name: _known(value) for name, value in shape_of(term_UU)._asdict().items()}
        for numerical, effective, term_UU in zip(numerical_H, effective_H, term_HUU, strict=True)
    ]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
