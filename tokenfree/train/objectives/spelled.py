"""Output rows shared by subwords of similar spelling: a rare subword learns from those spelled like it.

F features, R shared rows, V subwords, D width
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tokenfree.train.batches.subwords import predictable
from tokenfree.train.model.common.basic import linear

_SPACE = "\u2581"
_NONE = 0  # row of features that no other subword has: always zero
NUM_FEATURES = 9


class SpelledLinear(nn.Module):
    """A linear layer over V subwords whose rows are sums of a free row and `NUM_FEATURES` shared rows.

    Subwords share rows by length and word start, by their first and last one to three letters, by their lower-cased
    form and by their kind of characters. `learn` assigns the rows, and checkpoints store them.
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
        """Assign shared rows to `pieces`, the subwords of the vocabulary in the order of their ids."""
        self.index_VF.copy_(shared_rows(pieces, self.shared.num_embeddings))
        self.shared.weight[_NONE] = 0

    def weight(self) -> Tensor:
        return self.free.weight + functional.embedding_bag(
            self.index_VF, self.shared.weight, mode="sum", padding_idx=_NONE
        )

    def forward(self, h: Tensor) -> Tensor:
        return linear(h, self.weight(), self.bias)


def shared_rows(pieces: Sequence[str], num_rows: int) -> Tensor:
    """Return the shared row of each feature of each piece, int64 [V, F].

    The features that most pieces have get a row each. Features of a single piece, features beyond `num_rows` and pieces
    that are never predicted have row 0.
    """
    is_target = predictable(pieces)
    features = [list(_features(piece)) if usable else [] for piece, usable in zip(pieces, is_target, strict=True)]
    counts = Counter(feature for of_piece in features for feature in of_piece)
    shared = [feature for feature, count in counts.most_common() if count > 1][: num_rows - 1]
    row_of = {feature: row for row, feature in enumerate(shared, 1)}
    index = torch.full((len(pieces), NUM_FEATURES), _NONE, dtype=torch.int64)
    for number, of_piece in enumerate(features):
        if of_piece:
            index[number] = torch.tensor([row_of.get(feature, _NONE) for feature in of_piece])
    return index


def _features(piece: str) -> Iterator[tuple[str, object]]:
    text = piece.strip(_SPACE)
    yield "length", (len(text), piece.startswith(_SPACE))
    for count in (1, 2, 3):
        yield f"first {count}", text[:count] if len(text) >= count else None
        yield f"last {count}", text[-count:] if len(text) >= count else None
    yield "lower case", text.lower()
    yield "kind", _kind(text)


def _kind(text: str) -> str:
    if text.isalpha():
        return "lower" if text.islower() else "upper" if text.isupper() else "title" if text.istitle() else "letters"
    return "digits" if text.isdigit() else "mixed" if any(map(str.isalnum, text)) else "signs"
