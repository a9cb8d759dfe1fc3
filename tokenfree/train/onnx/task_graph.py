"""A fine-tuned encoder with the head of its task as a graph: logits of texts, of places, or of begins and ends.

B batch, C characters (or bytes, or subwords), U units, P vectors, K classes
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.loop.task import Task
from tokenfree.train.onnx.graph import Graph, Shape, reads_words
from tokenfree.train.tasks import classification, pairs, qa_squad, tagging
from tokenfree.train.tasks.base import DownstreamTask
from tokenfree.train.tasks.encode import encode_all

REMEDY = "use `tokenfree predict` or load_finetuned"


class TaskGraph(Graph):
    """What the head of a task gives of inputs that are framed as the task has them.

    Attributes:
        pipeline: the hub's name of what it does.
        texts: what an input is made of, each with SEP behind it; of two, the second is segment 1.
    """

    pipeline: str
    texts: tuple[str, ...] = ("text",)

    def __init__(self, task: DownstreamTask, model: Task) -> None:
        shapes = self.shapes(model.head, "words" if reads_words(model.encoder) else "length")
        super().__init__(model.encoder, shapes, has_segments=len(self.texts) > 1)
        self.task = task
        self.head: Any = model.head

    @property
    def labels(self) -> Sequence[str]:
        """The classes in the order of the logits; none where there are no classes."""
        return getattr(self.task, "labels", ())

    @staticmethod
    @abstractmethod
    def shapes(head: Any, vectors: str) -> dict[str, Shape]:
        """The shapes of the outputs by name; `vectors` is the name of how many vectors an input has."""

    @abstractmethod
    def outputs(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """The outputs in the order of their names."""

    def forward(
        self, codepoints: Tensor, mask: Tensor, segments: Tensor | None = None, unit_ends: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The outputs in the order of their names, for int64 codepoints [B, C], bool mask alike, int64 segments alike
        and int64 ends [B, U].
        """
        given = {"codepoints": codepoints, "mask": mask, "segments": segments, "unit_ends": unit_ends}
        return self.outputs({name: tensor for name, tensor in given.items() if tensor is not None})


class TextGraph(TaskGraph):
    """`logits` [B, K] of texts; nothing is upsampled."""

    pipeline = "text-classification"

    @staticmethod
    def shapes(head: Any, vectors: str) -> dict[str, Shape]:
        """See `TaskGraph.shapes`."""
        return {"logits": ["batch", head.classifier.output.out_features]}

    def outputs(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """See `TaskGraph.outputs`."""
        names = [name for name in ("codepoints", "mask", "segments") if name in batch]
        padded = dict(zip(names, self.encoder.padded(*(batch[name] for name in names)), strict=True))
        return (self.head.outputs(self.encoder, batch | padded)["logits"],)


class PairGraph(TextGraph):
    """The same of pairs of texts that are read together."""

    texts = ("first", "second")


class TagGraph(TaskGraph):
    """`logits` [B, P, K] of all vectors, of which the task reads those of words."""

    pipeline = "token-classification"

    @staticmethod
    def shapes(head: Any, vectors: str) -> dict[str, Shape]:
        """See `TaskGraph.shapes`."""
        return {"logits": ["batch", vectors, head.classifier.output.out_features]}

    def outputs(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """See `TaskGraph.outputs`."""
        vectors_BPD, _ = encode_all(self.encoder, batch)
        return (self.head.classifier(vectors_BPD),)


class AnswerGraph(TaskGraph):
    """`start_logits` and `end_logits` [B, P] of all vectors: where an answer begins and ends."""

    pipeline = "question-answering"
    texts = ("question", "context")

    @staticmethod
    def shapes(head: Any, vectors: str) -> dict[str, Shape]:
        """See `TaskGraph.shapes`."""
        return {"start_logits": ["batch", vectors], "end_logits": ["batch", vectors]}

    def outputs(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """See `TaskGraph.outputs`; of characters, CLS, the question and its SEP are global, as in `WindowReader`."""
        if self.encoder.config.embedder.symbols == "characters":
            batch["global"] = batch["mask"] & (batch["segments"] == 0)
        found = self.head.outputs(self.encoder, batch)
        return found["start"], found["end"]


GRAPHS: dict[type, type[TaskGraph]] = {
    classification.Config: TextGraph,
    pairs.Config: PairGraph,
    tagging.Config: TagGraph,
    qa_squad.Config: AnswerGraph,
}


def task_graph(task: DownstreamTask, model: Task) -> TaskGraph:
    """The graph of a fine-tuned model.

    Args:
        task: fitted.
        model: the encoder with the head of the task.

    Raises:
        UserError: there is none for this task, in one line that names the setting.
    """
    if type(task) not in GRAPHS:
        known = ", ".join(config.name for config in GRAPHS)
        raise UserError(f"task.name: there are graphs of {known}, and none of {task.name}; {REMEDY}")
    if isinstance(task, pairs.Config) and task.encode == "apart":
        raise UserError(
            f"task.encode: a graph reads both texts of a pair together, not apart; {REMEDY}, or fine-tune with together"
        )
    return GRAPHS[type(task)](task, model)
