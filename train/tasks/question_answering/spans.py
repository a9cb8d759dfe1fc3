"""From logits to answers: the best span of each window, and of the windows of a text the best one.

W windows, L length, K candidates
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tokenfree.train.tasks.question_answering.readable import Readable
from tokenfree.train.tasks.question_answering.windows import Window


@dataclasses.dataclass(frozen=True, slots=True)
class SpanAnswer:
    """A span of a text and how sure the model is of it.

    Attributes:
        characters: of the `Readable`.
        score: start and end logit, less those of CLS; above 0 where the model prefers the span to no answer.
    """

    characters: range
    score: float

    def bytes_of(self, text: Readable) -> tuple[int, int]:
        """Where it begins and ends in the original."""
        return int(text.starts[self.characters[0]]), int(text.ends[self.characters[-1]])


@dataclasses.dataclass(frozen=True)
class SpanDecoder:
    """CANINE's decoding for TyDi QA (spec: canine, section 6.1).

    Attributes:
        candidates: how many of the best starts, and of the best ends, are combined.
        max_answer: the most characters of an answer.
    """

    candidates: int = 30
    max_answer: int = 100

    def best(
        self, start_WL: np.ndarray, end_WL: np.ndarray, readable_WL: np.ndarray, windows: Sequence[Window]
    ) -> list[SpanAnswer | None]:
        """The best span of each window; None where the candidates make none.

        Candidates are the best positions but that of CLS, whatever stands there. They make an answer where both are
        characters of the original, the end is not before the start, and no more than `max_answer` lie from one to the
        other. Of equals, the one with the better start, then the better end is taken, then the first.

        Args:
            start_WL: logits, float; of starts.
            end_WL: logits, float; of ends.
            readable_WL: bool, of `frame_windows`.
            windows: of which the arrays are.
        """
        start_WL, end_WL = start_WL.astype(np.float64), end_WL.astype(np.float64)
        start_WK, end_WK = self._candidates(start_WL), self._candidates(end_WL)
        none_W = start_WL[:, 0] + end_WL[:, 0]
        score_WKK = _take(start_WL, start_WK)[:, :, None] + _take(end_WL, end_WK)[:, None, :] - none_W[:, None, None]
        length_WKK = end_WK[:, None, :] - start_WK[:, :, None] + 1
        answer_WKK = (length_WKK >= 1) & (length_WKK <= self.max_answer)
        answer_WKK &= _take(readable_WL, start_WK)[:, :, None] & _take(readable_WL, end_WK)[:, None, :]
        score_WKK[~answer_WKK] = -np.inf
        num_candidates = start_WK.shape[1]
        best_W = score_WKK.reshape(len(windows), -1).argmax(axis=1) if len(windows) else ()
        found: list[SpanAnswer | None] = []
        for row, (window, best) in enumerate(zip(windows, best_W, strict=True)):
            start, end = divmod(int(best), num_candidates)
            score = float(score_WKK[row, start, end])
            shift = window.part.start - window.offset
            characters = range(int(start_WK[row, start]) + shift, int(end_WK[row, end]) + shift + 1)
            found.append(SpanAnswer(characters, score) if np.isfinite(score) else None)
        return found

    def _candidates(self, logits_WL: np.ndarray) -> np.ndarray:
        """The positions of the best logits but the first, best first, of equals the first first; int64 [W, K]."""
        return np.argsort(-logits_WL[:, 1:], axis=1, kind="stable")[:, : self.candidates] + 1


def best_of_windows(answers: Sequence[SpanAnswer | None]) -> SpanAnswer | None:
    """The best answer of the windows of a text, the first of equals; None where none has one."""
    return max((answer for answer in answers if answer is not None), key=lambda answer: answer.score, default=None)


def _take(values_WL: np.ndarray, positions_WK: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values_WL, positions_WK, axis=1)
