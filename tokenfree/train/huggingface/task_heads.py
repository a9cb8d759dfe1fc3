"""The heads of tasks that a model of transformers has as well: its class, its weights, and the fields of its config.

Weights of the encoder keep their names, behind the name of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from tokenfree.preprocess.common.errors import UserError
from tokenfree.train.huggingface.weight_names import StateDict
from tokenfree.train.tasks.base import DownstreamTask, TaskHead
from tokenfree.train.tasks.heads import PlaceHead, TextHead
from tokenfree.train.tasks.question_answering.head import SpanHead

Fields = dict[str, Any]


class PortHead(NamedTuple):
    """The head of a model of transformers."""

    kind: str  # what follows "Bert" in the name of its class
    pipeline: str  # the hub's name of what it does
    module: nn.Linear
    name: str  # of that layer there
    fields: Fields
    is_pooled: bool  # whether it reads the pooled vector


def port_head(task: DownstreamTask, head: TaskHead) -> PortHead:
    """The head of transformers that computes what `head` does.

    Args:
        task: fitted.
        head: of a trained model.

    Raises:
        UserError: there is none, in one line that says why.
    """
    if type(head) is TextHead:
        return _of_texts(task, head)
    if type(head) is PlaceHead:
        fields = _labels(_names(task, head)) | _dropout(head)
        return PortHead(
            "ForTokenClassification", "token-classification", head.classifier.output, "classifier", fields, False
        )
    if type(head) is SpanHead:
        if head.types is not None:
            raise UserError(f"task.name: transformers has no class that tells types of answers, as {task.name} does")
        return PortHead("ForQuestionAnswering", "question-answering", head.spans, "qa_outputs", {}, False)
    raise UserError(f"task.name: transformers has no class with the head of {task.name}; none is exported")


def with_head(state: Mapping[str, Tensor], fields: Mapping[str, Any], head: PortHead) -> tuple[StateDict, Fields]:
    """The weights and the fields of an encoder with a head.

    Args:
        state: of the encoder, under the names of transformers.
        fields: of its config.
        head: of the task.
    """
    kind = fields["model_type"]
    kept = {
        f"{kind}.{name}": tensor
        for name, tensor in state.items()
        if head.is_pooled or kind != "bert" or not name.startswith("pooler.")  # which such a BERT is without
    }
    for name, tensor in head.module.state_dict().items():
        kept[f"{head.name}.{name}"] = tensor.detach()
    own = {name: value for name, value in head.fields.items() if kind == "bert" or name != "classifier_dropout"}
    return kept, {**fields, "architectures": [f"{kind.capitalize()}{head.kind}"], **own}


def _of_texts(task: DownstreamTask, head: TextHead) -> PortHead:
    wrong: list[str] = []
    if head.vector.representation != "pooled":
        wrong.append(f"task.representation must be 'pooled', not {head.vector.representation!r}")
    if head.combine is not None:
        wrong.append("task.encode must be 'together', not 'apart'")
    if wrong:
        raise UserError("transformers has no class with this head: " + "; ".join(wrong))
    if head.regression:
        fields: Fields = {"problem_type": "regression", **_labels(("number",))}
    else:
        fields = {"problem_type": "single_label_classification", **_labels(_names(task, head))}
    fields |= _dropout(head)
    module = head.classifier.output
    return PortHead("ForSequenceClassification", "text-classification", module, "classifier", fields, True)


def _names(task: DownstreamTask, head: TextHead | PlaceHead) -> Sequence[str]:
    """Of the classes; a task of the user's may have none, and they are then called as transformers does."""
    unnamed = [f"LABEL_{number}" for number in range(head.classifier.output.out_features)]
    return getattr(task, "labels", ()) or unnamed


def _labels(names: Sequence[str]) -> Fields:
    """The names of classes, by number and back, as JSON has them."""
    return {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }


def _dropout(head: TextHead | PlaceHead) -> Fields:
    """A field that only BERT's heads have; those of CANINE take the encoder's."""
    return {"classifier_dropout": head.classifier.dropout.rate}
