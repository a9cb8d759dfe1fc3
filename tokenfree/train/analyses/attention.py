"""Analyses of attention: recorded weights, distances, ranks, and the terms of position encodings.

Attention is linear in the values: with a unit vector for each key as its value, the output is the weights themselves.
This holds for every pattern. Ranks: Chen et al., arXiv 2104.08698.

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
    """What a position term of one head is like; nan where it is constant."""

    toeplitz: float  # share of its variance that a function of i - j explains
    toeplitz_without_cls: float  # the same without the row and the column of unit 0
    shift: float  # mean of |B[i + 1, j + 1] - B[i, j]| over the standard deviation of B


def toeplitz_share(bias_UU: Tensor) -> float:
    """The share of the variance of a square matrix that the means of its diagonals explain; nan of a constant one."""
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
    """The measures of one position term, a square matrix of at least two units."""
    bias_UU = bias_UU.double()
    steps = (bias_UU[1:, 1:] - bias_UU[:-1, :-1]).abs().mean()
    shift = float("nan") if _is_constant(bias_UU) else float(steps / bias_UU.std(correction=0))
    return PositionShape(toeplitz_share(bias_UU), toeplitz_share(bias_UU[1:, 1:]), shift)


def position_terms(encoder: Encoder, num_units: int) -> list[Tensor | None]:
    """What the position code adds in each layer for any text of `num_units` units, [H, U, U].

    None where there is no code, where its term hangs on the queries (Shaw's), and where keys are not units.
    """
    example_BUD = torch.zeros(1, num_units, encoder.width)
    valid_BU = torch.ones(1, num_units, dtype=torch.bool)
    with torch.no_grad():
        biases = encoder.trunk.positions(example_BUD, valid_BU)
        found = [None if biases is None else _dense(biases[layer]) for layer in range(len(encoder.trunk.layers))]
    return [None if term is None or term.shape[-1] != num_units else term for term in found]


def segment_tables(encoder: Encoder) -> list[Tensor | None]:
    """What segments add in each layer for a query of segment a and a key of segment b, [H, S, S]; None without."""
    num_layers = len(encoder.trunk.layers)
    num_segments: Any = getattr(encoder.config.trunk.segments, "num_segments", None)
    if num_segments is None:
        return [None] * num_layers
    with torch.no_grad():
        biases = encoder.trunk.segments(torch.arange(num_segments)[None])
        return [None if biases is None else biases[layer].dense(ALL_HEADS)[0] for layer in range(num_layers)]


def own_segment(table_SS: Tensor) -> float:
    """How much more the logit of a key gets in the query's own segment than in others, the mean over segments."""
    table_SS = table_SS.double()
    num_segments = len(table_SS)
    others_S = (table_SS.sum(dim=1) - table_SS.diagonal()) / (num_segments - 1)
    return float((table_SS.diagonal() - others_S).mean())


def _is_constant(bias_UU: Tensor) -> bool:
    return bool(bias_UU.max() - bias_UU.min() <= 1e-12 * bias_UU.abs().max())


def _dense(bias: LayerBias) -> Tensor | None:
    try:
        found = bias.dense(ALL_HEADS)
    except NotImplementedError:  # a bias that comes with the queries has none of its own
        return None
    return found if found.dim() == 3 else None


class TextUnits(NamedTuple):
    """The real units of a text, the first `count`: what is left of the input after padding."""

    count: int
    separator: int | None  # the unit of SEP; None where units are groups of characters, among which SEP may be


class SeenLayer(NamedTuple):
    """One layer with one text; only real queries and keys are told, but all keys that are mixtures of units."""

    core: Any  # the attention pattern
    heads: Heads
    units: TextUnits

    @property
    def keys_are_units(self) -> bool:
        """False for patterns whose keys are mixtures of all units, such as Linformer's: these have no place."""
        num_units = self.heads.queries_BHQE.shape[2]
        return all(self.core.num_keys(number) == number for number in (num_units, num_units + 1))

    def weights(self) -> Tensor:
        """The attention weights, float [H, Q, K]; each row sums to 1."""
        values_BHKE = self.heads.values_BHKE
        eye_KK = torch.eye(values_BHKE.shape[2], dtype=values_BHKE.dtype, device=values_BHKE.device)
        probe = self.heads._replace(values_BHKE=eye_KK.expand(*values_BHKE.shape[:2], -1, -1), offset_values=None)
        with _own_values_as(self.core, values_BHKE.shape[1], eye_KK):
            return self._real(self.core.forward(probe)[0])

    def content(self) -> Tensor:
        """The logits of the content, q k^T / sqrt(E), float64 [H, Q, K]; nan for heads that need no logits."""
        q_HQE, k_HKE = self.heads.queries_BHQE[0].double(), self.heads.keys_BHKE[0].double()
        logits = self._real(q_HQE @ k_HKE.transpose(-2, -1) * q_HQE.shape[-1] ** -0.5)
        missing = self.heads.values_BHKE.shape[1] - len(logits)
        return torch.cat([logits.new_full((missing, *logits.shape[1:]), torch.nan), logits])

    def bias(self) -> Tensor | None:
        """What positions and segments add to the logits, float64 [H, Q, K]; None where there are none."""
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
    """Within it, `see` is called with the number (from 0) and the sight of each layer of the deep stack, for one text.

    What it is given is to be used before it returns: the memory may be that of the next layer.
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
    """Real are CLS and the units that stand for a real character; `valid_BU` leaves out one of CANINE's."""
    num_units = down.valid_BU.shape[1]
    real_U = any_of_units(mask_BC, down.grouping, num_units)[0]
    count = int(real_U.nonzero().max()) + 1
    if down.grouping.rate is not None:
        return TextUnits(count, None)
    last = int(mask_BC[0].nonzero().max())  # the last real symbol is SEP
    return TextUnits(count, int(down.grouping.unit_BC[0, last]))


class _UnitVectors(nn.Module):
    """In the place of a projection to values: a unit vector for each unit, the same for all heads."""

    def __init__(self, num_heads: int, eye_UU: Tensor) -> None:
        super().__init__()
        self.num_heads, self.eye_UU = num_heads, eye_UU

    def forward(self, x_BUD: Tensor) -> Tensor:
        return self.eye_UU.repeat(1, self.num_heads).expand(len(x_BUD), -1, -1)


@contextlib.contextmanager
def _own_values_as(core: Any, num_heads: int, eye_UU: Tensor) -> Iterator[None]:
    """A pattern with a projection to values of its own, as for global units, gives unit vectors as well."""
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
    """Return what each head of the deep stack looks at, over all real queries of all texts.

    `rows`, one for each head, hold the means of `measure` and the shares of queries in the bins of their strongest
    key's distance; None for what is not defined. `uniform_distance` is that of a head that sees all units alike.
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
    """Return the ranks of the logits of each head of the deep stack, and the shape of its position term.

    Logits are those of all pairs of real units, also where the pattern shows fewer. `rows`, one for each head, hold the
    mean ranks (see `ranks_of`) of the content's logits and of all, and those of the position term for as many units as
    in training, with what `PositionShape` and `own_segment` say. None for what there is not.
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
