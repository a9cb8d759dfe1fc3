"""DOWN of Byte2Word: a learned query pools the bytes of each word.

X rows of the byte table
"""

from typing import Literal

from torch import Tensor, nn

from tokenfree.core.settings import settings
from tokenfree.preprocess.text.words import MAX_WORD_BYTES
from tokenfree.train.model.common.basic import (
    Activation,
    Cost,
    Dense,
    Dimensions,
    FanInDense,
    TableRows,
    activate,
    as_rows,
    count_parameters,
    embedding,
)
from tokenfree.train.model.downsamplers.words import (
    WordDownsampler,
    WordOutput,
    WordsConfig,
    WordSpans,
    softmax_in_words,
    sum_over_words,
)
from tokenfree.train.model.embedders.word_bytes import NUM_BYTES


@settings
class Config(WordsConfig):
    """Word pooling of Byte2Word (Lee, Guo, Qiu, arXiv 2211.12677, section 3).

    e_i = softmax(Q_i K_i^T / sqrt(d)) V_i, then LN(FFN(e_i) + e_i + epos_i + etype_i) W_proj.

    Attributes:
        num_queries: 1: one query Q for all words; null: one query per word position.
        byte_positions: positions of bytes in their word. `none`: no positions, as in the paper, so that
            "listen" and "silent" are pooled to the same vector; `learned`: one table row per position.
    """

    name: Literal["word_pooling"] = "word_pooling"
    num_queries: Literal[1] | None = None
    byte_positions: Literal["none", "learned"] = "none"

    def build(self, dimensions: Dimensions) -> "WordPooling":
        return WordPooling(self, dimensions)


class WordPooling(WordDownsampler):
    """Cross-attention with one head from a query to the bytes of a word. Other words have no influence."""

    def __init__(self, config: Config, dimensions: Dimensions) -> None:
        super().__init__(config)
        width = dimensions.character_width
        self.activation: Activation = dimensions.activation
        self.queries = nn.Embedding(config.num_queries or config.max_words, width)
        self.key = FanInDense(width, width, bias=False)
        self.value = FanInDense(width, width, bias=False)
        self.byte_positions = (
            nn.Embedding(MAX_WORD_BYTES, width) if config.byte_positions == "learned" else None
        )
        self.inner = Dense(width, 4 * width)
        self.outer = Dense(4 * width, width)
        self.output = WordOutput(width, config.max_words, dimensions, place_std=0.8)

    def of_words(self, x: Tensor | TableRows, words: WordSpans) -> Tensor:
        rows = as_rows(x)
        pooled_BUD = self.pool(rows, words)
        pooled_BUD = pooled_BUD + self.outer(activate(self.inner(pooled_BUD), self.activation))
        return self.output(pooled_BUD, words, rows.segments_BC)

    def pool(self, rows: TableRows, words: WordSpans) -> Tensor:
        """Return e_i of each word, 0 for words without bytes.

        Keys and values are computed once per table row.
        """
        keys_BCD = embedding(rows.index_BC, self.key(rows.table_XD))
        values_BCD = embedding(rows.index_BC, self.value(rows.table_XD))
        if self.byte_positions is not None:
            positions_XD = self.byte_positions.weight
            keys_BCD = keys_BCD + nn.functional.embedding(words.position_BC, self.key(positions_XD))
            values_BCD = values_BCD + nn.functional.embedding(words.position_BC, self.value(positions_XD))
        queries = self.queries.weight
        queries_BCD = nn.functional.embedding(words.word_BC, queries) if len(queries) > 1 else queries
        logits_BC = (queries_BCD * keys_BCD).sum(dim=-1) * queries.shape[-1] ** -0.5
        return sum_over_words(softmax_in_words(logits_BC, words)[..., None] * values_BCD, words)

    def costs(self, length: int) -> list[Cost]:
        num_words, width = self.num_units(length), self.key.in_features
        byte_positions = [] if self.byte_positions is None else [self.byte_positions]
        num_rows = NUM_BYTES + (MAX_WORD_BYTES if byte_positions else 0)
        projected = count_parameters(self.key, self.value)
        return [
            Cost("byte keys + values", (num_rows, width), projected, num_rows * projected),
            *(
                Cost("byte positions", (length, width), count_parameters(table), 0)
                for table in byte_positions
            ),
            Cost(
                "word queries + mixing",
                (num_words, width),
                count_parameters(self.queries),
                2 * length * width,
            ),
            Cost(
                "word FFN",
                (num_words, width),
                count_parameters(self.inner, self.outer),
                8 * num_words * width**2,
            ),
            *self.output.costs(num_words),
        ]
