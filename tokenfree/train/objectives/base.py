"""Interfaces of the objectives, and what several share: a softmax over masked positions, next-sentence prediction.

A collator turns rows into arrays, and a head turns arrays into a loss.

B batch, C characters, P targets, N real targets, D width
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.base import MASKED, WORD_START, Collator, Selection, Symbols, predictable, select
from tokenfree.train.model.common.basic import (
    Cost,
    Dense,
    count_parameters,
    draws_here,
    initialise,
    layer_norm,
    linear,
)
from tokenfree.train.model.encoder import ModelConfig


class Loss(NamedTuple):
    """Sums over the targets of a batch.

    The loop divides them by the number of targets of the whole global batch.
    """

    total: Tensor  # float32 scalar, nats
    num_targets: Tensor  # int64 scalar
    num_correct: Tensor  # int64 scalar: the right answer had the highest logit
    means: Mapping[str, tuple[Tensor, Tensor]] = {}  # further metrics by name: sum and count
    auxiliary: Tensor | None = None  # float32 scalar that training adds to `total`, nats


class Head(nn.Module):
    """Base class of the module that is trained together with the encoder: `head(encoder, batch) -> Loss`."""

    means: tuple[str, ...] = ()  # names in each `Loss.means` of this head

    def add_neighbours(self, neighbours: nn.Module | None, /) -> None:
        """Let the head add the scores of `model.neighbours`, for objectives that take them."""
        self.neighbours = neighbours

    def target_logits(self, encoder: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        raise NotImplementedError

    def learn(self, pieces: Sequence[str], counts_V: np.ndarray | None) -> None:
        """Initialise the output layer from the data before training.

        `pieces` are the subwords of the vocabulary; it is empty without one. `counts_V`, int64 [V], is the
        number of times that each class occurs in the training split. If it is None, the bias starts at zero.
        """
        if counts_V is not None:
            bias = self.get_parameter("output.bias")
            shares_V = torch.from_numpy((counts_V + 1) / (counts_V.sum() + len(counts_V)))
            bias.data.copy_(shares_V.log())

    def multiply_accumulates(self) -> int:
        """Return the multiply-accumulates of the forward pass for one target, without the next-sentence matrix."""
        named = self.named_parameters()
        return sum(
            parameter.numel()
            for name, parameter in named
            if parameter.ndim == 2 and not name.startswith(("next_sentence.", "neighbours.rows."))
        )


class Objective(ABC):
    """Base class of an objective's settings: the `Config` of each file in this package."""

    name: str
    max_predictions: int  # maximum number of targets of an example
    # Examples have two parts, and the head predicts if the second follows the first.
    next_sentence: bool = False
    gives_words = False  # the units of the encoder are the words of `tokenfree.preprocess.text.words`
    takes_neighbours = False  # its head adds the scores of `model.neighbours`

    @abstractmethod
    def build(self, width: int, vocabulary_size: int) -> Head:
        """Return the head for an encoder of `width` and a vocabulary of `vocabulary_size` subwords."""

    def vocabulary_size(self, model: ModelConfig) -> int | None:
        """Return the number of subwords that `model` is made for; 0: it needs no vocabulary, None: any number."""
        return None

    @abstractmethod
    def collator(self, vocabulary: Vocabulary | None, length: int, seed: int) -> Collator:
        """Return the collator for inputs of `length` positions. Its random draws depend on `seed`."""

    @abstractmethod
    def check(self, model: ModelConfig, vocabulary: Vocabulary | None) -> list[str]:
        """Return the reasons why `model` does not fit this objective and vocabulary, one line each."""

    @abstractmethod
    def symbols(self, vocabulary: Vocabulary | None) -> Symbols | None:
        """Return the symbols that can be targets, for the context-free baselines; None if there are no baselines."""

    def for_validation(self) -> Self:
        """Return the objective that held-out targets are chosen by."""
        return self


@settings
class MaskedObjective(Objective):
    """An objective that hides a share of the symbols.

    Attributes:
        mask_fraction: share of the symbols that are selected as targets, above 0 to 1; of the words, in
            objectives that mask words.
        validation_mask_fraction: mask fraction of validation, so that runs with other mask fractions remain
            comparable; null: `mask_fraction`.
        output_bias: initial bias of a class in the output layer. `zeros`: as in the papers; `frequencies`:
            the logarithm of its share of the training split.
    """

    mask_fraction: Annotated[float, Field(gt=0, le=1)] = 0.15
    validation_mask_fraction: Annotated[float, Field(gt=0, le=1)] | None = 0.15
    output_bias: Literal["zeros", "frequencies"] = "zeros"

    def for_validation(self) -> Self:
        if self.validation_mask_fraction is None:
            return self
        return dataclasses.replace(self, mask_fraction=self.validation_mask_fraction)


class MaskingCollator(Collator):
    """A collator that selects targets by the settings of a `MaskedObjective`. Its draws depend on `seed`."""

    # Whether batches have features for `model.neighbours`.
    reads_ngrams = False
    # Whether batches name the subwords beside their targets, if the objective can.
    names_neighbours = False

    def __init__(self, config: Any, length: int, seed: int) -> None:
        self.length, self._config, self._seed = length, config, seed

    def select(
        self, counts: np.ndarray, usable: np.ndarray, sample_ids: np.ndarray, max_selected: int | None = None
    ) -> Selection:
        """Select `mask_fraction` of the usable items of each row, by default at most `max_predictions`."""
        fraction, limit = self._config.mask_fraction, max_selected or self._config.max_predictions
        return select(
            counts, usable, fraction=fraction, max_selected=limit, seed=self._seed, sample_ids=sample_ids
        )


def head_cost(objective: Objective, model: ModelConfig, num_targets: int) -> Cost | None:
    """Return the cost of the objective's head for an example; None if it depends on the data's vocabulary."""
    size = objective.vocabulary_size(model)
    if size is None:
        return None
    with torch.device("meta"):
        head = objective.build(model.width, size)
        if objective.takes_neighbours:
            head.add_neighbours(model.neighbours.build(size))
    multiply_accumulates = num_targets * head.multiply_accumulates()
    return Cost(
        "head of the objective", (num_targets, model.width), count_parameters(head), multiply_accumulates
    )


def check_symbols(objective: str, model: ModelConfig, symbols: str, *, instead: str) -> list[str]:
    """Return a problem if the embedder does not read `symbols`, else [].

    `instead` names an embedder that does.
    """
    actual = model.embedder.symbols
    if actual == symbols:
        return []
    return [
        f"model.embedder.name: {model.embedder.name} reads {actual}, but objective.name: {objective} gives it "
        f"{symbols}; set model.embedder.name to {instead}, or choose another objective"
    ]


# Row of features that no other subword has: always zero.
_NONE = 0
NUM_FEATURES = 9


class SpelledLinear(nn.Module):
    """A linear layer over V subwords whose rows are sums of a free row and `NUM_FEATURES` shared rows.

    Subwords share rows by length and word start, by their first and last one to three letters, by their
    lower-cased form and by their kind of characters. `learn` assigns the rows, and checkpoints store them.
    """

    index_VF: Tensor

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.free = nn.Embedding(size, width)
        self.shared = nn.Embedding(max(size, 1), width, padding_idx=_NONE)
        self.bias = nn.Parameter(torch.zeros(size))
        self.register_buffer("index_VF", torch.zeros(size, NUM_FEATURES, dtype=torch.int64))

    @torch.no_grad()
    def learn(self, pieces: Sequence[str]) -> None:
        self.index_VF.copy_(shared_rows(pieces, self.shared.num_embeddings))
        self.shared.weight[_NONE] = 0

    def weight(self) -> Tensor:
        return self.free.weight + nn.functional.embedding_bag(
            self.index_VF, self.shared.weight, mode="sum", padding_idx=_NONE
        )

    def forward(self, h: Tensor) -> Tensor:
        return linear(h, self.weight(), self.bias)


def shared_rows(pieces: Sequence[str], num_rows: int) -> Tensor:
    """Return the shared row of each feature of each piece, int64 [V, F].

    The features that most pieces have get a row each. Features of a single piece, features beyond `num_rows`
    and pieces that are never predicted have row 0.
    """
    is_target = predictable(pieces)
    features = [
        list(_features(piece)) if usable else [] for piece, usable in zip(pieces, is_target, strict=True)
    ]
    counts = Counter(feature for of_piece in features for feature in of_piece)
    shared = [feature for feature, count in counts.most_common() if count > 1][: num_rows - 1]
    row_of = {feature: row for row, feature in enumerate(shared, 1)}
    index = torch.full((len(pieces), NUM_FEATURES), _NONE, dtype=torch.int64)
    for number, of_piece in enumerate(features):
        if of_piece:
            index[number] = torch.tensor([row_of.get(feature, _NONE) for feature in of_piece])
    return index


def _features(piece: str) -> Iterator[tuple[str, object]]:
    text = piece.strip(WORD_START)
    yield "length", (len(text), piece.startswith(WORD_START))
    for count in (1, 2, 3):
        yield f"first {count}", text[:count] if len(text) >= count else None
        yield f"last {count}", text[-count:] if len(text) >= count else None
    yield "lower case", text.lower()
    yield "kind", _kind(text)


def _kind(text: str) -> str:
    if text.isalpha():
        return (
            "lower"
            if text.islower()
            else "upper"
            if text.isupper()
            else "title"
            if text.istitle()
            else "letters"
        )
    return "digits" if text.isdigit() else "mixed" if any(map(str.isalnum, text)) else "signs"


BITS = "bits_per_character"
MASKED_ONLY_MEANS = ("masked_only_loss", "masked_only_accuracy")
_NO_TARGET = -100
PAIR_MEANS = ("masked_loss", "next_sentence_loss", "next_sentence_accuracy")


def encode(encoder: nn.Module, batch: Mapping[str, Tensor]) -> Any:
    """Return the encoder's output for a batch, an `EncoderOutput`, at the target positions only: [B, P, D]."""
    names = {"segments_BC": "segments", "unit_ends_BU": "unit_ends"}
    optional = {name: batch[column] for name, column in names.items() if column in batch}
    return encoder(batch["codepoints"], batch["mask"], targets_BP=batch["target_positions"], **optional)


def without_empty_columns(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return the batch without the last `target_...` columns that no row uses.

    A GPU would have to wait for the count. Windows of 240 characters use 17 of 80 columns. The final layer
    over all takes 7% of a step of canine-fast-tiny.
    """
    if not draws_here(batch["target_mask"]):
        return batch
    num_columns = max(int(batch["target_mask"].any(dim=0).sum()), 1)
    return {
        name: values[:, :num_columns] if name.startswith("target_") else values
        for name, values in batch.items()
    }


def real_only(h_BPD: Tensor, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the vectors and the arrays [B, P] that `score` reads, on the CPU without rows that have no target."""
    targets = {name: batch[name] for name in ("target_ids", "target_mask", "target_kinds")}
    real_BP = targets["target_mask"]
    if not draws_here(h_BPD):
        return h_BPD, targets
    return h_BPD[real_BP], {name: values[real_BP] for name, values in targets.items()}


def score(logits: Tensor, targets: Mapping[str, Tensor], *, bits: bool) -> Loss:
    """Return the cross-entropy of logits [..., V] in nats for all and for hidden targets, with `bits` per character."""
    real = targets["target_mask"].flatten()
    gold = targets["target_ids"].flatten().masked_fill(~real, _NO_TARGET)
    logits = logits.flatten(end_dim=-2).float()
    scores = nn.functional.log_softmax(logits, dim=-1)
    total = nn.functional.nll_loss(scores, gold, ignore_index=_NO_TARGET, reduction="sum")
    correct = logits.detach().argmax(-1) == gold
    hidden = real & (targets["target_kinds"].flatten() == MASKED)
    num_targets, num_hidden = real.sum(), hidden.sum()
    right = scores.detach().gather(-1, gold.clamp(min=0)[:, None])[:, 0]
    of_hidden = (-(right * hidden).sum(), (correct & hidden).sum())
    means = {BITS: (total / math.log(2), num_targets)} if bits else {}
    means |= {name: (value, num_hidden) for name, value in zip(MASKED_ONLY_MEANS, of_hidden, strict=True)}
    return Loss(total, num_targets, correct.sum(), means)


class NextSentence(nn.Module):
    """A classifier of the pooled vector: does the second part of an example follow the first in its document? (BERT)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.output = nn.Linear(width, 2)

    def forward(self, masked: Loss, pooled_BD: Tensor, batch: Mapping[str, Tensor]) -> Loss:
        """Return the sum of the masked loss and this one, from pooled vectors [B, D] and the batch's `from_elsewhere`.

        The aim is the sum of the mean over targets and the mean over examples. But a `Loss` is a sum over the
        targets of any part of a global batch. So the loss of an example counts once for each of its targets,
        however the batch is divided.
        """
        logits, gold_B = self.output(pooled_BD).float(), batch["from_elsewhere"]
        loss_B = nn.functional.cross_entropy(logits, gold_B, reduction="none")
        total = masked.total + (loss_B * batch["target_mask"].sum(dim=1)).sum()
        count = loss_B.new_tensor(len(loss_B))
        values = (loss_B.sum(), (logits.argmax(-1) == gold_B).sum())
        apart = ((masked.total, masked.num_targets), *((value, count) for value in values))
        means = {**masked.means, **dict(zip(PAIR_MEANS, apart, strict=True))}
        return Loss(total, masked.num_targets, masked.num_correct, means)


@settings
class SubwordOutput(MaskedObjective):
    """An objective with an output layer over subwords.

    Attributes:
        output_rows: rows of the output layer. `free`: one row per subword, as in the papers; `spelled`: with
            additional rows that subwords of similar spelling share.
    """

    output_rows: Literal["free", "spelled"] = "free"


class MaskedHead(Head):
    """BERT's head (Devlin et al. 2019): dense, GELU, LayerNorm, and a softmax over `size` classes.

    If `spelled`, subwords of similar spelling share output rows. If `tied`, the output layer is the first
    `size` rows of the embedder's table, with a separate bias. If `bits`, targets are characters, and the loss
    has bits per character.
    """

    def __init__(
        self,
        width: int,
        size: int,
        *,
        spelled: bool = False,
        tied: bool = False,
        bits: bool = False,
        next_sentence: bool = False,
        mask_fraction: float = 1.0,
    ) -> None:
        super().__init__()
        self.dense = Dense(width, width)
        self.norm = layer_norm(width)
        self.output = None if tied else SpelledLinear(width, size) if spelled else Dense(width, size)
        self.output_bias = nn.Parameter(torch.zeros(size)) if tied else None
        self.next_sentence = NextSentence(width) if next_sentence else None
        self.bits, self.mask_fraction = bits, mask_fraction
        self.neighbours: nn.Module | None = None
        self.means = ((BITS,) if bits else ()) + MASKED_ONLY_MEANS + (PAIR_MEANS if next_sentence else ())
        self.apply(initialise)

    def forward(self, encoder: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        batch = without_empty_columns(batch)
        out = encode(encoder, batch)
        h, targets = real_only(out.characters, batch)
        logits = self.logits(encoder, h)
        if self.neighbours is not None:
            return self._with_neighbours(logits, targets, batch)
        masked = score(logits, targets, bits=self.bits)
        return masked if self.next_sentence is None else self.next_sentence(masked, out.pooled, batch)

    def _with_neighbours(
        self, logits: Tensor, targets: Mapping[str, Tensor], batch: Mapping[str, Tensor]
    ) -> Loss:
        """Add the scores of the path to the logits; in training, also the path's loss on all subwords of the windows.

        That loss weighs as much as if its targets were as many as the encoder's.
        """
        assert self.neighbours is not None, "the caller checked"
        assert self.output is not None, "only tied heads have none, and those take no path"
        ngrams = batch["target_ngrams"]
        ngrams = ngrams[batch["target_mask"]] if logits.dim() == 2 else ngrams
        loss = score(logits + self.neighbours(ngrams), targets, bits=self.bits)
        if not self.training:
            return loss
        gold_BS = batch["path_ids"].masked_fill(~batch["path_mask"], _NO_TARGET)
        ngrams = batch["path_ngrams"]
        if draws_here(ngrams):
            ngrams, gold_BS = ngrams[batch["path_mask"]], gold_BS[batch["path_mask"]]
        alone = (self.neighbours(ngrams) + self.output.bias).flatten(end_dim=-2).float()
        of_path = nn.functional.cross_entropy(
            alone, gold_BS.flatten(), ignore_index=_NO_TARGET, reduction="sum"
        )
        return loss._replace(auxiliary=of_path * self.mask_fraction)

    def add_neighbours(self, neighbours: nn.Module | None, /) -> None:
        super().add_neighbours(neighbours)
        # With a path, the encoder's share starts at zero.
        if neighbours is not None and self.output is not None:
            for name, parameter in self.output.named_parameters():
                if name != "bias":
                    nn.init.zeros_(parameter)

    def target_logits(self, encoder: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        logits = self.logits(encoder, encode(encoder, batch).characters[batch["target_mask"]])
        if self.neighbours is None:
            return logits
        return logits + self.neighbours(batch["target_ngrams"][batch["target_mask"]])

    def learn(self, pieces: Sequence[str], counts_V: np.ndarray | None) -> None:
        if isinstance(self.output, SpelledLinear):
            self.output.learn(pieces)
        super().learn(pieces, counts_V)

    def logits(self, encoder: nn.Module, h_BPD: Tensor) -> Tensor:
        h_BPD = self.norm(nn.functional.gelu(self.dense(h_BPD), approximate="tanh"))
        if self.output is not None:
            return self.output(h_BPD)
        assert self.output_bias is not None
        # Look the table up in every step: sharded training gathers the whole table only for the duration of a
        # pass.
        embedder: Any = encoder.embedder
        return linear(h_BPD, embedder.table.rows.weight[: len(self.output_bias)], self.output_bias)

    def multiply_accumulates(self) -> int:
        """Return the number for one target, with the product with a tied table but without sums of spelled rows."""
        tied = 0 if self.output_bias is None else self.dense.in_features * len(self.output_bias)
        shared = self.output.shared.weight.numel() if isinstance(self.output, SpelledLinear) else 0
        return super().multiply_accumulates() + tied - shared
