"""Small models of every task and kind of input, and what tokenfree gives of texts with them."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from tests.train.conftest import RECIPE
from tests.train.finetune.conftest import MODELS as OF_TASKS
from tests.train.finetune.conftest import TRAIN
from tokenfree.core.settings import build, merge
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.loop.step import ModelWithHead, on_device
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.tasks.base import TaskCollator
from tokenfree.train.tasks.inputs import text_inputs

_PLAIN = {"downsampler": {"name": "identity"}, "upsampler": {"name": "identity"}}
_LONG = OF_TASKS["longformer"]["embedder"]
MODELS = {
    **OF_TASKS,
    "bytes": {**_PLAIN, "embedder": {"name": "byte_table", "max_characters": 144}},
    "segments": {
        **_PLAIN,
        "embedder": {**_LONG, "segments": 0},
        "trunk": {"positions": {"name": "diet_rel"}, "segments": {"name": "per_head"}},
    },
    "global": {
        **_PLAIN,
        "embedder": _LONG,
        "trunk": {"attention": {"name": "sliding_global", "one_sided_window": 4, "global_units": 30}},
    },
}
Module = TypeVar("Module", bound=nn.Module)
TASKS: dict[str, dict[str, Any]] = {
    "texts": {"name": "classification", "labels": ["größer", "less", "no"]},
    "maxima": {"name": "classification", "labels": ["less", "more"], "representation": "class_max"},
    "numbers": {"name": "classification", "regression": True, "representation": "pooled"},
    "pairs": {"name": "pairs", "labels": ["less", "more"]},
    "tags": {"name": "tagging", "labels": ["ADJ", "NOUN", "VERB"]},
    "questions": {
        "name": "qa_squad", "max_question": 20, "max_answer": 12, "candidates": 144, "unanswerable": True
    },
}  # fmt: skip


ALL = [(kind, model) for kind in TASKS for model in ("canine", "words", "subwords", "bytes")]


def recipe(kind: str, model: str, task: Mapping[str, Any] | None = None, **train: Any) -> FinetuneRecipe:
    """A recipe for one of `TASKS` with one of `MODELS`; `task` is laid over it, and keywords are keys of `train`."""
    over = {"model": MODELS[model], "task": {**TASKS[kind], **(task or {})}, "train": {**TRAIN, **train}}
    return build(FinetuneRecipe, merge({"model": RECIPE["model"]}, over), source="test")


def fresh(made: FinetuneRecipe) -> ModelWithHead:
    """The model of a recipe with weights so large that each symbol counts."""
    torch.manual_seed(0)
    return enlarge(ModelWithHead(made.model.build(), made.task.build(made.model))).eval()


def parts(made: FinetuneRecipe) -> tuple[Encoder, Any]:
    """The encoder and the head of `fresh`."""
    model = fresh(made)
    return model.encoder, model.head


@torch.no_grad()
def enlarge(module: Module) -> Module:
    """The same module, with noise in all weights."""
    torch.manual_seed(0)
    for weight in module.parameters():
        weight += 0.2 * torch.randn_like(weight)
    return module


def collator_of(made: FinetuneRecipe, vocabulary: Vocabulary | None) -> TaskCollator:
    given = vocabulary if made.model.embedder.symbols == "subwords" else None
    return made.task.collator(text_inputs(made.model, made.train.length, given), 0)


def batches(made: FinetuneRecipe, collator: TaskCollator, lines: Sequence[str]) -> list[dict[str, Tensor]]:
    """Each line by itself, and all together, as the collator gives them."""
    examples = [made.task.raw(f"line {number}", line) for number, line in enumerate(lines)]
    items = collator.items(examples, training=False)
    assert len(items) == len(lines)  # none is cut
    groups = [*([item] for item in items), items]
    return [
        dict(on_device(collator(group, np.zeros(len(group), dtype=np.int64)), torch.device("cpu")))
        for group in groups
    ]


@torch.no_grad()
def expected(made: FinetuneRecipe, model: ModelWithHead, batch: dict[str, Tensor]) -> list[np.ndarray]:
    """The logits that tokenfree reads of a batch, [B, P, K] or less."""
    head: Any = model.head
    found = head.outputs(model.encoder, batch)
    if made.task.name != "qa_squad":
        return [found["logits"].numpy()]
    real = batch["choices"] & (batch["starts"] != -1)
    return [found[name].masked_fill(~real, 0).numpy() for name in ("start", "end")]


def read(made: FinetuneRecipe, outputs: Sequence[np.ndarray], batch: dict[str, Tensor]) -> list[np.ndarray]:
    """The same of the outputs of a graph."""
    if made.task.name == "tagging":
        return [np.take_along_axis(outputs[0], batch["places"].numpy()[..., None], axis=1)]
    if made.task.name == "qa_squad":
        real = (batch["choices"] & (batch["starts"] != -1)).numpy()
        return [np.where(real, output, 0) for output in outputs]
    return list(outputs)
