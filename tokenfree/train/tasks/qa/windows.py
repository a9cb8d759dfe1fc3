"""Windows over a question and a passage: inputs, targets, and the best span of several windows.

A window is [CLS] question [SEP] part of the text [SEP], in segments 0 and 1. For models of characters it is that of
CANINE's code for TyDi QA, padded to a fixed length (arXiv 2103.06874, section 4.1); other models pad less. Positions of
answers are positions of vectors, including the last one.

W windows, L positions, P vectors of a window, K candidates
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tokenfree.core.errors import UserError
from tokenfree.preprocess.text.specials import CLS, FIRST_PASSAGE_MARKER, QUESTION_MARKER, SEP
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.base import Arrays
from tokenfree.train.tasks.inputs import TextInputs, TextSymbols, joined, part_of
from tokenfree.train.tasks.qa.files import NO_SPAN, Span, SquadExample, TydiExample, encoded

NOWHERE = -1
_SPACE = 0x20


class Passage(NamedTuple):
    """A part of the original that is read."""

    index: int
    begin: int  # the first byte
    text: bytes  # UTF-8


@dataclasses.dataclass(frozen=True, slots=True)
class Readable:
    """What is read, in vectors: of characters, subwords or words.

    Attributes:
        symbols: what the embedder reads, int64 [symbols].
        starts: the byte of the original at which each vector begins, int64 [vectors]; -1 for one that is not there,
            such as a marker.
        ends: the byte behind it; -1 likewise.
        passages: by the index of a passage, which of the vectors are its own.
        unit_ends: the symbols up to which each vector reaches, int64 [vectors]; None: each symbol has a vector.
    """

    symbols: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    passages: dict[int, range]
    unit_ends: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, vectors: range) -> TextSymbols:
        """Some vectors in a row."""
        return part_of(TextSymbols(self.symbols, self.starts[:0], self.unit_ends), vectors.start, vectors.stop)

    def find(self, span: Span, passage: int) -> range | None:
        """The vectors of a passage that stand for bytes of `span`; None where it is empty or not all in there."""
        among = self.passages.get(passage, range(0))
        starts, ends = (each[among.start : among.stop] for each in (self.starts, self.ends))
        begin, end = span
        inside = np.flatnonzero((starts != NOWHERE) & (starts < end) & (ends > begin))
        if begin >= end or not len(inside) or begin < starts[starts != NOWHERE].min() or end > ends.max():
            return None
        return range(among.start + int(inside[0]), among.start + int(inside[-1]) + 1)


def tydi_passages(example: TydiExample, most: int) -> list[Passage]:
    """The first `most` passages of an article, without those that are empty or whose place is not known."""
    return [
        Passage(index, begin, example.article[begin:end])
        for index, (begin, end) in enumerate(example.passages[:most])
        if (begin, end) != NO_SPAN and begin < end
    ]


def readable(passages: Iterable[Passage], inputs: TextInputs, *, markers: bool) -> Readable:
    """Passages one after another; with `markers`, joined with spaces, its marker and a space before each."""
    texts, starts, ends, ranges = list[TextSymbols](), list[np.ndarray](), list[np.ndarray](), dict[int, range]()
    length = 0
    for passage in passages:
        if markers:
            marker = [*([_SPACE] if texts else []), FIRST_PASSAGE_MARKER + passage.index, _SPACE]
            nowhere = np.full(len(marker), NOWHERE, dtype=np.int64)
            texts.append(TextSymbols(np.array(marker, dtype=np.int64), nowhere))
            starts.append(nowhere)
            ends.append(nowhere)
            length += len(marker)
        text = inputs.encode(passage.text.decode("utf-8", "surrogatepass"))
        texts.append(text)
        for found, places in zip((starts, ends), _places(text, passage), strict=True):
            found.append(places)
        ranges[passage.index] = range(length, length + text.num_vectors)
        length += text.num_vectors
    read = joined(texts)
    return Readable(read.symbols, _concatenated(starts), _concatenated(ends), ranges, read.unit_ends)


def _places(text: TextSymbols, passage: Passage) -> tuple[np.ndarray, np.ndarray]:
    """Where, in bytes of the original, each vector of a passage begins and ends; -1 for one of no character."""
    is_first = (np.frombuffer(passage.text, dtype=np.uint8) & 0xC0) != 0x80
    byte = np.append(np.flatnonzero(is_first), len(passage.text)) + passage.begin
    starts, ends = (np.full(text.num_vectors, NOWHERE, dtype=np.int64) for _ in range(2))
    seen = np.flatnonzero(text.vectors >= 0)
    ends[text.vectors[seen]] = byte[seen + 1]  # of several characters of a vector, the last is written last
    starts[text.vectors[seen[::-1]]] = byte[seen[::-1]]
    return starts, ends


def _concatenated(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])


class SpanAnswer(NamedTuple):
    """A span of the original and how sure the model is of it."""

    span: Span  # bytes
    score: float  # start and end logit, less those of CLS: above 0 where the model prefers the span to no answer


@dataclasses.dataclass(frozen=True)
class SpanDecoder:
    """CANINE's decoding for TyDi QA (arXiv 2103.06874, section 4.1).

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
        """The arrays that the encoder reads, with `global`, bool like `mask`: CLS, the question and its SEP.

        And of the vectors: `starts` and `ends`, int64 [W, P]: which bytes of the original they are, -1 for none;
        `choices`, bool alike: those over which the softmax goes, which with characters is all of them, padding too, as
        in CANINE's code.
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
        of_question = arrays["mask"] & (arrays["segments"] == 0)
        return arrays | {"global": of_question, "starts": starts, "ends": ends, "choices": choices}

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
        """CANINE's arrays."""
        shape = (len(windows), self._inputs.length)
        codepoints, segments = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        mask = np.zeros(shape, dtype=bool)
        codepoints[:, 0] = CLS
        for row, window in enumerate(windows):
            begin, end = window.offset, window.offset + len(window.part)
            codepoints[row, 1 : begin - 1] = window.question.symbols
            codepoints[row, [begin - 1, end]] = SEP
            codepoints[row, begin:end] = window.text.symbols[window.part.start : window.part.stop]
            mask[row, : end + 1] = True
            segments[row, begin : end + 1] = 1
        return {"codepoints": codepoints, "mask": mask, "segments": segments}


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


class UnusableAnswer(Exception):
    """An annotated answer that is not where it is said to be; the question is left out of training."""


def tydi_target(example: TydiExample, text: Readable, max_passages: int) -> AnswerTarget | None:
    """The minimal answer in the first of the passages that have one, else the first passage that answers.

    As in CANINE's code, answers of yes and no are learned as passages, and what lies behind `max_passages` as none.

    Args:
        text: what is read of the article, of no more than `max_passages` passages.

    Raises:
        UnusableAnswer: the minimal answer is empty or not within its passage.
    """
    marked = [a for a in example.annotations or () if 0 <= a.passage < max_passages]
    marked.sort(key=lambda annotation: annotation.passage)  # stable: of one passage, the first annotator's
    minimal = next((annotation for annotation in marked if annotation.span != NO_SPAN), None)
    chosen = minimal or next(iter(marked), None)
    if chosen is None:
        return None
    if minimal is None:
        passage = text.passages.get(chosen.passage)
        return AnswerTarget(PASSAGE, passage) if passage else None
    vectors = text.find(minimal.span, minimal.passage)
    if vectors is None:
        raise UnusableAnswer(f"{example.key}: the minimal answer is not in passage {minimal.passage}")
    return AnswerTarget(MINIMAL, vectors)


def squad_target(example: SquadExample, text: Readable) -> AnswerTarget | None:
    """The first answer, None where the context does not answer.

    Args:
        text: the context, as passage 0.

    Raises:
        UnusableAnswer: it is empty, or not what the context has there.
    """
    if not example.answers:
        return None
    answer = example.answers[0]
    begin, end = (len(encoded(example.context[:at])) for at in (answer.start, answer.start + len(answer.text)))
    vectors = text.find((begin, end), 0)
    if vectors is None or not example.context.startswith(answer.text, answer.start):
        raise UnusableAnswer(f"{example.key}: {answer.text!r} is not at character {answer.start} of the context")
    return AnswerTarget(MINIMAL, vectors)
