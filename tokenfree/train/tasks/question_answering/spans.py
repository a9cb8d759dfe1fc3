"""From logits to answers: the best span of each window, and of the windows of a text the best one.

W windows, P vectors of a window, K candidates
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tokenfree.train.tasks.question_answering.tydi_files import Span


class SpanAnswer(NamedTuple):
    """A span of the original and how sure the model is of it."""

    span: Span  # bytes
    score: float  # start and end logit, less those of CLS: above 0 where the model prefers the span to no answer


@dataclasses.dataclass(frozen=True)
class SpanDecoder:
    """CANINE's decoding for TyDi QA (spec: canine, section 6.1).

    Attributes:
        candidates: how many of the best starts, and of the best ends, are combined.
        max_answer: the most vectors of an answer.
    """

    candidates: int = 30
    max_answer: int = 100

    def best(
        self, start_WP: np.ndarray, end_WP: np.ndarray, readable_WP: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The score, float64 [W], of the best span of each window, its first and its last vector, int64 [W].

        Candidates are the best positions but that of CLS, whatever stands there. They make an answer where both are of
        the original, the end is not before the start, and no more than `max_answer` lie from one to the other. Of
        equals, the one with the better start, then the better end is taken, then the first. Where the candidates make
        no answer, the score is -inf.

        Args:
            start_WP: logits, float; of starts.
            end_WP: logits, float; of ends.
            readable_WP: bool; vectors of the original.
        """
        start_WP, end_WP = start_WP.astype(np.float64), end_WP.astype(np.float64)
        start_WK, end_WK = self._candidates(start_WP), self._candidates(end_WP)
        none_W = start_WP[:, 0] + end_WP[:, 0]
        score_WKK = _take(start_WP, start_WK)[:, :, None] + _take(end_WP, end_WK)[:, None, :] - none_W[:, None, None]
        length_WKK = end_WK[:, None, :] - start_WK[:, :, None] + 1
        answer_WKK = (length_WKK >= 1) & (length_WKK <= self.max_answer)
        answer_WKK &= _take(readable_WP, start_WK)[:, :, None] & _take(readable_WP, end_WK)[:, None, :]
        score_WKK[~answer_WKK] = -np.inf
        rows, scores_WN = np.arange(len(start_WK)), score_WKK.reshape(len(start_WK), -1)
        best_W = scores_WN.argmax(axis=1)
        start_W, end_W = np.divmod(best_W, start_WK.shape[1])
        return scores_WN[rows, best_W], start_WK[rows, start_W], end_WK[rows, end_W]

    def _candidates(self, logits_WP: np.ndarray) -> np.ndarray:
        """The positions of the best logits but the first, best first, of equals the first first; int64 [W, K]."""
        return np.argsort(-logits_WP[:, 1:], axis=1, kind="stable")[:, : self.candidates] + 1


def best_of_windows(answers: Iterable[SpanAnswer]) -> SpanAnswer | None:
    """The best answer of the windows of a text, the first of equals; None where none has one, by its score."""
    best = max(answers, key=lambda answer: answer.score, default=None)
    return best if best is not None and np.isfinite(best.score) else None


def _take(values_WP: np.ndarray, positions_WK: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values_WP, positions_WK, axis=1)
