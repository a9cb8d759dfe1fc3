"""What the question answering tasks share: settings, collator and the span head.

B batch, P vectors of a window, D width, T types of answers
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from tokenfree.core.errors import UserError
from tokenfree.core.settings import settings
from tokenfree.train.batches.base import Arrays
from tokenfree.train.model.attention import sliding_global
from tokenfree.train.model.common.basic import initialise
from tokenfree.train.model.encoder import ModelConfig
from tokenfree.train.objectives.base import Loss
from tokenfree.train.tasks.base import DownstreamTask, Item, Outputs, TaskHead
from tokenfree.train.tasks.heads import encode_all
from tokenfree.train.tasks.inputs import TextInputs, TextSymbols
from tokenfree.train.tasks.qa.windows import (
    NOWHERE,
    AnswerTarget,
    Passage,
    Readable,
    SpanAnswer,
    SpanDecoder,
    UnusableAnswer,
    Window,
    WindowReader,
    best_of_windows,
    with_targets,
)


class SpanHead(TaskHead):
    """Two logits for each vector, and one for each type of answer from the pooled vector.

    Args:
        width: of the encoder's vectors.
        decoder: that finds the best span of a window.
        num_types: types of answers; 0: none are learned, as in transformers' `CanineForQuestionAnswering`.
    """

    def __init__(self, width: int, decoder: SpanDecoder, num_types: int = 0) -> None:
        super().__init__()
        self.spans = nn.Linear(width, 2)
        self.types = nn.Linear(width, num_types) if num_types else None
        self._decoder = decoder
        self.apply(initialise)

    def outputs(self, encoder: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`start` and `end`, float32 [B, P], and where types are learned `type` [B, T]."""
        vectors_BPD, pooled_BD = encode_all(encoder, batch)
        start_BP, end_BP = self.spans(vectors_BPD).float().unbind(dim=-1)
        found = {"start": start_BP, "end": end_BP}
        return found if self.types is None else found | {"type": self.types(pooled_BD).float()}

    def loss(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> Loss:
        """The mean of the cross-entropies of start, end and, where learned, type; correct are spans that are exact.

        Over positions the softmax is that over the `choices` of the batch.
        """
        start_BP, end_BP = _among_choices(outputs, batch)
        pairs = [(start_BP, batch["first"]), (end_BP, batch["last"])]
        if self.types is not None:
            pairs.append((outputs["type"], batch["kind"]))
        real_B = batch["target_mask"][:, 0]
        loss_B = torch.stack([functional.cross_entropy(*pair, reduction="none") for pair in pairs]).mean(dim=0)
        right_B = (start_BP.argmax(dim=-1) == batch["first"]) & (end_BP.argmax(dim=-1) == batch["last"]) & real_B
        return Loss((loss_B * real_B).sum(), real_B.sum(), right_B.sum())

    def kept(self, outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The best span of each window: `score`, -inf for none, and `begin` and `end`, bytes of the original; [B]."""
        start_BP, end_BP = (logits_BP.cpu().numpy() for logits_BP in _among_choices(outputs, batch))
        starts_BP, ends_BP = (batch[name].cpu().numpy() for name in ("starts", "ends"))
        score_B, first_B, last_B = self._decoder.best(start_BP, end_BP, starts_BP != NOWHERE)
        rows: Any = np.arange(len(score_B))
        found = {"score": score_B, "begin": starts_BP[rows, first_B], "end": ends_BP[rows, last_B]}
        return {name: torch.from_numpy(values) for name, values in found.items()}


def _among_choices(outputs: Mapping[str, Tensor], batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The logits [B, P] of starts and of ends, -inf where there is no choice."""
    start_BP, end_BP = (outputs[name].masked_fill(~batch["choices"], -torch.inf) for name in ("start", "end"))
    return start_BP, end_BP


logger = logging.getLogger("tokenfree")


@settings
class QuestionAnswering(DownstreamTask):
    """Questions whose answers are spans of a text. Lengths are in characters, of models of subwords and words in these.

    Attributes:
        max_question: the most of a question that is read, its end.
        stride: from the begin of a window of the text to that of the next.
        other_windows: share of the windows without the answer that are trained on, as ones that do not answer.
        max_answer: the longest answer that is given.
        candidates: how many of the best begins, and of the best ends, are combined to find an answer.
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
        """The parts of the text that are read."""

    def texts(self, example: Any) -> Sequence[str]:
        return [
            example.question,
            *(passage.text.decode("utf-8", "surrogatepass") for passage in self.passages(example)),
        ]

    @abstractmethod
    def target(self, example: Any, text: Readable) -> AnswerTarget | None:
        """What is learned of an example that has its answer.

        Raises:
            UnusableAnswer: the answer is not where it is said to be.
        """

    @abstractmethod
    def is_annotated(self, example: Any) -> bool:
        """Whether it is known what the example's answer is, or that it has none."""

    def adapted(self, model: ModelConfig) -> ModelConfig:
        """Make room for the longest question among the global units of a model that has some."""
        trunk = model.trunk
        if not isinstance(trunk.attention, sliding_global.Config) or trunk.attention.global_units == 0:
            return model
        framed = 1 + self.markers + self.max_question + 1  # CLS, the marker, the question, SEP
        # With a rate, CLS has a unit of its own besides the one of its group.
        num_units = 1 + -(-framed // model.downsampler.rate)
        attention = dataclasses.replace(trunk.attention, global_units=max(trunk.attention.global_units, num_units))
        return dataclasses.replace(model, trunk=dataclasses.replace(trunk, attention=attention))

    def build(self, model: ModelConfig) -> SpanHead:
        """The head."""
        return SpanHead(model.width, SpanDecoder(self.candidates, self.max_answer), self.num_types)

    def collator(self, inputs: TextInputs, seed: int) -> QuestionCollator:
        return QuestionCollator(self, inputs, seed)

    def answers(
        self, examples: Sequence[Any], items: Sequence[Item], outputs: Sequence[Outputs]
    ) -> list[SpanAnswer | None]:
        """The best answer over the windows of each example."""
        found: list[list[SpanAnswer]] = [[] for _ in examples]
        for item, output in zip(items, outputs, strict=True):
            span = int(output["begin"]), int(output["end"])
            found[item.example].append(SpanAnswer(span, float(output["score"])))
        return [best_of_windows(of_example) for of_example in found]


class _Place(NamedTuple):
    """A window of an example, without what it holds: that is read when it is used, which spares memory."""

    example: Any
    part: range
    first: int
    last: int
    kind: int
    is_annotated: bool


class QuestionCollator:
    """Questions to arrays; see `tokenfree.train.tasks.base.TaskCollator`.

    Args:
        task: whose examples they are.
        inputs: of the model.
        seed: of the draws of windows without the answer.

    Raises:
        UserError: the inputs are too short.
    """

    def __init__(self, task: QuestionAnswering, inputs: TextInputs, seed: int) -> None:
        self._task, self._seed = task, seed
        self._reader = WindowReader(inputs, max_question=task.max_question, stride=task.stride, markers=task.markers)
        self._read = functools.lru_cache(maxsize=4)(self._read_now)  # few, since texts may be large

    def items(self, examples: Sequence[Any], *, training: bool) -> list[Item]:
        """See `TaskCollator.items`. A question whose answer is not where it should be is left out of training."""
        items, unusable = list[Item](), list[str]()
        for number, example in enumerate(examples):
            question, text = self._read(example)
            windows, is_annotated = self._reader.cut(question, text), self._task.is_annotated(example)
            try:
                target = self._task.target(example, text) if is_annotated else None
            except UnusableAnswer as error:
                unusable.append(str(error))
                target, is_annotated = None, False
            if training and not is_annotated:
                continue
            share = self._task.other_windows if training else 1.0
            for window in with_targets(windows, target, share_of_others=share, seed=self._seed, sample=number):
                place = _Place(example, window.part, window.first, window.last, window.kind, is_annotated)
                items.append(Item(number, self._reader.size(window), place))
        if training and unusable:
            logger.warning("%d of %d questions are left out: %s", len(unusable), len(examples), unusable[0])
        return items

    def __call__(self, items: Sequence[Item], sample_ids: np.ndarray) -> Arrays:
        """The arrays of `WindowReader`; `first`, `last` and `kind` of the answers, int64 [b]."""
        places: list[_Place] = [item.content for item in items]
        return self._reader.arrays([self._window(place) for place in places]) | {
            "first": np.array([place.first for place in places], dtype=np.int64),
            "last": np.array([place.last for place in places], dtype=np.int64),
            "kind": np.array([place.kind for place in places], dtype=np.int64),
            "target_mask": np.array([[place.is_annotated] for place in places]),
            "num_characters": np.array([len(place.part) for place in places], dtype=np.int64),
        }

    def _window(self, place: _Place) -> Window:
        question, text = self._read(place.example)
        return Window(question, text, place.part, place.first, place.last, place.kind)

    def _read_now(self, example: Any) -> tuple[TextSymbols, Readable]:
        return self._reader.question(example.question), self._reader.text(self._task.passages(example))


def shown(original: bytes, answer: SpanAnswer | None) -> dict[str, Any]:
    """`answer`, its text, and `span`: also where it is in characters and bytes of the `original`; null for none."""
    if answer is None:
        return {"answer": "", "span": None}
    begin, end = answer.span
    text = original[begin:end].decode("utf-8", "replace")
    start = len(original[:begin].decode("utf-8", "replace"))
    span = {"text": text, "start": start, "end": start + len(text), "start_byte": begin, "end_byte": end}
    return {"answer": text, "span": span}


def split_raw(key: str, text: str) -> tuple[str, bytes]:
    """The question that `tokenfree predict` is given as a line of text and, behind a tab, its context in UTF-8.

    Raises:
        UserError: there is no tab, or nothing before or behind it.
    """
    question, _, context = text.partition("\t")
    if not question.strip() or not context.strip():
        raise UserError(f"{key}: give a question and the text that may answer it with a tab between")
    return question.strip(), context.encode("utf-8", "surrogatepass")
