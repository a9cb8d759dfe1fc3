"""Export of fine-tuned models as folders of transformers: the head, its class and the card.

The encoder's weights keep their names, with the model's name as prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.settings import fingerprint
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.huggingface.exported_folder import (
    HEADS,
    Exported,
    folder_model,
    front_matter,
    new_folder,
    refuse_other_words,
    result_of,
    table,
    usage,
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


class FolderHead(NamedTuple):
    """The head of a task in a folder."""

    kind: str  # suffix of its class name in transformers, after "Bert"
    pipeline: str  # the hub's name of the task
    fields: Fields  # fields of config.json
    own: Fields  # settings from which modeling_tokenfree.py builds it
    is_pooled: bool = False  # it reads the pooled vector
    has_port: bool = True  # transformers has a class with this head


def folder_head(task: DownstreamTask, head: TaskHead) -> FolderHead:
    """Return the head of a folder that is equivalent to `head`.

    Args:
        task: The fitted task.
        head: Head of the trained model.

    Raises:
        UserError: transformers has no equivalent head. The message has the reason.
    """
    if type(head) is TextHead:
        return _of_texts(task, head)
    if type(head) is PlaceHead:
        fields, own = _labels(_names(task, head)) | _dropout(head), {"dropout": head.classifier.dropout.rate}
        return FolderHead("ForTokenClassification", "token-classification", fields, own)
    if type(head) is SpanHead:
        if head.types is not None:
            raise UserError(f"task.name: transformers has no class that tells types of answers, as {task.name} does")
        return FolderHead("ForQuestionAnswering", "question-answering", {}, {})
    raise UserError(f"task.name: transformers has no class with the head of {task.name}; none is exported")


def with_head(
    state: Mapping[str, Tensor], fields: Mapping[str, Any], found: FolderHead, head: TaskHead
) -> tuple[StateDict, Fields]:
    """Return the weights and the fields of config.json of an encoder with a head.

    Args:
        state: Weights of the encoder, under the names of `folder_model`.
        fields: Fields of the encoder's config.json.
        found: Description of `head` for the folder.
        head: Head of the task.
    """
    kind, weights = (
        fields["model_type"],
        {f"head.{name}": weight.detach() for name, weight in head.state_dict().items()},
    )
    if kind == "tokenfree":
        return {**state, **weights}, {**fields, "architectures": [f"Tokenfree{found.kind}"], **found.fields}
    kept = {
        f"{kind}.{name}": tensor
        for name, tensor in state.items()
        if found.is_pooled or kind != "bert" or not name.startswith("pooler.")  # such a BERT has no pooler
    }
    for theirs, ours in HEADS.items():
        kept |= {name.replace(ours, theirs): weight for name, weight in weights.items() if name.startswith(ours)}
    given = {name: value for name, value in found.fields.items() if kind == "bert" or name != "classifier_dropout"}
    return kept, {**fields, "architectures": [f"{kind.capitalize()}{found.kind}"], **given}


def _of_texts(task: DownstreamTask, head: TextHead) -> FolderHead:
    if head.combine is not None:
        raise UserError("transformers has no class with this head: task.encode must be 'together', not 'apart'")
    if head.regression:
        fields: Fields = {"problem_type": "regression", **_labels(("number",))}
    else:
        fields = {"problem_type": "single_label_classification", **_labels(_names(task, head))}
    own = {"representation": head.vector.representation, "dropout": head.classifier.dropout.rate}
    is_pooled = head.vector.representation == "pooled"
    kind = "ForSequenceClassification"
    return FolderHead(kind, "text-classification", fields | _dropout(head), own, is_pooled, has_port=is_pooled)


def _names(task: DownstreamTask, head: TextHead | PlaceHead) -> Sequence[str]:
    """Return the names of the classes, or the default names of transformers if a custom task has none."""
    unnamed = [f"LABEL_{number}" for number in range(head.classifier.output.out_features)]
    return getattr(task, "labels", ()) or unnamed


def _labels(names: Sequence[str]) -> Fields:
    """Return the names of classes by number, and the reverse, in the form of JSON."""
    return {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }


def _dropout(head: TextHead | PlaceHead) -> Fields:
    """Return the field for the head's dropout. Only BERT has it; CANINE's heads use the encoder's dropout."""
    return {"classifier_dropout": head.classifier.dropout.rate}


OUTPUTS = {
    "ForSequenceClassification": "logits = model(**inputs).logits  # of each text, by `model.config.id2label`",
    "ForTokenClassification": "logits = model(**inputs).logits  # of CLS, the text, SEP and padding",
    "ForQuestionAnswering": "found = model(**inputs)  # start_logits and end_logits, of all positions",
}
PAIRS = """\
`transformers.CanineTokenizer` of version 5 gives both texts segment 0, which is wrong for this model; the tokenizer in
this folder gives the second text and its SEP segment 1."""
WORD_TAGS = "Words have single spaces between them; the tag of a word is that of its first {symbol}."


def _usage(
    config: RunConfig[FinetuneRecipe], encoder: TextEncoder, head: FolderHead, fields: Fields, *, has_tokenizer: bool
) -> str:
    """Return instructions for using the folder of a fine-tuned run, in Markdown."""
    is_answer, is_pair = head.kind == "ForQuestionAnswering", config.recipe.task.name == "pairs"
    texts = '["any text"], ["its second text"]' if is_pair else '["any text", "日本語"]'
    parts = [
        usage(
            fields,
            encoder,
            has_tokenizer=has_tokenizer,
            auto=f"AutoModel{head.kind}",
            texts='["a question"], ["its context"]' if is_answer else texts,
            outputs=OUTPUTS[head.kind],
            num_texts=2 if is_pair or is_answer else 1,
        )
    ]
    symbols = encoder.encoder.config.embedder.symbols
    if (is_pair or is_answer) and symbols != "subwords":
        parts.append(PAIRS)
    if head.kind == "ForTokenClassification":
        parts.append(WORD_TAGS.format(symbol="subword" if symbols == "subwords" else "character"))
    return "\n\n".join(parts)


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
    """Return a model card: task and usage of the model, followed by facts about its training.

    Args:
        run: Path or address of the run.
        config: Config of the run.
        step: Step of the checkpoint.
        kind: Name of the model, also used as a tag.
        library: Name of the library that loads it.
        pipeline: The hub's name of the task.
        labels: Labels of the classes, if any.
        usage: Usage instructions in Markdown.
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
    """Return the section with the scores of the run's result: a row per score, a column per split."""
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
        run: Path or address of the run.
        folder: Folder to write, new or empty.
        step: Step of the checkpoint; `checkpoint_of` chooses the default.
        trust_code: Whether to run the code outside tokenfree that the run names.

    Raises:
        UserError: The run does not exist, transformers has no class for its task, or the folder holds files.
        JobError: The checkpoint is damaged.
    """
    found = load_finetuned(run, step=step, trust_code=trust_code)
    assert isinstance(found.model.head, TaskHead), "the model was built by a task"
    head = folder_head(found.task, found.model.head)
    vocabulary = load_vocabulary(Run(run).name)
    encoder = TextEncoder(found.model.encoder, length=found.recipe.train.length)
    refuse_other_words(found.recipe.model, gives_words=True)
    sha256 = None if vocabulary is None else vocabulary.sha256
    state, fields = folder_model(encoder, {"head": head.own}, vocabulary=sha256, has_port=head.has_port)
    state, fields = with_head(state, fields, head, found.model.head)
    config = read_finetuned(run, trust_code=trust_code)
    has_tokenizer = vocabulary is not None or encoder.encoder.config.embedder.symbols != "subwords"
    card = card_of_task(
        run,
        config,
        found.step,
        kind="Encoder" if fields["model_type"] == "tokenfree" else fields["model_type"].upper(),
        library="transformers",
        pipeline=head.pipeline,
        labels=[] if fields.get("problem_type") == "regression" else list(fields.get("label2id", ())),
        usage=_usage(config, encoder, head, fields, has_tokenizer=has_tokenizer),
    )
    with new_folder(folder) as made:
        write_folder(made, state, fields, encoder, card, vocabulary)
    return Exported(fields["architectures"][0], found.step)
