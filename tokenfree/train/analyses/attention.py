"""Analyses of attention: recorded weights, distances, ranks, and the terms of position encodings.

Attention is linear in the values. If the value of each key is a unit vector, the output is the attention
weights. This holds for every attention pattern. The ranks follow Chen et al., arXiv 2104.08698.

B batch of one text, H heads, Q queries, K keys, U units, E width of a head, D width, L layers, M measures
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tokenfree.train.analyses.subject import AnalysedModel, SampledTexts
from tokenfree.train.intervals import none_if_nan
from tokenfree.train.model.common.attention import ALL_HEADS, Heads, LayerBias
from tokenfree.train.model.common.basic import Downsampled, any_of_units
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.torch_state import default_settings


def toeplitz_share(bias_UU: Tensor) -> float:
    """Return the share of a square matrix's variance that the means of its diagonals explain; nan if it is constant."""
    bias_UU = bias_UU.double()
    if bias_UU.max() - bias_UU.min() <= 1e-12 * bias_UU.abs().max():
        return float("nan")
    num_units = len(bias_UU)
    places_U = torch.arange(num_units, device=bias_UU.device)
    offset_UU = (places_U - places_U[:, None] + num_units - 1).flatten()
    sums = torch.zeros(2 * num_units - 1, dtype=bias_UU.dtype).index_add(0, offset_UU, bias_UU.flatten())
    left = (bias_UU.flatten() - (sums / torch.bincount(offset_UU))[offset_UU]).square().sum()
    return float(1 - left / (bias_UU - bias_UU.mean()).square().sum())


def position_terms(encoder: Encoder, num_units: int) -> list[Tensor | None]:
    """Return the position term of each layer for any text of `num_units` units, [H, U, U].

    It is None if there is no position encoding, if the term depends on the queries (Shaw's), or if keys are
    not units.
    """
    example_BUD = torch.zeros(1, num_units, encoder.width)
    valid_BU = torch.ones(1, num_units, dtype=torch.bool)
    with torch.no_grad():
        biases = encoder.trunk.positions(example_BUD, valid_BU) or []
        dense_terms = [_dense(bias) for bias in biases] or [None]
    terms = [None if term is None or term.shape[-1] != num_units else term for term in dense_terms]
    return terms * len(encoder.trunk.layers) if len(terms) == 1 else terms


def _dense(bias: LayerBias) -> Tensor | None:
    try:
        term = bias.dense(ALL_HEADS)
    except NotImplementedError:  # raised by a bias that depends on the queries
        return None
    return term if term.dim() == 3 else None


class TextUnits(NamedTuple):
    """The first `count` units of an input, which are real and not padding."""

    count: int
    # Unit of SEP; None if units are groups of characters, because SEP may share one with text.
    separator: int | None


class SeenLayer(NamedTuple):
    """The attention of one layer for one text.

    Values cover real queries and keys, or all keys if they mix units.
    """

    core: Any  # attention pattern
    heads: Heads
    units: TextUnits

    @property
    def keys_are_units(self) -> bool:
        """Whether each key is a unit.

        In some patterns, such as Linformer, keys mix all units and have no position.
        """
        num_units = self.heads.queries_BHQE.shape[2]
        return all(self.core.num_keys(number) == number for number in (num_units, num_units + 1))

    def weights(self) -> Tensor:
        """Return the attention weights, float [H, Q, K]. Each row sums to 1."""
        values_BHKE = self.heads.values_BHKE
        eye_KK = torch.eye(values_BHKE.shape[2], dtype=values_BHKE.dtype, device=values_BHKE.device)
        probe = self.heads._replace(
            values_BHKE=eye_KK.expand(*values_BHKE.shape[:2], -1, -1), offset_values=None
        )
        hook = contextlib.nullcontext()
        # Global units have a separate projection to values.
        if getattr(self.core, "separate", False):
            values_1KK = eye_KK.repeat(1, values_BHKE.shape[1])[None]
            hook = self.core.value.register_forward_hook(lambda *_: values_1KK)
        with hook:
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
def observed_layers(encoder: Encoder, see: See) -> Iterator[None]:
    """Call `see` with the number (from 0) and the `SeenLayer` of each layer of the trunk while one text is encoded.

    `see` must use its arguments before it returns, because the next layer may reuse their memory.
    """
    units: list[TextUnits] = []

    def after_down(module: nn.Module, inputs: Any, down: Downsampled) -> None:
        units[:] = [_units(inputs[1], down)]

    def before_core(number: int) -> Callable[[nn.Module, Any], None]:
        return lambda core, inputs: see(number, SeenLayer(core, inputs[0], units[0]))

    layers: list[Any] = list(encoder.trunk.layers)
    with contextlib.ExitStack() as hooks:
        hooks.enter_context(encoder.downsampler.register_forward_hook(after_down))
        for number, layer in enumerate(layers):
            hooks.enter_context(layer.core.register_forward_pre_hook(before_core(number)))
        yield


def _units(mask_BC: Tensor, down: Downsampled) -> TextUnits:
    """Return the real units: CLS, and units with a real character.

    `valid_BU` excludes one such unit of CANINE.
    """
    real_U = any_of_units(mask_BC, down.grouping, down.valid_BU.shape[1])[0]
    count = int(real_U.nonzero().max()) + 1
    if down.grouping.rate is not None:
        return TextUnits(count, None)
    # The last real symbol is SEP.
    last = int(mask_BC[0].nonzero().max())
    return TextUnits(count, int(down.grouping.unit_BC[0, last]))


MEASURES = ("distance", "strongest", "entropy", "itself", "cls", "sep")
FARTHEST = 32  # the last count of strongest keys is of this distance and larger ones


def measure(seen: SeenLayer) -> Tensor:
    """Return the sums of `MEASURES` over the real queries of one text, float64 [H, M + `FARTHEST` + 1].

    `distance` is the mean of |i - j| over the keys j of query i, weighted by attention, including CLS and
    SEP. `strongest` is |i - j| of the key with the largest weight; the last columns count its values.
    `entropy` is that of the weights, in bits. `itself`, `cls` and `sep` are the weights of these keys. If keys
    have no position, other values are nan and counts 0. `sep` is nan if no unit is SEP alone.
    """
    weights_HQK = seen.weights().double()
    entropy_H = -torch.special.xlogy(weights_HQK, weights_HQK).sum(dim=(1, 2)) / torch.log(torch.tensor(2.0))
    nothing_H = torch.full_like(entropy_H, torch.nan)
    if not seen.keys_are_units:
        means = (entropy_H if name == "entropy" else nothing_H for name in MEASURES)
        return torch.stack([*means, *[torch.zeros_like(entropy_H)] * (FARTHEST + 1)], dim=1)
    places_Q = torch.arange(weights_HQK.shape[1], device=weights_HQK.device)
    distance_QK = (places_Q[:, None] - places_Q).abs().double()
    strongest_HQ = (places_Q - weights_HQK.argmax(dim=2)).abs()
    separator = seen.units.separator
    columns = [
        (weights_HQK * distance_QK).sum(dim=(1, 2)),
        strongest_HQ.double().sum(dim=1),
        entropy_H,
        weights_HQK.diagonal(dim1=1, dim2=2).sum(dim=1),
        weights_HQK[..., 0].sum(dim=1),
        nothing_H if separator is None else weights_HQK[..., separator].sum(dim=1),
    ]
    counts_HD = nn.functional.one_hot(strongest_HQ.clamp(max=FARTHEST), FARTHEST + 1).sum(dim=1)
    return torch.cat([torch.stack(columns, dim=1), counts_HD.double()], dim=1)


def _sums(
    model: AnalysedModel, sampled: SampledTexts, measure: Callable[[SeenLayer], Tensor]
) -> tuple[list[Any], list[int]]:
    sums: list[Any] = [0.0] * len(model.encoder.trunk.layers)
    counts: list[int] = []

    def see(layer: int, seen: SeenLayer) -> None:
        sums[layer] = sums[layer] + measure(seen)
        if layer == 0:
            counts.append(seen.units.count)

    with observed_layers(model.encoder, see):
        for text in sampled.texts:
            model.read(text)
    return sums, counts


@default_settings()
def attention_distances(model: AnalysedModel, sampled: SampledTexts) -> dict[str, Any]:
    """Return what each head of the trunk attends to, over all real queries of all texts.

    `rows` has one row per head, with the means of `measure`. `strongest_counts` are the numbers of queries
    whose strongest key is 0, 1, ... and at least `FARTHEST` units away. An undefined value is None.
    `uniform_distance` is the distance of a head with equal weights.
    """
    sums, counts = _sums(model, sampled, measure)
    queries = sum(counts)
    return {
        "analysis": "attention",
        **model.record(),
        "attention": model.encoder.config.trunk.attention.name,
        "texts": len(counts),
        "cut": sampled.num_cut,
        "units": queries / len(counts),
        "uniform_distance": sum((count**2 - 1) / 3 for count in counts) / queries,
        "rows": [
            {"layer": layer, "head": head}
            | {name: none_if_nan(total / queries) for name, total in zip(MEASURES, totals, strict=False)}
            | {"strongest_counts": [int(total) for total in totals[len(MEASURES) :]]}
            for layer, sums_HM in enumerate(sums, 1)
            for head, totals in enumerate(sums_HM.tolist(), 1)
        ],
    }


def ranks_of(matrices_HQK: Tensor) -> Tensor:
    """Return the numerical rank of each matrix, float64 [H]; nan if it has nan.

    It counts singular values above the largest times the longer side times the precision of float32.
    """
    missing_H = matrices_HQK.isnan().any(dim=2).any(dim=1)
    filled_HQK = torch.where(missing_H[:, None, None], 0, matrices_HQK.double())
    ranks_H = torch.linalg.matrix_rank(
        filled_HQK, rtol=max(filled_HQK.shape[1:]) * torch.finfo(torch.float32).eps
    )
    return torch.where(missing_H, torch.nan, ranks_H.double())


@default_settings()
def attention_ranks(model: AnalysedModel, sampled: SampledTexts) -> dict[str, Any]:
    """Return the ranks of the logits of each head of the trunk, and how far its position term depends on i - j.

    Logits cover all pairs of real units, even if the pattern uses fewer. `rows` has one row per head, with
    the mean ranks of the content logits and of all logits. For the position term and the number of units in
    training, it has the rank and `toeplitz_share`. A missing value is None.
    """

    def both_ranks(seen: SeenLayer) -> Tensor:
        content, bias = seen.content(), seen.bias()
        of_content = ranks_of(content)
        return torch.stack([of_content, of_content if bias is None else ranks_of(content + bias)], dim=1)

    encoder, (sums, counts) = model.encoder, _sums(model, sampled, both_ranks)
    # Units of the longest input in training.
    num_units = encoder.downsampler.num_units(model.reader.length)
    rows = []
    for layer, term_HUU in enumerate(position_terms(encoder, num_units)):
        ranks = None if term_HUU is None else ranks_of(term_HUU).tolist()
        for head, (of_content, of_all) in enumerate((sums[layer] / len(counts)).tolist()):
            rows.append({
                "layer": layer + 1, "head": head + 1,
                "rank_content": none_if_nan(of_content), "rank": none_if_nan(of_all),
                "rank_positions": None if ranks is None else ranks[head],
                "toeplitz": None if term_HUU is None else none_if_nan(toeplitz_share(term_HUU[head])),
            })  # fmt: skip
    return {
        "analysis": "ranks",
        **model.record(),
        "attention": encoder.config.trunk.attention.name,
        "positions": encoder.config.trunk.positions.name,
        "texts": len(counts),
        "cut": sampled.num_cut,
        "units": sum(counts) / len(counts),
        "units_of_positions": num_units,
        "rows": rows,
    }
