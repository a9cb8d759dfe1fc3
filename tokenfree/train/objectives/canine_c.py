"""CANINE-C: predict the characters of masked words one by one in a shuffled order (arXiv 2103.06874, section 3.2).

B batch, P targets, D width
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.settings import NonNegative, Positive, settings
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.preprocess.text.specials import BOS, MASK
from tokenfree.train.batches.base import (
    Arrays,
    Collator,
    Rows,
    Symbols,
    character_capacity,
    character_symbols,
    frame_whole_words,
    in_random_order,
    ragged_range,
    target_kinds,
)
from tokenfree.train.batches.next_sentence import PairCollator
from tokenfree.train.model.attention.causal import CausalCore
from tokenfree.train.model.common.basic import Dense, Dimensions, initialise, layer_norm
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.model.layers.bert import BertLayer
from tokenfree.train.objectives.base import (
    BITS,
    MASKED_ONLY_MEANS,
    PAIR_MEANS,
    Head,
    Loss,
    MaskedObjective,
    MaskingCollator,
    NextSentence,
    check_symbols,
    encode,
    real_only,
    score,
    without_empty_columns,
)


@settings
class Config(MaskedObjective):
    """CANINE-C's loss (Clark et al., arXiv 2103.06874, section 3.2): predict the characters of masked words one by one
    in a shuffled order.

    Attributes:
        max_predictions: maximum number of predicted characters of an example, 1 to 65536.
        masked: share of the selected words that are hidden, above 0 to 1; the others stay visible. The paper
            hides all according to its text, and 0.9 according to its figure on data preparation.
        max_word: maximum number of characters of a word. Longer runs are cut, so that text without spaces is
            not masked by the page.
        buckets: number of classes, 1 to 0x110000. The class of a character is its codepoint modulo this.
        heads: attention heads of the layer over the predictions; must divide `model.width`.
        dropout: dropout rate of the layer over the predictions, 0 to below 1.
        spare: positions always left as padding, so that more padding never changes an output; 0: none.
        next_sentence: split examples into two parts, and also predict whether the second part follows the
            first.
    """

    name: Literal["canine_c"] = "canine_c"
    max_predictions: Annotated[int, Field(ge=1, le=65536)] = 320
    masked: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_word: Positive = 32
    buckets: Annotated[int, Field(ge=1, le=0x110000)] = 16384
    heads: Positive = 12
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    spare: NonNegative = 6
    next_sentence: bool = False

    def build(self, width: int, vocabulary_size: int) -> "CanineC":
        return CanineC(self, width)

    def vocabulary_size(self, model: ModelConfig) -> int | None:
        return 0

    def collator(self, vocabulary: Vocabulary | None, length: int, seed: int) -> Collator:
        room = character_capacity(length, self.spare)
        single = CanineCCollator(self, length, seed)
        return PairCollator(single, room, seed) if self.next_sentence else single

    def check(self, model: ModelConfig, vocabulary: Vocabulary | None) -> list[str]:
        problems = check_symbols(self.name, model, "characters", instead="codepoint_hash")
        if model.width % self.heads:
            problems.append(f"objective.heads: {self.heads} does not divide model.width, {model.width}")
        if model.dimensions.character_width != model.width:
            problems.append(
                f"model.character_width: objective.name: {self.name} joins embeddings to vectors of model.width, "
                f"{model.width}; leave it out or choose another objective"
            )
        return problems

    def symbols(self, vocabulary: Vocabulary | None) -> Symbols | None:
        return character_symbols(self.buckets)


class CanineCCollator(MaskingCollator):
    """Collator from windows to masked inputs and the characters to predict, in the order of prediction.

    Words are runs without white space. `mask_fraction` of them are selected, rounded, at least one, until
    their characters would exceed `max_predictions`. In a share `masked` of them, all characters become MASK.
    All their characters are targets, in random order. `target_codepoints`, int64 [b, P], holds the
    characters, and `target_ids` their buckets.
    """

    columns = ("codepoints", "whitespace")

    def __call__(self, rows: Rows, sample_ids: np.ndarray) -> Arrays:
        config, max_targets = self._config, self._config.max_predictions
        window = frame_whole_words(
            rows, min(config.max_word, max_targets), config.spare, self.length, self._seed, sample_ids
        )
        codepoints, counts = window.codepoints, window.counts
        inside = (window.starts >= window.begin[window.of]) & (window.ends <= window.end[window.of])
        chosen = self.select(counts, inside, sample_ids, max_selected=max(int(counts.max(initial=0)), 1))
        size = (window.ends - window.starts)[chosen.items]
        # Cumulative number of characters in each row, in the order of the draws.
        of_rows = np.bincount(chosen.rows, weights=size, minlength=len(counts)).astype(np.int64)
        after = np.cumsum(size) - (np.cumsum(of_rows) - of_rows)[chosen.rows]
        chosen, size = chosen.only(after <= max_targets), size[after <= max_targets]
        first = window.starts[chosen.items] - window.begin[chosen.rows] + 1

        num_targets = np.bincount(chosen.rows, weights=size, minlength=len(counts)).astype(np.int64)
        target_mask = np.arange(max_targets) < num_targets[:, None]
        order = in_random_order(target_mask, "order of predictions", seed=self._seed, sample_ids=sample_ids)
        positions = np.zeros((len(counts), max_targets), dtype=np.int64)
        positions[target_mask] = ragged_range(first, size)
        positions = np.take_along_axis(positions, order, axis=1)
        gold = np.where(target_mask, np.take_along_axis(codepoints, positions, axis=1), 0)

        masked = chosen.uniform("action") < config.masked
        codepoints.reshape(-1)[ragged_range((first + chosen.rows * self.length)[masked], size[masked])] = MASK
        is_masked = np.take_along_axis(codepoints, positions, axis=1) == MASK
        return {
            "codepoints": codepoints,
            "mask": window.mask,
            "target_positions": positions,
            "target_codepoints": gold,
            "target_ids": gold % config.buckets,
            "target_mask": target_mask,
            "target_kinds": target_kinds(is_masked, ~is_masked) * target_mask,
            "num_characters": window.end - window.begin,
        }


class CanineC(Head):
    """A causal layer over the predictions in their order.

    Each prediction sees the characters of earlier ones. Row s combines the encoder's vector at the
    character's own position with the embedding (including position and segment) of the character predicted
    before it. The first row has BOS instead. So no row contains its own character.
    """

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        dimensions = Dimensions(width, config.heads, 4 * width, config.dropout, "gelu_tanh")
        self.dense = Dense(2 * width, width)
        self.norm = layer_norm(width)
        self.layer = BertLayer(dimensions, CausalCore(config.dropout))
        self.output = Dense(width, config.buckets)
        self.next_sentence = NextSentence(width) if config.next_sentence else None
        self.means = (BITS, *MASKED_ONLY_MEANS, *(PAIR_MEANS if config.next_sentence else ()))
        self.apply(initialise)

    def forward(self, encoder: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        batch = without_empty_columns(batch)
        out = encode(encoder, batch)
        h, targets = real_only(self.predict(encoder, out.characters, batch), batch)
        masked = score(self.output(h), targets, bits=True)
        return masked if self.next_sentence is None else self.next_sentence(masked, out.pooled, batch)

    def target_logits(self, encoder: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        h_BPD = self.predict(encoder, encode(encoder, batch).characters, batch)
        return self.output(h_BPD[batch["target_mask"]])

    def logits(self, encoder: nn.Module, h_BPD: Tensor) -> Tensor:
        """Return the logits [B, P, K] of characters, each as if it were the first one that is predicted."""
        h_N1D = h_BPD.flatten(0, 1)[:, None]
        zeros_N1 = torch.zeros(h_N1D.shape[:2], dtype=torch.int64, device=h_BPD.device)
        first = {"target_codepoints": zeros_N1, "target_positions": zeros_N1, "target_mask": zeros_N1 == 0}
        return self.output(self.predict(encoder, h_N1D, first)).reshape(*h_BPD.shape[:2], -1)

    def predict(self, encoder: nn.Module, characters_BPD: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the input of the output layer for each target, [B, P, D], from the encoder's vectors there.

        Row s is a causal layer over FFN([e(pi_s-1); y_seq(pi_s)]) (section 3.2), where pi is the order of the
        targets.
        """
        previous_BP = nn.functional.pad(batch["target_codepoints"][:, :-1], (1, 0), value=BOS)
        positions_BP = nn.functional.pad(batch["target_positions"][:, :-1], (1, 0))
        segments_BP = batch["segments"].gather(1, positions_BP) if "segments" in batch else None
        previous_BPD = encoder.embed_characters(previous_BP, positions_BP, segments_BP)  # pyright: ignore[reportCallIssue]
        joined_BPD = self.dense(torch.cat([previous_BPD, characters_BPD], dim=-1))
        x_BPD = self.norm(nn.functional.gelu(joined_BPD, approximate="tanh"))
        return self.layer(x_BPD, batch["target_mask"])
