"""Fine-tuned models as folders of transformers: the head, its class and the card.

Weights of the encoder keep their names, with the name of the model as prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from tokenfree.core.errors import UserError
from tokenfree.core.settings import fingerprint
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.huggingface.exported_folder import (
    Exported,
    front_matter,
    new_folder,
    padding_note,
    port_model,
    result_of,
    table,
    tokenizer_name,
    write_folder,
)
from tokenfree.train.huggingface.weight_names import StateDict
from tokenfree.train.inference.finetuned import load_finetuned
from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.runs.config import RunConfig, read_finetuned
from tokenfree.train.runs.run import Run
from tokenfree.train.tasks.base import DownstreamTask, TaskHead
from tokenfree.train.tasks.heads import PlaceHead, TextHead
from tokenfree.train.tasks.questions import SpanHead

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


CANINE = """\
```python
import torch
from transformers import AutoTokenizer, {reader}

tokenizer = AutoTokenizer.from_pretrained("this folder", trust_remote_code=True)
model = {reader}.from_pretrained("this folder").eval()
inputs = tokenizer({texts}, padding="longest", return_tensors="pt")
with torch.no_grad():
    {outputs}
```"""
BERT = """\
```python
from transformers import {reader}

model = {reader}.from_pretrained("this folder").eval()
```

It reads ids of the subwords of its training data, whose SentencePiece model is in the run and not in this folder: [CLS]
text [SEP], or [CLS] text [SEP] second text [SEP] with the second text in segment 1."""
OUTPUTS = {
    "ForSequenceClassification": "logits = model(**inputs).logits  # of each text, by `model.config.id2label`",
    "ForTokenClassification": "logits = model(**inputs).logits  # of CLS, each character, SEP and padding",
    "ForQuestionAnswering": "found = model(**inputs)  # start_logits and end_logits, of all positions",
}
PAIRS = """\
`transformers.CanineTokenizer` of version 5 gives both texts segment 0, which is wrong for this model; the tokenizer in
this folder gives the second text and its SEP segment 1."""
WORD_TAGS = "Words have single spaces between them; the tag of a word is that of its first {symbol}."


def task_card(
    run: str | Path,
    config: RunConfig[FinetuneRecipe],
    step: int,
    encoder: TextEncoder,
    head: PortHead,
    fields: Mapping[str, Any],
    tokenizer: str | None,
) -> str:
    """The text of the card of a fine-tuned run's checkpoint, in Markdown with front matter.

    Args:
        run: path or address of the run.
        config: that of the run.
        step: of the checkpoint.
        encoder: of the checkpoint.
        head: of the task.
        fields: of config.json.
        tokenizer: the file of the exported tokenizer; None for a model that comes without.
    """
    kind, reader = fields["model_type"].upper(), fields["architectures"][0]
    sections: list[str] = []
    if tokenizer is None:
        sections.append(BERT.format(reader=reader))
    else:
        is_pair = config.recipe.task.name == "pairs" or head.kind == "ForQuestionAnswering"
        texts = '["any text"], ["its second text"]' if is_pair else '["any text", "日本語"]'
        if head.kind == "ForQuestionAnswering":
            texts = '["a question"], ["its context"]'
        sections.append(CANINE.format(reader=reader, texts=texts, outputs=OUTPUTS[head.kind]))
        sections.append(padding_note(encoder, tokenizer, texts=2 if is_pair else 1))
        if is_pair:
            sections.append(PAIRS)
    if head.kind == "ForTokenClassification":
        sections.append(WORD_TAGS.format(symbol="subword" if tokenizer is None else "character"))
    labels = [] if fields.get("problem_type") == "regression" else list(fields.get("label2id", ()))
    usage = "\n\n".join(sections)
    return card_of_task(
        run, config, step, kind=kind, library="transformers", pipeline=head.pipeline, labels=labels, usage=usage
    )


def card_of_task(
    run: str | Path,
    config: RunConfig[FinetuneRecipe],
    step: int,
    *,
    kind: str,
    library: str,
    pipeline: str,
    labels: Sequence[str],
    usage: str,
) -> str:
    """A card that begins with what the model does and how it is used, and goes on with what the run says of itself.

    Args:
        run: path or address of the run.
        config: that of the run.
        step: of the checkpoint.
        kind: the model's name, also a tag.
        library: what loads it.
        pipeline: the hub's name of what it does.
        labels: of its classes, if it has some.
        usage: how, in Markdown.
    """
    sections = [
        front_matter(kind, library=library, pipeline=pipeline),
        f"# {kind} for {pipeline.replace('-', ' ')}, fine-tuned by tokenfree",
        usage,
        "## Training",
        table(("", ""), _facts(config, step, labels)),
        *_scores(result_of(run)),
    ]
    return "\n\n".join(sections) + "\n"


def _facts(config: RunConfig[FinetuneRecipe], step: int, labels: Sequence[str]) -> list[tuple[str, Any]]:
    recipe, model = config.recipe, config.recipe.model
    facts: list[tuple[str, Any]] = [
        ("model", f"{model.trunk.layers} layers of width {model.width}, {model.trunk.heads} heads"),
        ("task", recipe.task.name),
    ]
    if labels:
        facts.append(("labels", ", ".join(_escaped(labels))))
    return [
        *facts,
        ("positions of an input", recipe.train.length),
        ("steps", step),
        ("inputs of a step", recipe.train.global_batch),
        ("recipe", f"`{fingerprint(recipe)}`"),
        ("data", f"`{config.manifest}`"),
    ]


def _escaped(labels: Sequence[str]) -> list[str]:
    return [label.replace("|", "\\|").replace("\n", " ") for label in labels]


def _scores(result: Mapping[str, Any]) -> list[str]:
    """The scores of the run's result, a row each, beside those on other splits."""
    splits = [split for split in ("dev", "test") if result.get(split)]
    if not splits:
        return []
    rows = [
        (name.replace("_", " "), *(f"{result[split][name]:.4f}" for split in splits))
        for name in result[splits[0]]
        if all(name in result[split] for split in splits)
    ]
    return ["## Scores", table(("", *splits), rows)]


def export_finetuned(
    run: str | Path, folder: str | Path, *, step: int | None = None, trust_code: bool = False
) -> Exported:
    """Write a fine-tuning `run` with its head as a new `folder` for `from_pretrained`.

    Args:
        run: its path or address.
        folder: new or empty.
        step: use the checkpoint of this step; see `checkpoint_of` for the default.
        trust_code: run the code outside tokenfree that the run names.

    Raises:
        UserError: there is no such run, transformers has no class with its head or its encoder, or the folder holds
            files already.
        JobError: the checkpoint is damaged.
    """
    found = load_finetuned(run, step=step, trust_code=trust_code)
    assert isinstance(found.model.head, TaskHead), "the model was built by a task"
    head = port_head(found.task, found.model.head)
    vocabulary = load_vocabulary(Run(run).name)
    state, fields = port_model(found.model.encoder, None if vocabulary is None else vocabulary.sha256)
    state, fields = with_head(state, fields, head)
    encoder = TextEncoder(found.model.encoder, length=found.recipe.train.length)
    config = read_finetuned(run, trust_code=trust_code)
    card = task_card(run, config, found.step, encoder, head, fields, tokenizer_name(fields))
    with new_folder(folder) as made:
        write_folder(made, state, fields, encoder, card)
    return Exported(fields["architectures"][0], found.step)
