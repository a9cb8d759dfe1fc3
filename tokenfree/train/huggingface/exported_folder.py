"""Writing of folders for transformers: weights, settings, tokenizer and model card."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import ModelCardData
from torch import Tensor

from tokenfree.core.errors import UserError
from tokenfree.core.files import write_atomically
from tokenfree.core.locks import LOCK, claimed
from tokenfree.core.settings import to_mapping
from tokenfree.core.storage import Storage
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.mixture import load_data_manifest
from tokenfree.train.huggingface import bert, canine
from tokenfree.train.huggingface.weight_names import StateDict, layer_fields
from tokenfree.train.inference.text_encoder import TextEncoder
from tokenfree.train.model.encoder import Encoder, ModelConfig
from tokenfree.train.runs.checkpoints import CheckpointState, save_tensors
from tokenfree.train.runs.config import RESULT, RESULT_NAME, RunConfig

CARD = "README.md"
USAGE = """\
```python
import torch
from transformers import AutoTokenizer, {auto}

tokenizer = AutoTokenizer.from_pretrained("this folder", trust_remote_code=True)
model = {auto}.from_pretrained("this folder", trust_remote_code=True).eval()
inputs = tokenizer({texts}, padding=True, return_tensors="pt")
with torch.no_grad():
    {outputs}
```

`trust_remote_code=True` runs the Python files of this folder, which need tokenfree. The model pads each text as in
training, so any tokenizer of {symbols} is right."""
PORT = """\
`transformers.{reader}.from_pretrained("this folder")` opens the same weights without tokenfree."""
NO_TOKENIZER = """\
It reads ids of the subwords of its training data, whose tokenizer is not in this folder: [CLS] text [SEP], or [CLS]
text [SEP] second text [SEP] with the second text in segment 1."""
PADDING = """\
Warning: that class needs padding after each text, because it makes no unit for the last group of {group} characters.
The tokenizer of this folder always adds the padding, with attention mask 0. `transformers.CanineTokenizer`, which is
loaded without `trust_remote_code`, adds none. All outputs then differ, those of the last characters most. With it, pass
`padding="max_length"`, which pads to {length} positions. A smaller `max_length` must be a multiple of {whole}, and at
least {extra} more than the characters of the longest text. Texts of up to {characters} characters fit."""


def usage(
    fields: Mapping[str, Any],
    encoder: TextEncoder,
    *,
    has_tokenizer: bool,
    auto: str = "AutoModel",
    texts: str = '["any text", "日本語"]',
    outputs: str = "vectors = model(**inputs).last_hidden_state  # of CLS, the text, SEP, padding",
    num_texts: int = 1,
) -> str:
    """Return instructions for using a folder, in Markdown.

    Args:
        fields: Fields of config.json.
        encoder: The encoder in the folder.
        has_tokenizer: Whether the folder has a tokenizer.
        auto: Name of the Auto class that opens the folder.
        texts: Arguments of the tokenizer.
        outputs: Line of code that computes the outputs.
        num_texts: Number of texts of an input, each with a SEP after it.
    """
    symbols = "subwords" if encoder.encoder.config.embedder.symbols == "subwords" else "characters"
    parts = [USAGE.format(auto=auto, texts=texts, outputs=outputs, symbols=symbols)]
    if fields["model_type"] in KINDS:
        parts.append(PORT.format(reader=fields["architectures"][0]))
    if fields["model_type"] == "canine":
        parts.append(_padding_note(encoder, num_texts))
    if not has_tokenizer:
        parts.append(NO_TOKENIZER)
    return "\n\n".join(parts)


def card_of_run(
    run: str | Path, config: RunConfig[PretrainRecipe], state: CheckpointState, *, kind: str, library: str, usage: str
) -> str:
    """Return a model card: name and usage of the model, followed by facts about its training.

    Args:
        run: Path or address of the run.
        config: Config of the run.
        state: State in the checkpoint.
        kind: Name of the model, also used as a tag.
        library: Name of the library that loads it.
        usage: Usage instructions in Markdown.
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
    """Return the metadata at the top of a card, for the hub. `pipeline` is the hub's name of the model's task."""
    data = ModelCardData(
        language=list(languages) or None,
        library_name=library,
        pipeline_tag=pipeline,
        tags=[kind.lower(), "tokenfree"],
    )
    return f"---\n{data.to_yaml()}\n---"


def _padding_note(encoder: TextEncoder, num_texts: int) -> str:
    """Return a note on the padding that a CANINE needs if it is loaded without this folder's code."""
    return PADDING.format(
        group=encoder.group,
        length=encoder.length,
        whole=math.lcm(encoder.group, encoder.block or 1),  # including whole blocks of local attention
        extra=1 + num_texts + encoder.spare,
        characters=encoder.max_characters + 1 - num_texts,
    )


def _facts(config: RunConfig[PretrainRecipe], state: CheckpointState) -> list[tuple[str, Any]]:
    """Return table rows on the model and its training. An imported run was not trained."""
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
    """Return the section with the validation loss and the context-free baselines; [] if the run has no such loss."""
    progress = state.progress
    if progress is None or progress.validation is None:
        return []
    rows = [(f"this model, at step {progress.validated_at:,}", f"{progress.validation['validation_loss']:.4f}")]
    rows += [
        (f"baseline: {name.replace('_', ' ')}", f"{loss:.4f}") for name, loss in result.get("baselines", {}).items()
    ]
    return ["## Loss on held-out text", "Nats per target; the baselines read no context.", table(("", "loss"), rows)]


def result_of(run: str | Path) -> Mapping[str, Any]:
    """Return the contents of result.json of a finished run; {} for other runs."""
    try:
        return RESULT.json(Storage.at(str(run)), RESULT_NAME)
    except FileNotFoundError:
        return {}


def _languages(config: RunConfig[PretrainRecipe]) -> dict[str, int]:
    """Return the characters of the training split by language; {} if the data is missing or has changed."""
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
    """Return a Markdown table. Whole numbers get thousands separators."""
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


KINDS = {"canine": canine, "bert": bert}
SAFETENSORS = "model.safetensors"
TOKENIZER = Path(__file__).with_name("tokenization_tokenfree.py")
MODELING = Path(__file__).with_name("modeling_tokenfree.py")
TASKS = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
AUTO_MAP = {
    "AutoConfig": f"{MODELING.stem}.TokenfreeConfig",
    "AutoModel": f"{MODELING.stem}.TokenfreeModel",
    **{f"AutoModel{task}": f"{MODELING.stem}.Tokenfree{task}" for task in TASKS},
}
SUBWORDS = "subwords.model"
PREDICTS_CHARACTERS = ("canine_c", "masked_characters")
# Prefixes of the weights of heads in transformers, and in modeling_tokenfree.py.
HEADS = {"classifier.": "head.classifier.output.", "qa_outputs.": "head.spans.", "lm_head.": "lm_head."}
VOCABULARY = "tokenfree_vocabulary"  # our field of config.json: SHA-256 of the data's vocabulary


class Exported(NamedTuple):
    """Result of an export."""

    reader: str  # name of the transformers class that loads it
    step: int  # step of the checkpoint


@contextlib.contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """Lock a new or empty folder against other commands, and yield its path.

    Raises:
        UserError: The folder holds files, or another command writes into it.
    """
    folder = Path(folder)
    if not (folder / LOCK).exists():  # otherwise another command writes into it, or was killed
        _refuse_files(folder)
    with claimed(Storage.at(str(folder))):
        _refuse_files(folder)
        yield folder


def _refuse_files(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(path.name != LOCK for path in folder.iterdir())):
        raise UserError(f"{folder} is there already; give a new or empty folder")


def port_model(encoder: Encoder, vocabulary: str | None) -> tuple[StateDict, dict[str, Any]]:
    """Return the weights of `encoder` under the names of its transformers model, and the fields of that model's config.

    Args:
        encoder: Encoder of the run.
        vocabulary: SHA-256 of the vocabulary, for an encoder of subwords.

    Raises:
        UserError: transformers has no equivalent model.
    """
    config = encoder.config
    kind = "bert" if config.embedder.name == "subword_table" else "canine"
    state, fields = KINDS[kind].to_huggingface(encoder, config)
    return state, fields | ({VOCABULARY: vocabulary} if kind == "bert" else {})


def folder_model(
    encoder: TextEncoder, own: Mapping[str, Any], *, vocabulary: str | None, has_port: bool = True
) -> tuple[StateDict, dict[str, Any]]:
    """Return the weights and the fields of config.json of an encoder.

    They are those of the equivalent transformers model if there is one, else those of modeling_tokenfree.py.

    Args:
        encoder: Encoder of the run.
        own: Settings from which modeling_tokenfree.py builds heads.
        vocabulary: SHA-256 of the vocabulary, for an encoder of subwords.
        has_port: Whether transformers has an equivalent head.
    """
    config = encoder.encoder.config
    own = {**own, "model": to_mapping(config), "length": encoder.length}
    with contextlib.suppress(UserError):  # transformers has no equivalent model
        if has_port:
            state, fields = port_model(encoder.encoder, vocabulary)
            own["port"] = fields["model_type"]
            return state, {**fields, "tokenfree": own, "auto_map": AUTO_MAP}
    state = {f"encoder.{name}": tensor.detach() for name, tensor in encoder.encoder.state_dict().items()}
    fields = {"model_type": "tokenfree", "architectures": ["TokenfreeModel"], **layer_fields(config)}
    return state, {**fields, "tokenfree": own, "auto_map": AUTO_MAP}


def refuse_other_words(config: ModelConfig, *, gives_words: bool) -> None:
    """Check that a tokenizer of an exported folder can produce the model's input.

    Raises:
        UserError: The model's words are the subwords of its data, or it reads vectors.
    """
    if config.downsampler.bytes_per_word is not None and not gives_words:
        raise UserError(
            "objective.words: subwords need the vocabulary of the data, which no class of transformers reads. Export "
            "to ONNX, or train with objective.words: rules."
        )
    if config.embedder.symbols == "vectors":
        raise UserError(f"model.embedder.name: {config.embedder.name} reads vectors, which no tokenizer gives.")


def from_port(kind: str, weights: Mapping[str, Tensor], fields: Mapping[str, Any]) -> StateDict:
    """Return the weights of a folder under the names of modeling_tokenfree.py instead of those of transformers.

    Raises:
        UserError: They are not the weights of such a model.
    """
    prefixes = {name: next((prefix for prefix in HEADS if name.startswith(prefix)), None) for name in weights}
    encoder, _ = KINDS[kind].from_huggingface({name: weights[name] for name in weights if not prefixes[name]}, fields)
    heads = {HEADS[prefix] + name.removeprefix(prefix): weights[name] for name, prefix in prefixes.items() if prefix}
    return heads | {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}


def write_folder(
    folder: Path,
    state: Mapping[str, Any],
    fields: Mapping[str, Any],
    encoder: TextEncoder,
    card: str,
    vocabulary: Vocabulary | None = None,
) -> None:
    """Write all files into a folder from `new_folder`. config.json comes last: a folder without it is no model."""
    save_tensors(state, folder / SAFETENSORS, {"format": "pt"})
    _write_tokenizer(folder, encoder, fields, vocabulary)
    write_atomically(folder / MODELING.name, MODELING.read_text(encoding="utf-8"))
    write_atomically(folder / CARD, card)
    write_atomically(folder / "config.json", json.dumps(fields, indent=2) + "\n")


def _write_tokenizer(
    folder: Path, encoder: TextEncoder, fields: Mapping[str, Any], vocabulary: Vocabulary | None
) -> None:
    """Write the tokenizer of codepoints, with the padding for `CanineModel`, or that of the vocabulary's subwords."""
    symbols, length = encoder.encoder.config.embedder.symbols, encoder.length
    made: dict[str, Any]
    if symbols == "subwords":
        if vocabulary is None:
            return
        write_atomically(folder / SUBWORDS, vocabulary.model)
        made, name = _subword_fields(vocabulary, length - encoder.spare), "SubwordTokenizer"
    else:
        name = "PaddedCanineTokenizer"
        made = {"tokenizer_class": "CanineTokenizer", "model_max_length": length, "pad_group": encoder.group}
        made |= {"pad_spare": encoder.spare, "pad_reach": encoder.reach, "pad_block": encoder.block or length}
        if symbols == "bytes":  # the encoder's positions are bytes, not codepoints
            made |= {"model_max_length": encoder.max_characters + 2, "pad_group": 1, "pad_spare": 0, "pad_reach": 0}
        objective = fields.get("tokenfree", {}).get("objective")
        if objective is not None and objective["name"] not in PREDICTS_CHARACTERS:
            made["mask_token"] = None  # the fill-mask pipeline would decode subword ids as characters
    made["auto_map"] = {"AutoTokenizer": [f"{TOKENIZER.stem}.{name}", None]}
    write_atomically(folder / "tokenizer_config.json", json.dumps(made, indent=2) + "\n")
    write_atomically(folder / TOKENIZER.name, TOKENIZER.read_text(encoding="utf-8"))


def _subword_fields(vocabulary: Vocabulary, length: int) -> dict[str, Any]:
    special = [f"[{name}]" for name in ("CLS", "SEP", "MASK")]
    added = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    return {
        "model_max_length": length,
        "special_tokens_pattern": "cls_sep",
        **{f"{name[1:-1].lower()}_token": name for name in special},
        "pad_token": vocabulary.pieces()[0],
        "unk_token": vocabulary.pieces()[1],
        "added_tokens_decoder": {
            str(vocabulary.size + n): {"content": name, **added} for n, name in enumerate(special)
        },
    }
