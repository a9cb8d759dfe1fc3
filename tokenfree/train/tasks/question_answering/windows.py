"""Windows: what a model reads at once of a question and a text that may be longer, and what it is to find there.

A window is [CLS] question [SEP] part of the text [SEP], in segments 0 and 1. For models of characters it is that of
CANINE's code for TyDi QA, padded to a fixed length (spec: canine, section 6.1); others fill what room they have.
Positions of answers are those of vectors, the last one included.

W windows, L positions, P vectors of a window
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.collator import Arrays
from tokenfree.train.batches.framing import CLS, SEP
from tokenfree.train.tasks.inputs.text_inputs import TextInputs, TextSymbols, part_of
from tokenfree.train.tasks.question_answering.readable import (
    NOWHERE,
    QUESTION_MARKER,
    Passage,
    Readable,
    readable,
)

UNKNOWN, YES, NO, MINIMAL, PASSAGE = range(5)  # types of answers, in the order of CANINE's code
NUM_TYPES = 5


class AnswerTarget(NamedTuple):
    """The answer that is learned: its type, and its vectors in the text that is read."""

    kind: int
    vectors: range


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """A part of a text, beside the question.

    Attributes:
        question: as it is read, with the marker if there is one.
        text: what is read.
        part: which of its vectors.
        first: the first vector of the answer, by its number in the input; 0, that of CLS, for none.
        last: the last one.
        kind: the type of the answer, `UNKNOWN` for none.
    """

    question: TextSymbols
    text: Readable
    part: range
    first: int = 0
    last: int = 0
    kind: int = UNKNOWN

    @property
    def offset(self) -> int:
        """The number, in the input, of the first vector of the part."""
        return self.question.num_vectors + 2


class WindowReader:
    """How a model reads windows.

    Args:
        inputs: of the model.
        max_question: vectors of a question that are read, its last ones.
        stride: vectors from one window's begin to that of the next.
        markers: whether the question and each passage have a marker before them, if the model reads characters.

    Raises:
        UserError: no text fits beside the longest question.
    """

    def __init__(self, inputs: TextInputs, *, max_question: int, stride: int, markers: bool) -> None:
        self._inputs, self._max_question, self._stride = inputs, max_question, stride
        self._is_characters = inputs.symbols == "characters"
        self._markers = markers and self._is_characters
        if inputs.length < max_question + 4 + self._markers:  # CLS, two SEP and something of the text
            raise UserError(
                f"train.length: windows of {inputs.length} positions leave no room for the text beside questions of "
                f"{max_question}; make it at least {max_question + 4 + self._markers}, or task.max_question smaller"
            )

    def text(self, passages: Sequence[Passage]) -> Readable:
        """Passages as they are read."""
        return readable(passages, self._inputs, markers=self._markers)

    def question(self, text: str) -> TextSymbols:
        """A question as it is read: its last vectors, behind the marker if there is one."""
        encoded = self._inputs.encode(text)
        kept = part_of(encoded, max(0, encoded.num_vectors - self._max_question), encoded.num_vectors)
        return kept._replace(symbols=np.append(QUESTION_MARKER, kept.symbols)) if self._markers else kept

    def cut(self, question: TextSymbols, text: Readable) -> list[Window]:
        """The windows of a text, from left to right; the last one ends where the text does. None of an empty text.

        Raises:
            UserError: not even one vector fits beside the question.
        """
        windows, start, end = list[Window](), 0, 0
        while end < len(text):
            end = self._end(question, text, start)
            windows.append(Window(question, text, range(start, end)))
            start += min(end - start, self._stride)
        return windows

    def arrays(self, windows: Sequence[Window]) -> Arrays:
        """The arrays that the encoder reads, and of the vectors:

        `starts` and `ends`, int64 [W, P]: which bytes of the original they are, -1 for none; `choices`, bool alike:
        those over which the softmax goes, which with characters is all of them, padding too, as in CANINE's code.
        """
        inputs = [(window.question, window.text.part(window.part)) for window in windows]
        arrays = self._padded(windows) if self._is_characters else self._inputs.arrays(inputs)
        shape = arrays["unit_ends"].shape if "unit_ends" in arrays else arrays["codepoints"].shape
        starts, ends = (np.full(shape, NOWHERE, dtype=np.int64) for _ in range(2))
        choices = np.full(shape, self._is_characters)
        for row, window in enumerate(windows):
            part, begin = slice(window.part.start, window.part.stop), window.offset
            end = begin + len(window.part)
            starts[row, begin:end], ends[row, begin:end] = window.text.starts[part], window.text.ends[part]
            choices[row, : end + 1] = True
        return arrays | {"starts": starts, "ends": ends, "choices": choices}

    def size(self, window: Window) -> int:
        """The positions of a window."""
        if self._is_characters:
            return self._inputs.length
        return self._inputs.size((window.question, window.text.part(window.part)))

    def _end(self, question: TextSymbols, text: Readable, start: int) -> int:
        """Behind the last vector of a window that begins at `start`."""
        if self._is_characters:
            return min(len(text), start + self._inputs.length - question.num_vectors - 3)
        most = range(start + 1, min(len(text), start + self._inputs.length) + 1)
        end = start + bisect.bisect_left(
            most, True, key=lambda end: bool(self._inputs.missing((question, text.part(range(start, end)))))
        )
        if end == start:
            raise UserError(
                f"train.length: {self._inputs.length} positions leave no room for the text beside a question; make it "
                "larger, or task.max_question smaller"
            )
        return end

    def _padded(self, windows: Sequence[Window]) -> Arrays:
        """CANINE's arrays; `global`, bool [W, L], are CLS, the question and its SEP, for patterns with such units."""
        shape = (len(windows), self._inputs.length)
        codepoints, segments = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        mask, of_question = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        codepoints[:, 0] = CLS
        for row, window in enumerate(windows):
            begin, end = window.offset, window.offset + len(window.part)
            codepoints[row, 1 : begin - 1] = window.question.symbols
            codepoints[row, [begin - 1, end]] = SEP
            codepoints[row, begin:end] = window.text.symbols[window.part.start : window.part.stop]
            mask[row, : end + 1] = True
            segments[row, begin : end + 1] = 1
            of_question[row, :begin] = True
        return {"codepoints": codepoints, "mask": mask, "segments": segments, "global": of_question}


def with_targets(
    windows: Sequence[Window], target: AnswerTarget | None, *, share_of_others: float, seed: int, sample: int
) -> list[Window]:
    """The windows to learn from: those that hold the whole answer, and by chance a share of the others.

    Args:
        windows: of one text.
        target: the answer; None for a question without one.
        share_of_others: the probability with which a window without the answer is kept; it then answers nothing.
        seed: of the draws.
        sample: number of the question, on which the draws depend too.
    """
    draws = random.uniform(seed, "windows without the answer", np.array([sample]), max(1, len(windows)))[0]
    found = []
    for window, draw in zip(windows, draws.tolist(), strict=False):
        if target is not None and window.part.start <= target.vectors[0] <= target.vectors[-1] < window.part.stop:
            shift = window.offset - window.part.start
            first, last = target.vectors[0] + shift, target.vectors[-1] + shift
            found.append(dataclasses.replace(window, first=first, last=last, kind=target.kind))
        elif draw < share_of_others:
            found.append(window)
    return found
