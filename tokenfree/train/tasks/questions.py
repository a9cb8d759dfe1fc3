"""Question answering: windows over a question and a text, the head that finds spans, and code shared by both tasks.

A window is [CLS] question [SEP] part of the text [SEP], in segments 0 and 1. For models of characters it is
the same as in CANINE's code for TyDi QA, padded to a fixed length. Positions of answers count vectors; the
last is inclusive.

B batch, W windows, L positions, P vectors of a window, K candidates, D width, T types of answers
"""

import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from tokenfree.core.errors import UserError, logger
from tokenfree.core.settings import settings
from tokenfree.preprocess.text.specials import FIRST_PASSAGE_MARKER, QUESTION_MARKER
from tokenfree.train.batches import counter_random as random
from tokenfree.train.batches.base import Arrays
from tokenfree.train.model.attention import sliding_global
from tokenfree.train.model.common.basic import initialise
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import Loss
from tokenfree.train.tasks.base import DownstreamTask, Item, Outputs, TaskCollator, TaskHead
from tokenfree.train.tasks.heads import encode_all
from tokenfree.train.tasks.inputs import NOWHERE, TextInputs, TextSymbols, joined, part_of

UNKNOWN, YES, NO, MINIMAL, PASSAGE = range(5)  # types of answers, in the same order as in CANINE's code
NUM_TYPES = 5
NOT_ANNOTATED = -1
Span = tuple[int, int]  # begin and end in bytes
_SPACE = 0x20


class UnusableAnswer(Exception):
    """Raised if an annotated answer is not where the file says. Training skips the question."""


class Passage(NamedTuple):
    index: int
    begin: int  # first byte
    text: bytes  # UTF-8


@dataclasses.dataclass(frozen=True, slots=True)
class Readable:
    """A text as the model reads it, in vectors of characters, subwords or words.

    `starts` and `ends`, int64 [vectors], are the bytes of each vector in the original text; -1 for markers.
    `passages` has the vectors of each passage by its index.
    """

    read: TextSymbols
    starts: np.ndarray
    ends: np.ndarray
    passages: dict[int, range]

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, vectors: range) -> TextSymbols:
        return part_of(self.read, vectors.start, vectors.stop)

    def find(self, span: Span, passage: int) -> range | None:
        """Return the vectors of a passage that contain the bytes of `span`; None if it is empty or not all inside."""
        among = self.passages.get(passage, range(0))
        starts, ends = (edges[among.start : among.stop] for edges in (self.starts, self.ends))
        begin, end = span
        inside = np.flatnonzero((starts != NOWHERE) & (starts < end) & (ends > begin))
        if begin >= end or not len(inside) or begin < starts[starts != NOWHERE].min() or end > ends.max():
            return None
        return range(among.start + int(inside[0]), among.start + int(inside[-1]) + 1)


def readable(passages: Iterable[Passage], inputs: TextInputs, *, markers: bool) -> Readable:
    """Join passages. With `markers`, spaces separate them, and a marker and a space precede each one."""
    none = np.zeros(0, dtype=np.int64)
    parts, ranges, length = [(TextSymbols(none, none), none, none)], dict[int, range](), 0
    for passage in passages:
        if markers:
            marker = [*([_SPACE] if ranges else []), FIRST_PASSAGE_MARKER + passage.index, _SPACE]
            nowhere = np.full(len(marker), NOWHERE, dtype=np.int64)
            parts.append((TextSymbols(np.array(marker, dtype=np.int64), nowhere), nowhere, nowhere))
            length += len(marker)
        text = inputs.encode(passage.text.decode("utf-8", "surrogatepass"))
        parts.append((text, *_places(text, passage)))
        ranges[passage.index] = range(length, length + text.num_vectors)
        length += text.num_vectors
    read = joined(text for text, _, _ in parts[1:])._replace(vectors=none)
    _, starts, ends = zip(*parts, strict=True)
    return Readable(read, np.concatenate(starts), np.concatenate(ends), ranges)


def _places(text: TextSymbols, passage: Passage) -> tuple[np.ndarray, np.ndarray]:
    is_first = (np.frombuffer(passage.text, dtype=np.uint8) & 0xC0) != 0x80
    byte = np.append(np.flatnonzero(is_first), len(passage.text)) + passage.begin
    starts, ends = (np.full(text.num_vectors, NOWHERE, dtype=np.int64) for _ in range(2))
    seen = np.flatnonzero(text.vectors >= 0)
    # If a vector has several characters, the last one is written last.
    ends[text.vectors[seen]] = byte[seen + 1]
    starts[text.vectors[seen[::-1]]] = byte[seen[::-1]]
    return starts, ends


class AnswerTarget(NamedTuple):
    """The answer to learn: its type and its vectors in the text that is read."""

    kind: int
    vectors: range


class Window(NamedTuple):
    """A part of a text, next to the question. Positions of the answer count the vectors of the input."""

    part: range  # vectors of the text that are in the window
    first: int = 0  # first vector of the answer; 0, the vector of CLS, for no answer
    last: int = 0  # last vector of the answer; 0 for no answer
    # Type of the answer; `UNKNOWN` for no answer, `NOT_ANNOTATED` if the file does not say.
    kind: int = UNKNOWN


class Reading(NamedTuple):
    """A question, with the marker if there is one, and a text, as the model reads them.

    Texts may be large.
    """

    question: TextSymbols
    text: Readable

    @property
    def offset(self) -> int:
        return self.question.num_vectors + 2

    def parts(self, window: Window) -> tuple[TextSymbols, TextSymbols]:
        return self.question, self.text.part(window.part)


def with_targets(
    windows: Sequence[Window],
    target: AnswerTarget | None,
    offset: int,
    *,
    share: float,
    seed: int,
    sample: int,
) -> list[Window]:
    """Return the windows with the whole answer and a random `share` of the others, drawn by `seed` and `sample`."""
    draws = random.uniform(seed, "windows without the answer", np.array([sample]), max(1, len(windows)))[0]
    selected = []
    for window, draw in zip(windows, draws.tolist(), strict=False):
        if (
            target is not None
            and window.part.start <= target.vectors[0] <= target.vectors[-1] < window.part.stop
        ):
            shift = offset - window.part.start
            selected.append(
                Window(window.part, target.vectors[0] + shift, target.vectors[-1] + shift, target.kind)
            )
        elif draw < share:
            selected.append(window)
    return selected


class SpanAnswer(NamedTuple):
    span: Span
    # Start plus end logit minus those of CLS; above 0 if the model prefers the span to no answer.
    score: float


@dataclasses.dataclass(frozen=True)
class SpanDecoder:
    """CANINE's decoding for TyDi QA (https://arxiv.org/abs/2103.06874, section 4.1).

    Lengths are in vectors.
    """

    candidates: int = 30
    max_answer: int = 100

    def best(
        self, start_WP: np.ndarray, end_WP: np.ndarray, readable_WP: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the score, float64 [W], of the best span of each window, its first and its last vector, int64 [W].

        A span is in the original and has 1 to `max_answer` vectors. Ties are broken by the better start, then
        the better end, then the earlier position. Without an answer, the score is -inf.
        """
        start_WP, end_WP = start_WP.astype(np.float64), end_WP.astype(np.float64)
        # A stable sort keeps the first of equal logits first.
        start_WK, end_WK = (
            np.argsort(-logits_WP[:, 1:], axis=1, kind="stable")[:, : self.candidates] + 1
            for logits_WP in (start_WP, end_WP)
        )
        none_W = start_WP[:, 0] + end_WP[:, 0]
        score_WKK = (
            _take(start_WP, start_WK)[:, :, None] + _take(end_WP, end_WK)[:, None, :] - none_W[:, None, None]
        )
        length_WKK = end_WK[:, None, :] - start_WK[:, :, None] + 1
        answer_WKK = (length_WKK >= 1) & (length_WKK <= self.max_answer)
        answer_WKK &= _take(readable_WP, start_WK)[:, :, None] & _take(readable_WP, end_WK)[:, None, :]
        score_WKK[~answer_WKK] = -np.inf
        rows, scores_WN = np.arange(len(start_WK)), score_WKK.reshape(len(start_WK), -1)
        best_W = scores_WN.argmax(axis=1)
        start_W, end_W = np.divmod(best_W, start_WK.shape[1])
        return scores_WN[rows, best_W], start_WK[rows, start_W], end_WK[rows, end_W]


def _take(values_WP: np.ndarray, positions_WK: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values_WP, positions_WK, axis=1)


def best_of_windows(answers: Iterable[SpanAnswer]) -> SpanAnswer | None:
    """Return the best answer of the windows of a text, the first one of ties; None if no window has an answer."""
    best = max(answers, key=lambda answer: answer.score, default=None)
    return best if best is not None and np.isfinite(best.score) else None


class SpanHead(TaskHead):
    """A head with two logits per vector, and one per type of answer, if any, from the pooled vector."""

    def __init__(self, width: int, decoder: SpanDecoder | None, num_types: int = 0) -> None:
        super().__init__()
        self.spans = nn.Linear(width, 2)
        self.types = nn.Linear(width, num_types) if num_types else None
        self._decoder = decoder
        self.apply(initialise)

    def outputs(self, encoder: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        vectors_BPD, pooled_BD = encode_all(encoder, batch)
        start_BP, end_BP = self.spans(vectors_BPD).float().unbind(dim=-1)
        logits = {"start": start_BP, "end": end_BP}
        return logits if self.types is None else logits | {"type": self.types(pooled_BD).float()}

    def loss(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Loss:
        """Return the mean cross-entropy of start, end and, if learned, type. Exact spans count as correct."""
        start_BP, end_BP = _among_choices(outputs, batch)
        pairs = [(start_BP, batch["first"]), (end_BP, batch["last"])]
        if self.types is not None:
            pairs.append((outputs["type"], batch["kind"]))
        real_B = batch["target_mask"][:, 0]
        loss_B = torch.stack([nn.functional.cross_entropy(*pair, reduction="none") for pair in pairs]).mean(
            dim=0
        )
        right_B = (
            (start_BP.argmax(dim=-1) == batch["first"]) & (end_BP.argmax(dim=-1) == batch["last"]) & real_B
        )
        return Loss((loss_B * real_B).sum(), real_B.sum(), right_B.sum())

    def kept(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the best span of each window: `score` (-inf for none), `begin` and `end` in bytes of the original."""
        start_BP, end_BP = (logits_BP.cpu().numpy() for logits_BP in _among_choices(outputs, batch))
        starts_BP, ends_BP = (batch[name].cpu().numpy() for name in ("starts", "ends"))
        assert self._decoder is not None, "the model was built by a task"
        score_B, first_B, last_B = self._decoder.best(start_BP, end_BP, starts_BP != NOWHERE)
        rows: Any = np.arange(len(score_B))
        best_spans = {"score": score_B, "begin": starts_BP[rows, first_B], "end": ends_BP[rows, last_B]}
        return {name: torch.from_numpy(values) for name, values in best_spans.items()}


def _among_choices(outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    start_BP, end_BP = (outputs[name].masked_fill(~batch["choices"], -torch.inf) for name in ("start", "end"))
    return start_BP, end_BP


@settings
class QuestionAnswering(DownstreamTask):
    """Questions whose answers are spans of a text.

    Lengths are in characters, or in the model's subwords or words.

    Attributes:
        max_question: maximum length of a question; the end of a longer one is read.
        stride: distance between the starts of successive windows of the text.
        other_windows: share of the windows without the answer to train on, as unanswerable.
        max_answer: maximum length of a predicted answer.
        candidates: number of best starts, and of best ends, that are combined to find an answer.
    """

    max_question: Annotated[int, Field(ge=1)] = 256
    stride: Annotated[int, Field(ge=1)] = 512
    other_windows: Annotated[float, Field(ge=0, le=1)] = 0.1
    max_answer: Annotated[int, Field(ge=1)] = 100
    candidates: Annotated[int, Field(ge=1)] = 30

    markers = False
    num_types = 0

    @abstractmethod
    def passages(self, example: Any) -> list[Passage]:
        """Return the parts of the text that are read."""

    @abstractmethod
    def target(self, example: Any, text: Readable) -> AnswerTarget | None:
        """Return the answer to learn; None if there is none.

        Raises UnusableAnswer if it is not where the file says.
        """

    @abstractmethod
    def is_annotated(self, example: Any) -> bool:
        """Return True if the file gives the example's answer or says that it has none."""

    def texts(self, example: Any) -> Sequence[str]:
        read = (passage.text.decode("utf-8", "surrogatepass") for passage in self.passages(example))
        return [example.question, *read]

    def adapted(self, model: ModelConfig) -> ModelConfig:
        trunk = model.trunk
        if not isinstance(trunk.attention, sliding_global.Config) or trunk.attention.global_units == 0:
            return model
        # CLS, the marker, the question and SEP. If the model downsamples, CLS also has a separate unit.
        num_units = 1 + -(-(1 + self.markers + self.max_question + 1) // model.downsampler.rate)
        attention = dataclasses.replace(
            trunk.attention, global_units=max(trunk.attention.global_units, num_units)
        )
        return dataclasses.replace(model, trunk=dataclasses.replace(trunk, attention=attention))

    def build(self, model: ModelConfig) -> SpanHead:
        return SpanHead(model.width, SpanDecoder(self.candidates, self.max_answer), self.num_types)

    def collator(self, inputs: TextInputs, seed: int) -> "QuestionCollator":
        return QuestionCollator(self, inputs, seed)

    def answers(
        self, examples: Sequence[Any], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[SpanAnswer | None]:
        candidates: list[list[SpanAnswer]] = [[] for _ in examples]
        for item, output in zip(items, outputs, strict=True):
            span = int(output["begin"]), int(output["end"])
            candidates[item.example].append(SpanAnswer(span, float(output["score"])))
        return [best_of_windows(of_example) for of_example in candidates]


class QuestionCollator(TaskCollator):
    """A collator of questions. Lengths are in vectors. Items hold an example and a `Window`, to save memory.

    Markers precede the question and each passage only if the model reads characters. Raises UserError if no
    text fits next to the longest question.
    """

    def __init__(self, task: QuestionAnswering, inputs: TextInputs, seed: int) -> None:
        self._task, self._inputs, self._seed = task, inputs, seed
        self._is_characters = inputs.symbols == "characters"
        self._markers = task.markers and self._is_characters
        # Small because texts may be large.
        self.read = functools.lru_cache(maxsize=4)(self._read)
        # CLS, two SEP and one vector of the text.
        if inputs.length < task.max_question + 4 + self._markers:
            raise self._too_short()

    def items(self, examples: Sequence[Any], *, training: bool) -> list[Item]:
        items, unusable = list[Item](), list[str]()
        share = self._task.other_windows if training else 1.0
        for number, example in enumerate(examples):
            reading, target, kind = self.read(example), None, UNKNOWN
            try:
                if self._task.is_annotated(example):
                    target = self._task.target(example, reading.text)
                else:
                    kind = NOT_ANNOTATED
            except UnusableAnswer as error:
                unusable.append(str(error))
                kind = NOT_ANNOTATED
            if training and kind == NOT_ANNOTATED:
                continue
            windows = [window._replace(kind=kind) for window in self.cut(reading)]
            for window in with_targets(
                windows, target, reading.offset, share=share, seed=self._seed, sample=number
            ):
                size = (
                    self._inputs.length if self._is_characters else self._inputs.size(reading.parts(window))
                )
                items.append(Item(number, size, (example, window)))
        if training and unusable:
            logger.warning("%d of %d questions are left out: %s", len(unusable), len(examples), unusable[0])
        return items

    def cut(self, reading: Reading) -> list[Window]:
        """Return the windows from left to right; the last one ends with the text.

        Raises UserError if none fits.
        """
        windows, start, end = list[Window](), 0, 0
        while end < len(reading.text):
            end = start + self._fitting(reading, start)
            windows.append(Window(range(start, end)))
            start += min(end - start, self._task.stride)
        return windows

    def __call__(self, items: Sequence[Item], sample_ids: np.ndarray) -> Arrays:
        """Return the inputs of the encoder, and the arrays for the head.

        `global`, bool like `mask`, is true for CLS, the question and its SEP. `choices`, bool [b, P], are the
        vectors of the softmax. For characters these are all vectors including padding, as in CANINE's code.
        """
        windows: list[Window] = [item.content[1] for item in items]
        readings = [self.read(item.content[0]) for item in items]
        length = self._inputs.length if self._is_characters else None
        parts = [reading.parts(window) for reading, window in zip(readings, windows, strict=True)]
        arrays = self._inputs.arrays(parts, length)
        shape = arrays["unit_ends"].shape if "unit_ends" in arrays else arrays["codepoints"].shape
        starts, ends = (np.full(shape, NOWHERE, dtype=np.int64) for _ in range(2))
        choices = np.full(shape, self._is_characters)
        for row, (reading, window) in enumerate(zip(readings, windows, strict=True)):
            part, end = slice(window.part.start, window.part.stop), reading.offset + len(window.part)
            starts[row, reading.offset : end] = reading.text.starts[part]
            ends[row, reading.offset : end] = reading.text.ends[part]
            choices[row, : end + 1] = True
        kinds = np.array([window.kind for window in windows], dtype=np.int64)
        return arrays | {
            "global": arrays["mask"] & (arrays["segments"] == 0),
            "starts": starts,
            "ends": ends,
            "choices": choices,
            "first": np.array([window.first for window in windows], dtype=np.int64),
            "last": np.array([window.last for window in windows], dtype=np.int64),
            "kind": kinds.clip(min=UNKNOWN),
            "target_mask": kinds[:, None] != NOT_ANNOTATED,
            "num_characters": np.array([len(window.part) for window in windows], dtype=np.int64),
        }

    def _read(self, example: Any) -> Reading:
        # The end of a long question is read.
        encoded = self._inputs.encode(example.question)
        question = part_of(
            encoded, max(0, encoded.num_vectors - self._task.max_question), encoded.num_vectors
        )
        if self._markers:
            question = question._replace(symbols=np.append(QUESTION_MARKER, question.symbols))
        return Reading(question, readable(self._task.passages(example), self._inputs, markers=self._markers))

    def _fitting(self, reading: Reading, start: int) -> int:
        # A full input without the usual padding, as in CANINE's code.
        if self._is_characters:
            return min(len(reading.text) - start, self._inputs.length - reading.question.num_vectors - 3)
        count = self._inputs.fitting(reading.text.read, start, reading.question)
        if count < 1:
            raise self._too_short()
        return count

    def _too_short(self) -> UserError:
        return UserError(
            f"train.length: {self._inputs.length} positions leave no room for the text next to questions of "
            f"{self._task.max_question}. Make it larger, or task.max_question smaller."
        )


def answer_fields(original: bytes, answer: SpanAnswer | None) -> dict[str, Any]:
    """Return `answer`, a text, and `span`, its place in characters and bytes of the `original`; None without answer."""
    if answer is None:
        return {"answer": "", "span": None}
    begin, end = answer.span
    text = original[begin:end].decode("utf-8", "replace")
    start = len(original[:begin].decode("utf-8", "replace"))
    span = {"text": text, "start": start, "end": start + len(text), "start_byte": begin, "end_byte": end}
    return {"answer": text, "span": span}


def split_raw(key: str, text: str) -> tuple[str, bytes]:
    """Return the question and the context of a line, in UTF-8. Raises UserError if no tab separates them."""
    question, _, context = text.partition("\t")
    if not question.strip() or not context.strip():
        raise UserError(
            f"{key}: no question and text. Give a question, a tab, and the text that may answer it."
        )
    return question.strip(), context.encode("utf-8", "surrogatepass")
