"""Heads of fine-tuned models in exported folders: their class in transformers, settings and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.train.huggingface.exported_folder import HEADS
from tokenfree.train.huggingface.weight_names import StateDict
from tokenfree.train.tasks.base import DownstreamTask, TaskHead
from tokenfree.train.tasks.heads import PlaceHead, TextHead
from tokenfree.train.tasks.questions import SpanHead

Fields = dict[str, Any]


class FolderHead(NamedTuple):
    kind: str  # suffix of its class name in transformers, after "Bert"
    pipeline: str  # the hub's name of the task
    fields: Fields  # fields of config.json
    own: Fields  # settings from which modeling_tokenfree.py builds it
    is_pooled: bool = False  # it reads the pooled vector
    has_port: bool = True  # transformers has a class with this head


def folder_head(task: DownstreamTask, head: TaskHead) -> FolderHead:
    """Return the description of a trained head. Raises UserError if transformers has no equivalent head."""
    if type(head) is SpanHead and head.types is None:
        return FolderHead("ForQuestionAnswering", "question-answering", {}, {})
    is_of_places = type(head) is PlaceHead
    if not is_of_places and (type(head) is not TextHead or head.combine is not None):
        raise UserError(
            f"task.name: {task.name} with these settings has a head that cannot be exported. classification, tagging, "
            "qa_squad, and pairs with task.encode: together can be; for others use `tokenfree predict`."
        )
    assert isinstance(head, (PlaceHead, TextHead))
    unnamed = [f"LABEL_{number}" for number in range(head.classifier.output.out_features)]
    names = ["number"] if head.regression else getattr(task, "labels", ()) or unnamed
    own: Fields = {"dropout": head.classifier.dropout.rate}
    fields: Fields = {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
        "classifier_dropout": own["dropout"],  # BERT has it; CANINE's heads use the encoder's dropout
    }
    if is_of_places:
        return FolderHead("ForTokenClassification", "token-classification", fields, own)
    assert isinstance(head, TextHead)
    fields["problem_type"] = "regression" if head.regression else "single_label_classification"
    own["representation"] = head.vector.representation
    is_pooled = own["representation"] == "pooled"
    return FolderHead(
        "ForSequenceClassification", "text-classification", fields, own, is_pooled=is_pooled, has_port=is_pooled
    )


def with_head(
    state: Mapping[str, Tensor], fields: Mapping[str, Any], found: FolderHead, head: TaskHead
) -> tuple[StateDict, Fields]:
    kind = fields["model_type"]
    weights = {f"head.{name}": weight.detach() for name, weight in head.state_dict().items()}
    if kind == "tokenfree":
        return {**state, **weights}, {**fields, "architectures": [f"Tokenfree{found.kind}"], **found.fields}
    kept = {
        f"{kind}.{name}": tensor
        for name, tensor in state.items()
        if found.is_pooled or kind != "bert" or not name.startswith("pooler.")  # such a BERT has no pooler
    }
    for theirs, ours in HEADS.items():
        kept |= {name.replace(ours, theirs): weight for name, weight in weights.items() if name.startswith(ours)}
    return kept, {**fields, "architectures": [f"{kind.capitalize()}{found.kind}"], **found.fields}
