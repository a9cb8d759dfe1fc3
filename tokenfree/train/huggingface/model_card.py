"""README.md of an exported folder: a model card with the facts of the training, the languages and how to load it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from tokenfree.preprocess.common.errors import UserError
from tokenfree.preprocess.common.storage import Storage
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.mixture.contents import load_data_manifest
from tokenfree.train.runs.checkpoint_state import CheckpointState
from tokenfree.train.runs.run_config import RunConfig, read_config
from tokenfree.train.runs.run_files import RESULT, RESULT_NAME

CARD = "README.md"
CANINE = """\
```python
import torch
from transformers import AutoTokenizer, CanineModel

tokenizer = AutoTokenizer.from_pretrained("this folder", trust_remote_code=True)
model = CanineModel.from_pretrained("this folder").eval()
inputs = tokenizer(["any text", "日本語"], padding="longest", return_tensors="pt")
with torch.no_grad():
    vectors = model(**inputs).last_hidden_state  # CLS, the characters, SEP, padding
```
"""
PADDING = """\
The model needs padding after a text: its last group of {group} characters has no unit of its own. The tokenizer in this
folder (`{tokenizer}`, which `trust_remote_code=True` runs) adds it, with the attention mask 0, also to one text without
`padding`. `transformers.CanineTokenizer`, which is loaded without that option, adds none, and the vectors of the last
characters are then others, and to a lesser degree all. With it, pass `padding="max_length"`, which pads to
{length} positions, or with a smaller `max_length`: a multiple of {whole}, at least {extra} more than the characters of
the longest text. Texts of up to {characters} characters fit."""
BERT = """\
```python
from transformers import BertModel

model = BertModel.from_pretrained("this folder").eval()
```

It reads the subwords of its training data, whose tokenizer is not in this folder."""


def model_card(
    run: str | Path,
    encoder: TextEncoder,
    state: CheckpointState,
    tokenizer: str | None,
    *,
    trust_code: bool = False,
) -> str:
    """The text of the card of a run's checkpoint, in Markdown with front matter.

    Args:
        run: path or address of the run.
        encoder: its encoder.
        state: what the checkpoint says of itself.
        tokenizer: the file of the exported tokenizer; None for a model that comes without.
        trust_code: run the code outside tokenfree that the run names.

    Raises:
        UserError: there is no such run.
    """
    kind = "BERT" if tokenizer is None else "CANINE"
    snippet = BERT if tokenizer is None else f"{CANINE}\n{padding_note(encoder, tokenizer)}"
    config = read_config(run, trust_code=trust_code)
    return card_of_run(run, config, state, kind=kind, library="transformers", usage=snippet)


def card_of_run(
    run: str | Path, config: RunConfig[PretrainRecipe], state: CheckpointState, *, kind: str, library: str, usage: str
) -> str:
    """A card that begins with what the model is and how it is used, and goes on with what the run says of itself.

    Args:
        run: path or address of the run.
        config: that of the run.
        state: what the checkpoint says of itself.
        kind: the model's name, also a tag.
        library: what loads it.
        usage: how, in Markdown.
    """
    languages = _languages(config)
    sections = [
        front_matter(kind, library=library, pipeline="feature-extraction", languages=list(languages)),
        f"# {kind}: an encoder trained by tokenfree",
        usage,
        "## Training",
        table(("", ""), _facts(config, state)),
        *_losses(result_of(run), state),
    ]
    if languages:
        sections += ["## Languages", table(("language", "characters of the training split"), languages.items())]
    return "\n\n".join(sections) + "\n"


def front_matter(kind: str, *, library: str, pipeline: str, languages: Sequence[str] = ()) -> str:
    """The first lines of a card, which the hub reads; `pipeline` is the hub's name of what the model does."""
    data = ModelCardData(
        language=list(languages) or None,
        library_name=library,
        pipeline_tag=pipeline,
        tags=[kind.lower(), "tokenfree"],
    )
    return f"---\n{data.to_yaml()}\n---"


def padding_note(encoder: TextEncoder, tokenizer: str, *, texts: int = 1) -> str:
    """What has to be known of the padding of a CANINE; `texts`: of an input, each with a SEP behind it."""
    return PADDING.format(
        group=encoder.group,
        length=encoder.length,
        tokenizer=tokenizer,
        whole=math.lcm(encoder.group, encoder.block or 1),  # whole blocks of local attention, too
        extra=1 + texts + encoder.spare,
        characters=encoder.max_characters + 1 - texts,
    )


def _facts(config: RunConfig[PretrainRecipe], state: CheckpointState) -> list[tuple[str, Any]]:
    """What was trained, and how much; an imported run has not been trained."""
    recipe = config.recipe
    model = recipe.model
    facts: list[tuple[str, Any]] = [
        ("model", f"{model.trunk.layers} layers of width {model.width}, {model.trunk.heads} heads"),
        ("objective", recipe.objective.name),
        ("positions of an example", recipe.train.length),
    ]
    if not config.manifest:
        return [*facts[:1], ("weights", "imported, not trained by tokenfree")]
    facts += [("steps", state.step), ("examples of a step", recipe.train.global_batch)]
    if state.progress is not None:
        facts.append(("characters trained on", state.progress.characters))
    return [*facts, ("recipe", f"`{state.recipe}`"), ("data", f"`{config.manifest}`")]


def _losses(result: Mapping[str, Any], state: CheckpointState) -> list[str]:
    """The loss on held-out text beside those of models that read no context, as far as the run has them."""
    progress = state.progress
    if progress is None or progress.validation is None:
        return []
    rows = [(f"this model, at step {progress.validated_at:,}", f"{progress.validation['validation_loss']:.4f}")]
    rows += [
        (f"baseline: {name.replace('_', ' ')}", f"{loss:.4f}") for name, loss in result.get("baselines", {}).items()
    ]
    return ["## Loss on held-out text", "Nats per target; the baselines read no context.", table(("", "loss"), rows)]


def result_of(run: str | Path) -> Mapping[str, Any]:
    """What result.json says of a run that has ended, else nothing."""
    try:
        return RESULT.json(Storage.at(str(run)), RESULT_NAME)
    except FileNotFoundError:
        return {}


def _languages(config: RunConfig[PretrainRecipe]) -> dict[str, int]:
    """Characters of the training split by language; none where the data are no longer there, or are others by now."""
    if not config.manifest:
        return {}
    try:
        manifest = load_data_manifest(config.data)
    except UserError:
        return {}
    if manifest.fingerprint != config.manifest:
        return {}
    characters = dict.fromkeys(sorted({shard.language for shard in manifest.splits["train"].shards}), 0)
    for shard in manifest.splits["train"].shards:
        characters[shard.language] += shard.characters
    return characters


def table(head: tuple[str, ...], rows: Any) -> str:
    """A table in Markdown; whole numbers have commas."""
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
