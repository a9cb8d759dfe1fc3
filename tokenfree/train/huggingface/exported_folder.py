"""A folder of transformers as it is written: weights, settings, tokenizer and model card."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import ModelCardData

from tokenfree.core.errors import UserError
from tokenfree.core.files import write_atomically
from tokenfree.core.locks import LOCK, claimed
from tokenfree.core.storage import Storage
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.mixture import load_data_manifest
from tokenfree.train.huggingface import bert, canine
from tokenfree.train.huggingface.weight_names import StateDict
from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.model.encoder import Encoder
from tokenfree.train.runs.checkpoints import CheckpointState, save_tensors
from tokenfree.train.runs.config import RESULT, RESULT_NAME, RunConfig, read_config

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


KINDS = {"canine": canine, "bert": bert}
SAFETENSORS = "model.safetensors"
TOKENIZER = Path(__file__).with_name("tokenization_tokenfree.py")
VOCABULARY = "tokenfree_vocabulary"  # a field of config.json that we add: the SHA-256 of the data's vocabulary


class Exported(NamedTuple):
    """What was exported."""

    reader: str  # the class of transformers that reads it
    step: int  # of the checkpoint


@contextlib.contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """Hold a folder that is new or empty against other commands; yields its path.

    Raises:
        UserError: there is something, or another command writes into it.
    """
    folder = Path(folder)
    if not (folder / LOCK).exists():  # else another command writes into it, or was killed
        _refuse_files(folder)
    with claimed(Storage.at(str(folder))):
        _refuse_files(folder)
        yield folder


def _refuse_files(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(path.name != LOCK for path in folder.iterdir())):
        raise UserError(f"{folder} is there already; give a new or empty folder")


def port_model(encoder: Encoder, vocabulary: str | None) -> tuple[StateDict, dict[str, Any]]:
    """The weights of `encoder` under the names of its model in transformers, and the fields of that one's config.

    Args:
        encoder: of the run.
        vocabulary: SHA-256 of the vocabulary whose subwords it reads, if it does.

    Raises:
        UserError: transformers has no model like it.
    """
    config = encoder.config
    kind = "bert" if config.embedder.name == "subword_table" else "canine"
    state, fields = KINDS[kind].to_huggingface(encoder, config)
    return state, fields | ({VOCABULARY: vocabulary} if kind == "bert" else {})


def tokenizer_name(fields: Mapping[str, Any]) -> str | None:
    """The file of the tokenizer of a model with these fields; None where it comes without."""
    return TOKENIZER.name if fields["model_type"] == "canine" else None


def write_folder(
    folder: Path, state: Mapping[str, Any], fields: Mapping[str, Any], encoder: TextEncoder, card: str
) -> None:
    """Write all files into a folder that `new_folder` gave; config.json, without which it is no model, comes last."""
    save_tensors(state, folder / SAFETENSORS, {"format": "pt"})
    if tokenizer_name(fields) is not None:
        _write_tokenizer(folder, encoder)
    write_atomically(folder / CARD, card)
    write_atomically(folder / "config.json", json.dumps(fields, indent=2) + "\n")


def _write_tokenizer(folder: Path, encoder: TextEncoder) -> None:
    """The tokenizer that pads, for `trust_remote_code=True`, and that of the port without."""
    fields = {
        "tokenizer_class": "CanineTokenizer",
        "model_max_length": encoder.length,
        "pad_group": encoder.group,
        "pad_spare": encoder.spare,
        "pad_reach": encoder.reach,
        "pad_block": encoder.block,
        "auto_map": {"AutoTokenizer": [f"{TOKENIZER.stem}.PaddedCanineTokenizer", None]},
    }
    write_atomically(folder / "tokenizer_config.json", json.dumps(fields, indent=2) + "\n")
    write_atomically(folder / TOKENIZER.name, TOKENIZER.read_text(encoding="utf-8"))
