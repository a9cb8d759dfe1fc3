"""Analyses of attention: recorded weights, distances, ranks, and the terms of position encodings.

Attention is linear in the values. If the value of each key is a unit vector, the output is the attention weights. This
holds for every attention pattern. The ranks follow Chen et al., arXiv 2104.08698.

B batch of one text, H heads, Q queries, K keys, U units, E width of a head, D width, L layers, S segments, M measures,
N bins
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tokenfree.train.analyses.subject import AnalysedModel, SampledTexts
from tokenfree.train.model.common.attention import ALL_HEADS, Heads, LayerBias
from tokenfree.train.model.common.basic import Downsampled, any_of_units
from tokenfree.train.model.encoder import Encoder


class PositionShape(NamedTuple):
    """Measures of the position term B of one head; nan if it is constant."""

    toeplitz: float  # share of its variance that a function of i - j explains
    toeplitz_without_cls: float  # the same without the row and the column of unit 0
    shift: float  # mean of |B[i + 1, j + 1] - B[i, j]| divided by the standard deviation of B


def toeplitz_share(bias_UU: Tensor) -> float:
    """Return the share of a square matrix's variance that the means of its diagonals explain; nan if it is constant."""
    bias_UU = bias_UU.double()
    num_units = len(bias_UU)
    places_U = torch.arange(num_units, device=bias_UU.device)
    offset_UU = (places_U - places_U[:, None] + num_units - 1).flatten()
    sums = torch.zeros(2 * num_units - 1, dtype=bias_UU.dtype).index_add(0, offset_UU, bias_UU.flatten())
    means = sums / torch.bincount(offset_UU)
    left = (bias_UU.flatten() - means[offset_UU]).square().sum()
    whole = (bias_UU - bias_UU.mean()).square().sum()
    return float("nan") if _is_constant(bias_UU) else float(1 - left / whole)


def shape_of(bias_UU: Tensor) -> PositionShape:
    """Return the measures of one position term, a square matrix of at least two units."""
    bias_UU = bias_UU.double()
    steps = (bias_UU[1:, 1:] - bias_UU[:-1, :-1]).abs().mean()
    shift = float("nan") if _is_constant(bias_UU) else float(steps / bias_UU.std(correction=0))
    return PositionShape(toeplitz_share(bias_UU), toeplitz_share(bias_UU[1:, 1:]), shift)


def position_terms(encoder: Encoder, num_units: int) -> list[Tensor | None]:
    """Return the position term of each layer for any text of `num_units` units, [H, U, U].

    It is None if there is no position encoding, if the term depends on the queries (Shaw's), or if keys are not units.
    """
    example_BUD = torch.zeros(1, num_units, encoder.width)
    valid_BU = torch.ones(1, num_units, dtype=torch.bool)
    with torch.no_grad():
        biases = encoder.trunk.positions(example_BUD, valid_BU)
        found = [None if biases is None else _dense(biases[layer]) for layer in range(len(encoder.trunk.layers))]
    return [None if term is None or term.shape[-1] != num_units else term for term in found]


def segment_tables(encoder: Encoder) -> list[Tensor | None]:
    """Return the segment term of each layer by segments of query and key, [H, S, S]; None without such a term."""
    num_layers = len(encoder.trunk.layers)
    num_segments: Any = getattr(encoder.config.trunk.segments, "num_segments", None)
    if num_segments is None:
        return [None] * num_layers
    with torch.no_grad():
        biases = encoder.trunk.segments(torch.arange(num_segments)[None])
        return [None if biases is None else biases[layer].dense(ALL_HEADS)[0] for layer in range(num_layers)]


def own_segment(table_SS: Tensor) -> float:
    """Return how much more the segment term adds to keys in the query's segment than to others; mean over segments."""
    table_SS = table_SS.double()
    num_segments = len(table_SS)
    others_S = (table_SS.sum(dim=1) - table_SS.diagonal()) / (num_segments - 1)
    return float((table_SS.diagonal() - others_S).mean())


def _is_constant(bias_UU: Tensor) -> bool:
    return bool(bias_UU.max() - bias_UU.min() <= 1e-12 * bias_UU.abs().max())


def _dense(bias: LayerBias) -> Tensor | None:
    try:
        found = bias.dense(ALL_HEADS)
    except NotImplementedError:  # raised by a bias that depends on the queries
        return None
    return found if found.dim() == 3 else None


class TextUnits(NamedTuple):
    """The first `count` units of an input, which are real and not padding."""

    count: int
    separator: int | None  # unit of SEP; None if units are groups of characters, because SEP may share one with text


class SeenLayer(NamedTuple):
    """The attention of one layer for one text. Values cover real queries and keys, or all keys if they mix units."""

    core: Any  # attention pattern
    heads: Heads
    units: TextUnits

    @property
    def keys_are_units(self) -> bool:
        """Whether each key is a unit. In some patterns, such as Linformer, keys mix all units and have no position."""
        num_units = self.heads.queries_BHQE.shape[2]
        return all(self.core.num_keys(number) == number for number in (num_units, num_units + 1))

    def weights(self) -> Tensor:
        """Return the attention weights, float [H, Q, K]. Each row sums to 1."""
        values_BHKE = self.heads.values_BHKE
        eye_KK = torch.eye(values_BHKE.shape[2], dtype=values_BHKE.dtype, device=values_BHKE.device)
        probe = self.heads._replace(values_BHKE=eye_KK.expand(*values_BHKE.shape[:2], -1, -1), offset_values=None)
        with _own_values_as(self.core, values_BHKE.shape[1], eye_KK):
            return self._real(self.core.forward(probe)[0])

    def content(self) -> Tensor:
        """Return the logits of the content, q k^T / sqrt(E), float64 [H, Q, K]; nan for heads without logits."""
        q_HQE, k_HKE = self.heads.queries_BHQE[0].double(), self.heads.keys_BHKE[0].double()
        logits = self._real(q_HQE @ k_HKE.transpose(-2, -1) * q_HQE.shape[-1] ** -0.5)
        missing = self.heads.values_BHKE.shape[1] - len(logits)
        return torch.cat([logits.new_full((missing, *logits.shape[1:]), torch.nan), logits])

    def bias(self) -> Tensor | None:
        """Return what positions and segments add to the logits, float64 [H, Q, K]; None if there are none."""
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
    """Call `see` with the number (from 0) and the `SeenLayer` of each layer of the trunk while one text is encoded.

    `see` must use its arguments before it returns, because the next layer may reuse their memory.
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
    """Return the real units: CLS, and units with a real character. `valid_BU` excludes one such unit of CANINE."""
    num_units = down.valid_BU.shape[1]
    real_U = any_of_units(mask_BC, down.grouping, num_units)[0]
    count = int(real_U.nonzero().max()) + 1
    if down.grouping.rate is not None:
        return TextUnits(count, None)
    last = int(mask_BC[0].nonzero().max())  # the last real symbol is SEP
    return TextUnits(count, int(down.grouping.unit_BC[0, last]))


class _UnitVectors(nn.Module):
    """A replacement for a projection to values that returns a unit vector for each unit, the same for all heads."""

    def __init__(self, num_heads: int, eye_UU: Tensor) -> None:
        super().__init__()
        self.num_heads, self.eye_UU = num_heads, eye_UU

    def forward(self, x_BUD: Tensor) -> Tensor:
        return self.eye_UU.repeat(1, self.num_heads).expand(len(x_BUD), -1, -1)


@contextlib.contextmanager
def _own_values_as(core: Any, num_heads: int, eye_UU: Tensor) -> Iterator[None]:
    """Replace the separate projection to values that some patterns have, as for global units, by unit vectors."""
    if not getattr(core, "separate", False):
        yield
        return
    own = core.value
    core.value = _UnitVectors(num_heads, eye_UU)
    try:
        yield
    finally:
        core.value = own


MEASURES = ("distance", "entropy", "itself", "cls", "sep", "strongest")
_EDGES = (0, 1, 2, 4, 8, 16, 32, 64, 128)  # last distance in each bin of strongest keys; one open bin follows


def bin_names() -> list[str]:
    """Return the names of the distance bins of the strongest keys, such as `strongest_3_4`."""
    starts = [0, *(edge + 1 for edge in _EDGES)]
    ends = [*map(str, _EDGES), "more"]
    spans = [str(start) if str(start) == end else f"{start}_{end}" for start, end in zip(starts, ends, strict=True)]
    return [f"strongest_{span}" for span in spans]


def measure(seen: SeenLayer) -> tuple[Tensor, Tensor]:
    """Return sums over the real queries of one text, float64: of `MEASURES`, [H, M], and of `bin_names`, [H, N].

    `distance` is the mean of |i - j| over the keys j of query i, weighted by attention, including CLS and SEP.
    `entropy` is that of the weights, in bits. `itself`, `cls` and `sep` are the weights of these keys. `strongest` is
    the distance of the key with the largest weight. Values are nan if keys have no position. `sep` is nan if no unit is
    SEP alone.
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
    """Return what each head of the trunk attends to, over all real queries of all texts.

    `rows` has one row per head, with the means of `measure` and the shares of queries in each bin of their strongest
    key's distance. An undefined value is None. `uniform_distance` is the distance of a head with equal weights.
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


OF_TEXTS = ("rank_content", "effective_content", "rank", "effective")
OF_POSITIONS = ("rank_positions", "effective_positions", *PositionShape._fields)


def ranks_of(matrices_HQK: Tensor) -> tuple[Tensor, Tensor]:
    """Return the numerical and the entropy-effective rank of each matrix, float64 [H]; nan if it has nan.

    The numerical rank counts singular values above the largest times the longer side times the precision of float32, in
    which models compute. The effective rank is e to the entropy of the singular values as shares of their sum (Roy,
    Vetterli, "The effective rank", EUSIPCO 2007). It is 0 for a matrix of zeros.
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
    """Return the ranks of the logits of each head of the trunk, and the shape of its position term.

    Logits cover all pairs of real units, even if the pattern uses fewer. `rows` has one row per head, with the mean
    ranks (from `ranks_of`) of the content logits and of all logits. It also has the ranks of the position term for the
    number of units in training, the measures of `PositionShape`, and `own_segment`. A missing value is None.
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
    num_units = encoder.downsampler.num_units(model.reader.length)  # units of the longest input in training
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
    """Return the measures of each head's position term; empty if there is none."""
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
