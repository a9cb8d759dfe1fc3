"""README.md of an exported folder with a fine-tuned model: its task, how to load it, its training and its scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenfree.preprocess.common.settings import fingerprint
from tokenfree.train.config import FinetuneRecipe
from tokenfree.train.huggingface.model_card import front_matter, padding_note, result_of, table
from tokenfree.train.huggingface.task_heads import PortHead
from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.runs.run_config import RunConfig

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
