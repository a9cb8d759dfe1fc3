"""How far each head looks: distances in units, and what of its attention stays at home, at CLS and at SEP.

H heads, Q queries, K keys, L layers, M measures, N bins
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tokenfree.train.analyses.attention.recorded import SeenLayer, watched
from tokenfree.train.analyses.subject.model import AnalysedModel
from tokenfree.train.analyses.subject.texts import SampledTexts

MEASURES = ("distance", "entropy", "itself", "cls", "sep", "strongest")
_EDGES = (0, 1, 2, 4, 8, 16, 32, 64, 128)  # the last distance in each bin of the strongest keys, before the open one


def bin_names() -> list[str]:
    """The bins of distances of the strongest keys, such as `strongest_3_4`."""
    starts = [0, *(edge + 1 for edge in _EDGES)]
    ends = [*map(str, _EDGES), "more"]
    spans = [str(start) if str(start) == end else f"{start}_{end}" for start, end in zip(starts, ends, strict=True)]
    return [f"strongest_{span}" for span in spans]


def measure(seen: SeenLayer) -> tuple[Tensor, Tensor]:
    """Sums over the real queries of one text: of `MEASURES`, [H, M], and of the bins of `bin_names`, [H, N]; float64.

    `distance` is the mean of |i - j| over the keys j of query i by their weights, CLS and SEP included; `entropy` that
    of the weights, in bits; `itself`, `cls` and `sep` are the weights of these keys; `strongest` is the distance of the
    key with the largest weight. Nan where keys have no place, and for `sep` where no unit is SEP alone.
    """
    weights_HQK = seen.weights().double()
    entropy_H = -torch.special.xlogy(weights_HQK, weights_HQK).sum(dim=(1, 2)) / torch.log(torch.tensor(2.0))
    nothing_H = torch.full_like(entropy_H, torch.nan)
    if not seen.keys_are_units:
        columns = [entropy_H if name == "entropy" else nothing_H for name in MEASURES]
        return torch.stack(columns, dim=1), nothing_H[:, None].repeat(1, len(_EDGES) + 1)
    places_Q = torch.arange(weights_HQK.shape[1], device=weights_HQK.device)
    distance_QK = (places_Q[:, None] - places_Q).abs().double()
    strongest_HQ = (weights_HQK.argmax(dim=-1) - places_Q).abs()
    separator = seen.units.separator
    columns = [
        (weights_HQK * distance_QK).sum(dim=(1, 2)),
        entropy_H,
        weights_HQK.diagonal(dim1=1, dim2=2).sum(dim=1),
        weights_HQK[..., 0].sum(dim=1),
        nothing_H if separator is None else weights_HQK[..., separator].sum(dim=1),
        strongest_HQ.double().sum(dim=1),
    ]
    bins_HQ = torch.bucketize(strongest_HQ, torch.tensor(_EDGES, device=strongest_HQ.device))
    counts_HN = torch.nn.functional.one_hot(bins_HQ, len(_EDGES) + 1).sum(dim=1).double()
    return torch.stack(columns, dim=1), counts_HN


def attention_distances(model: AnalysedModel, sampled: SampledTexts) -> dict[str, Any]:
    """What each head of the deep stack looks at, over all real queries of all texts.

    Returns:
        `rows`, one for each head: `layer` and `head` (from 1), the means over queries of what `measure` tells, and the
        shares of queries in the bins of their strongest key's distance; None for what is not defined. Beside them the
        number of `texts`, how many of these were `cut`, the mean `units` of a text, and `uniform_distance`, which a
        head would have that sees all units alike.
    """
    num_layers = len(model.encoder.trunk.layers)
    sums: list[Any] = [0.0] * num_layers
    bins: list[Any] = [0.0] * num_layers
    counts: list[int] = []

    def see(layer: int, seen: SeenLayer) -> None:
        sums_HM, counts_HN = measure(seen)
        sums[layer] = sums[layer] + sums_HM
        bins[layer] = bins[layer] + counts_HN
        if layer == 0:
            counts.append(seen.units.count)

    with watched(model.encoder, see):
        for text in sampled.texts:
            model.read(text)
    queries = sum(counts)
    return {
        "analysis": "attention",
        **model.record(),
        "attention": model.encoder.config.trunk.attention.name,
        "texts": len(counts),
        "cut": sampled.num_cut,
        "units": queries / len(counts),
        "uniform_distance": sum((count**2 - 1) / 3 for count in counts) / queries,
        "rows": list(_rows(sums, bins, queries)),
    }


def _rows(sums: list[Any], bins: list[Any], queries: int) -> Iterator[dict[str, Any]]:
    for layer, (sums_HM, bins_HN) in enumerate(zip(sums, bins, strict=True)):
        for head in range(len(sums_HM)):
            means = {name: _mean(float(sums_HM[head, at]), queries) for at, name in enumerate(MEASURES)}
            shares = {name: _mean(float(bins_HN[head, at]), queries) for at, name in enumerate(bin_names())}
            yield {"layer": layer + 1, "head": head + 1, **means, **shares}


def _mean(total: float, number: int) -> float | None:
    return None if math.isnan(total) else total / number
