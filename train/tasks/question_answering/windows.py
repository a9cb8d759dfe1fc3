"""Windows: what a model reads at once of a question and a text that may be longer, and what it is to find there.

A window is [CLS] question [SEP] part of the text [SEP], in segments 0 and 1, padded to a fixed length (spec: canine,
section 6.1). Positions of answers are those of the window, the last one included.

W windows, L length
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.framing import CLS, SEP
from tokenfree.train.tasks.question_answering.readable import Readable

UNKNOWN, YES, NO, MINIMAL, PASSAGE = range(5)  # types of answers, in the order of CANINE's code
ANSWER_TYPES = ("unknown", "yes", "no", "minimal", "passage")


class Target(NamedTuple):
    """The answer that is learned: its type, and its characters in the text that is read."""

    kind: int
    characters: range


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """A part of a text, beside the question.

    Attributes:
        question: codepoints, int64 [n], with the marker if there is one.
        text: what is read.
        part: which of its characters.
        first: the first position of the answer; 0, that of CLS, for none.
        last: the last one.
        kind: the type of the answer, `UNKNOWN` for none.
    """

    question: np.ndarray
    text: Readable
    part: range
    first: int = 0
    last: int = 0
    kind: int = UNKNOWN

    @property
    def offset(self) -> int:
        """The position of the first character of the part."""
        return len(self.question) + 2


class WindowArrays(NamedTuple):
    """Windows side by side.

    Attributes:
        codepoints: int64 [W, L].
        mask: bool [W, L], true for all but padding.
        segments: int64 [W, L]: 0 up to the first SEP, 1 up to the second, then 0.
        question: bool [W, L]: CLS, the question and its SEP, which patterns with global positions let all see.
        readable: bool [W, L]: characters of the original, of which answers are made.
    """

    codepoints: np.ndarray
    mask: np.ndarray
    segments: np.ndarray
    question: np.ndarray
    readable: np.ndarray


@dataclasses.dataclass(frozen=True)
class WindowCutter:
    """Cuts texts into windows.

    Attributes:
        length: positions of a window.
        max_question: characters of a question that are read, its last ones.
        stride: characters from one window's begin to that of the next.
        marker: a codepoint before the question; None: there is none.
    """

    length: int
    max_question: int = 256
    stride: int = 512
    marker: int | None = None

    def __post_init__(self) -> None:
        least = self.max_question + 4 + (self.marker is not None)  # CLS, two SEP and one character of the text
        if self.length < least:
            raise UserError(
                f"length: windows of {self.length} positions leave no room for the text beside questions of "
                f"{self.max_question} characters; make it at least {least}"
            )

    def question(self, codepoints: np.ndarray) -> np.ndarray:
        """What is read of a question: its marker and its last characters."""
        kept = codepoints[max(0, len(codepoints) - self.max_question) :]
        return kept if self.marker is None else np.concatenate([[self.marker], kept])

    def cut(self, question: np.ndarray, text: Readable) -> list[Window]:
        """The windows of a text, from left to right; the last one ends where the text does. None of an empty text."""
        question = self.question(question)
        capacity = self.length - len(question) - 3
        num_after_first = -(-max(0, len(text) - capacity) // min(capacity, self.stride))
        starts = range(0, len(text) and 1 + num_after_first * min(capacity, self.stride), min(capacity, self.stride))
        return [Window(question, text, range(start, min(start + capacity, len(text)))) for start in starts]


def with_targets(
    windows: Sequence[Window], target: Target | None, *, share_of_others: float, seed: int, sample: int
) -> list[Window]:
    """The windows to learn from: those that hold the whole answer, and by chance a share of the others.

    Args:
        target: the answer; None for a question without one.
        share_of_others: the probability with which a window without the answer is kept; it then answers nothing.
        seed: of the draws.
        sample: number of the question, on which the draws depend too.
    """
    draws = random.uniform(seed, "windows without the answer", np.array([sample]), max(1, len(windows)))[0]
    found = []
    for window, draw in zip(windows, draws.tolist(), strict=False):
        if target is not None and window.part.start <= target.characters[0] <= target.characters[-1] < window.part.stop:
            shift = window.offset - window.part.start
            first, last = target.characters[0] + shift, target.characters[-1] + shift
            found.append(dataclasses.replace(window, first=first, last=last, kind=target.kind))
        elif draw < share_of_others:
            found.append(window)
    return found


def frame_windows(windows: Sequence[Window], length: int) -> WindowArrays:
    """The arrays of some windows, padded to `length` positions."""
    shape = (len(windows), length)
    codepoints, segments = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    mask, question, readable = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    codepoints[:, 0] = CLS
    for row, window in enumerate(windows):
        part, begin = slice(window.part.start, window.part.stop), window.offset
        end = begin + len(window.part)
        codepoints[row, 1 : begin - 1] = window.question
        codepoints[row, [begin - 1, end]] = SEP
        codepoints[row, begin:end] = window.text.codepoints[part]
        mask[row, : end + 1] = True
        segments[row, begin : end + 1] = 1
        question[row, :begin] = True
        readable[row, begin:end] = window.text.starts[part] >= 0
    return WindowArrays(codepoints, mask, segments, question, readable)
