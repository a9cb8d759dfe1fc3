"""Writing of folders for transformers: the model of a run, its head, weights, settings, tokenizer and model card."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import ModelCardData
from torch import Tensor, nn

from tokenfree.core.errors import UserError
from tokenfree.core.files import TEMPORARY, AnyPath, expand_home, write_atomically
from tokenfree.core.locks import exclusive
from tokenfree.core.settings_values import code_hashes, fingerprint
from tokenfree.core.storage import Storage
from tokenfree.core.stored_files import hashes_of, record_hashes
from tokenfree.preprocess.dataset.manifest import load_vocabulary
from tokenfree.preprocess.features.vocabulary import Vocabulary
from tokenfree.train.batches.ngrams import text_features, word_features
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.data.shards import load_data_vocabulary
from tokenfree.train.huggingface import bert, canine
from tokenfree.train.huggingface.exported_code import Key, Program
from tokenfree.train.huggingface.weight_names import HEADS, SAFETENSORS, StateDict, layer_fields
from tokenfree.train.inference.finetuned import load_finetuned
from tokenfree.train.inference.text_encoder import TextEncoder, load_encoder
from tokenfree.train.model.common.attention import LayerBias, PairValues
from tokenfree.train.model.encoder import Encoder, check
from tokenfree.train.runs.checkpoints import Checkpoint, save_tensors
from tokenfree.train.runs.config import RunConfig, is_finetuned, read_config, read_finetuned
from tokenfree.train.runs.formats import METRICS, METRICS_NAME, main_baselines
from tokenfree.train.runs.run import Run
from tokenfree.train.tasks.base import DownstreamTask, TaskHead
from tokenfree.train.tasks.heads import PlaceHead, TextHead
from tokenfree.train.tasks.inputs import Padding, text_inputs
from tokenfree.train.tasks.questions import SpanHead
from tokenfree.train.torch_state import random_numbers

CARD = "README.md"
USAGE = """\
```python
import torch
from transformers import AutoTokenizer, {auto}

tokenizer = AutoTokenizer.from_pretrained("this folder", trust_remote_code=True)
model = {auto}.from_pretrained("this folder", trust_remote_code=True).eval()
inputs = tokenizer({texts}, padding=True, return_tensors="pt")
with torch.no_grad():
    outputs = model(**inputs)
```

`trust_remote_code=True` runs the Python files of this folder. The model pads each text as in training, so any
tokenizer of {symbols} is right."""
PORT = """\
`transformers.{reader}.from_pretrained("this folder")` opens the same weights without them."""
NO_TOKENIZER = """\
It reads ids of the subwords of its training data, whose tokenizer is not in this folder: [CLS] text [SEP], or [CLS]
text [SEP] second text [SEP] with the second text in segment 1."""
PADDING = """\
Warning: that class needs padding after each text. The tokenizer of this folder always adds it, with attention mask 0.
`transformers.CanineTokenizer`, which is loaded without `trust_remote_code`, adds none. All outputs then differ, those
of the last characters most. With it, pass `padding="max_length"` and `max_length={length}`."""


class Model(NamedTuple):
    """The model of a run to export. Fine-tuned runs have a task and its head."""

    run: AnyPath
    config: RunConfig[Any]
    checkpoint: Checkpoint
    encoder: TextEncoder
    # Of the run's data; None: it has none, or the data is missing or has changed.
    vocabulary: Vocabulary | None
    task: DownstreamTask | None = None
    head: TaskHead | None = None


def read_model(run: AnyPath, step: int | None, *, trust_code: bool) -> Model:
    """Return the model of a run.

    Raises UserError if it or the checkpoint does not exist, JobError if it is damaged.
    """
    if not is_finetuned(run):
        encoder, config = (
            load_encoder(run, step=step, trust_code=trust_code),
            read_config(run, trust_code=trust_code),
        )
        assert encoder.checkpoint is not None, "it is of a run"
        sha256 = encoder.checkpoint.state.vocabulary
        return Model(run, config, encoder.checkpoint, encoder, _vocabulary_of(config, sha256))
    finetuned, config = (
        load_finetuned(run, step=step, trust_code=trust_code),
        read_finetuned(run, trust_code=trust_code),
    )
    assert isinstance(finetuned.model.head, TaskHead), "the model was built by a task"
    encoder = TextEncoder(finetuned.model.encoder, length=finetuned.recipe.train.length)
    vocabulary = load_vocabulary(Run(run).name)
    return Model(run, config, finetuned.checkpoint, encoder, vocabulary, finetuned.task, finetuned.model.head)


def _vocabulary_of(config: RunConfig[PretrainRecipe], sha256: str | None) -> Vocabulary | None:
    if sha256 is None or not config.manifest:
        return None
    try:
        vocabulary = load_data_vocabulary(config.data)
    except UserError:
        return None
    return vocabulary if vocabulary is not None and vocabulary.sha256 == sha256 else None


def usage(fields: Mapping[str, Any], model: Model, *, texts: str) -> str:
    """Return instructions for using a folder, in Markdown. `fields` are those of config.json."""
    reader = fields["architectures"][0]
    reads_subwords = model.encoder.encoder.config.embedder.symbols == "subwords"
    symbols = "subwords" if reads_subwords else "characters"
    parts = [USAGE.format(auto=auto_class(reader), texts=texts, symbols=symbols)]
    if fields["model_type"] in KINDS:
        parts.append(PORT.format(reader=reader))
    if fields["model_type"] == "canine":
        parts.append(PADDING.format(length=model.encoder.length))
    if reads_subwords and model.vocabulary is None:
        parts.append(NO_TOKENIZER)
    return "\n\n".join(parts)


def auto_class(reader: str) -> str:
    """Return the Auto class that opens a folder with the architecture `reader`."""
    return f"AutoModel{reader[reader.find('For') :] if 'For' in reader else ''}"


def model_card(model: Model, *, kind: str, library: str, pipeline: str, usage: str) -> str:
    """Return a model card: metadata for the hub, name and usage of the model, and facts about its training."""
    data = ModelCardData(library_name=library, pipeline_tag=pipeline, tags=[kind.lower(), "tokenfree"])
    rows = "\n".join(f"| {name} | {value} |" for name, value in [*_facts(model), *_scores(model)])
    title = f"# {kind}: {pipeline.replace('-', ' ')}, trained by tokenfree"
    return (
        f"---\n{data.to_yaml()}\n---\n\n{title}\n\n{usage}\n\n## Training\n\n| | |\n| --- | --- |\n{rows}\n"
    )


def _facts(model: Model) -> list[tuple[str, Any]]:
    recipe, trunk = model.config.recipe, model.config.recipe.model.trunk
    facts = [("model", f"{trunk.layers} layers of width {recipe.model.width}, {trunk.heads} heads")]
    if not model.config.manifest:
        return [*facts, ("weights", "imported, not trained by tokenfree")]
    labels = ", ".join(getattr(model.task, "labels", ())).replace("|", "\\|").replace("\n", " ")
    return [
        *facts,
        ("objective", recipe.objective.name) if model.task is None else ("task", model.task.name),
        *([("labels", labels)] if labels else []),
        ("positions of an example", recipe.train.length),
        ("steps", model.checkpoint.step),
        ("examples of a step", recipe.train.global_batch),
        ("recipe", f"`{fingerprint(recipe)}`"),
        ("data", f"`{model.config.manifest}`"),
    ]


def _scores(model: Model) -> Iterator[tuple[str, str]]:
    """Yield scores with their step. Those of a fine-tuned run are of its checkpoint, or there are none."""
    run, step = Run(model.run), model.checkpoint.step
    result = run.result() or {}
    if model.task is None:
        lines = METRICS.json_lines(run.storage, METRICS_NAME)
        validations = [line for line in lines if "validation_loss" in line and line["step"] <= step]
        for line in validations[-1:]:
            yield f"validation loss, step {line['step']:,}", f"{line['validation_loss']:.4f}"
        for name, loss in (result.get("baselines") or {}).items():
            yield f"baseline without context: {name.replace('_', ' ')}", f"{loss:.4f}"
        return
    if step != next((result[name] for name in ("best_step", "steps") if result.get(name) is not None), None):
        return
    for split in ("dev", "test"):
        for name, score in (result.get(split) or {}).items():
            yield f"{split}: {name.replace('_', ' ')}, step {step:,}", f"{score:.4f}"
        for name, score in main_baselines(result, split).items():
            yield f"{split}: baseline, {name}", f"{score:.4f}"


KINDS = {"canine": canine, "bert": bert}
TOKENIZER = "tokenization_tokenfree"
TASKS = ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
MODELING = "modeling_tokenfree"
AUTO_MAP = {
    "AutoConfig": f"{MODELING}.TokenfreeConfig",
    "AutoModel": f"{MODELING}.TokenfreeModel",
    **{f"AutoModel{task}": f"{MODELING}.Tokenfree{task}" for task in TASKS},
}
SUBWORDS = "subwords.model"
PREDICTS_CHARACTERS = ("canine_c", "masked_characters")
VOCABULARY = "tokenfree_vocabulary"  # our field of config.json: SHA-256 of the data's vocabulary


class Exported(NamedTuple):
    reader: str  # name of the class that loads it
    step: int  # step of the checkpoint


@contextlib.contextmanager
def new_folder(folder: AnyPath) -> Iterator[Path]:
    """Yield a folder beside `folder` that becomes it, with hashes of its files, at the end.

    An error leaves no folder.

    Raises UserError if `folder` holds files, cannot be replaced, or another command writes it.
    """
    target = Path(os.path.realpath(expand_home(folder)))
    _refuse_files(target)
    temporary = target.with_name(f"{TEMPORARY}_{target.name}")
    held = UserError(f"{target}: another command writes into it. Wait for it or give another output")
    with exclusive(temporary.with_name(f"{temporary.name}.lock"), held):
        _refuse_files(target)
        # Of a killed command.
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir()
            yield temporary
            storage = Storage.at(str(temporary))
            record_hashes(storage, hashes_of(storage, storage.find()))
            if target.exists():
                shutil.copymode(target, temporary)
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _refuse_files(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already; give a new or empty folder")
    if folder.is_mount() or folder == Path.cwd():
        raise UserError(f"{folder} cannot be replaced; give a folder in it")


def port_model(encoder: Encoder, vocabulary: str | None) -> tuple[StateDict, dict[str, Any]]:
    """Return the weights under the names of the equivalent transformers model, and the fields of its config.

    `vocabulary` is the SHA-256 of an encoder's subwords. Raises UserError if there is no equivalent model.
    """
    config = encoder.config
    kind = "bert" if config.embedder.name == "subword_table" else "canine"
    state, fields = KINDS[kind].to_huggingface(encoder, config)
    return state, fields | ({VOCABULARY: vocabulary} if kind == "bert" else {})


def folder_model(
    model: Model, settings: Mapping[str, Any], *, has_port: bool = True
) -> tuple[StateDict, dict[str, Any]]:
    """Return the weights and the fields of config.json of an encoder, for modeling_tokenfree.py unless it `has_port`.

    That file builds heads from the settings `settings`. Raises UserError if no tokenizer can produce the
    model's input: its words are the subwords of its data, or it reads vectors.
    """
    encoder = model.encoder.encoder
    config = encoder.config
    by_rules = model.task is not None or model.config.recipe.objective.gives_words
    if config.downsampler.bytes_per_word is not None and not by_rules:
        raise UserError(
            "objective.words: subwords need the vocabulary of the data, which no class of transformers reads. Export "
            "to ONNX, or train with objective.words: rules."
        )
    if config.embedder.symbols == "vectors":
        raise UserError(
            f"model.embedder.name: {config.embedder.name} reads vectors, which no tokenizer gives."
        )
    settings = dict(settings)
    # Transformers has no equivalent model.
    with contextlib.suppress(UserError):
        if has_port:
            state, fields = port_model(encoder, model.checkpoint.state.vocabulary)
            settings["port"] = fields["model_type"]
            return state, {**fields, "tokenfree": settings, "auto_map": AUTO_MAP}
    state = {f"encoder.{name}": tensor.detach() for name, tensor in encoder.state_dict().items()}
    fields = {"model_type": "tokenfree", "architectures": ["TokenfreeModel"], **layer_fields(config)}
    return state, {**fields, "tokenfree": settings, "auto_map": AUTO_MAP}


def write_folder(
    folder: Path,
    state: Mapping[str, Any],
    fields: Mapping[str, Any],
    encoder: TextEncoder,
    card: str,
    vocabulary: Vocabulary | None = None,
    objective: Any = None,
    trained: tuple[DownstreamTask, TaskHead] | None = None,
) -> None:
    """Write all files into a folder from `new_folder`. config.json comes last: a folder without it is not a model.

    The head in `state`, if any, is that of the settings `objective`, or of the `trained` task.
    """
    save_tensors(state, folder / SAFETENSORS, {"format": "pt"})
    _write_tokenizer(folder, encoder, objective, vocabulary)
    # Building the heads draws random numbers.
    with random_numbers():
        write_atomically(folder / f"{MODELING}.py", _code(fields, encoder, vocabulary, objective, trained))
    write_atomically(folder / CARD, card)
    write_atomically(folder / "config.json", json.dumps(fields, indent=2) + "\n")


def _code(
    fields: Mapping[str, Any],
    encoder: TextEncoder,
    vocabulary: Vocabulary | None,
    objective: Any,
    trained: tuple[DownstreamTask, TaskHead] | None,
) -> str:
    """Return the code of a folder's model with its head, or with those that can be trained."""
    config, length = encoder.encoder.config, encoder.length
    refused = [
        problem
        for positions in range(config.downsampler.rate, length + 1, config.downsampler.rate)
        for problem in check(config, positions)
    ]
    if refused:
        raise UserError(f"an exported model pads texts to any length, but the model does not: {refused[0]}")
    module, port = f"{__package__}.{MODELING}", fields.get("tokenfree", {}).get("port")
    values: dict[str, Any] = {"MODEL": config, "LENGTH": length}
    modules: list[nn.Module] = [encoder.encoder, SpanHead(1, None)]
    modules += [TextHead(config, "mean", 1, dropout=0.0), PlaceHead(config, 1, dropout=0.0)]
    if config.embedder.symbols == "bytes":
        inputs, batch = type(text_inputs(config, length, None)), "batch_of_bytes"
    else:
        inputs, batch = Padding, "batch_of_symbols"
    values |= {"INPUTS": inputs, "BATCH": Key(module, batch)}
    if port is not None:
        values |= {"FROM_PORT": KINDS[port].from_port, "RENAMED": Key(module, "renamed")}
    auto_map = fields.get("auto_map", AUTO_MAP)
    if objective is not None:
        size = 0 if vocabulary is None else vocabulary.size
        values |= {"OBJECTIVE": objective, "VOCABULARY_SIZE": size}
        modules.append(objective.build(config.width, size))
    modules += [] if trained is None else [trained[1]]
    reads_texts = config.embedder.symbols in ("characters", "bytes")
    if trained is not None and not reads_texts and reads_words(trained[1]):
        raise UserError(
            "subword models with a linear path, a CRF or vectors of words cannot be exported. Use `tokenfree predict`, "
            "or fine-tune with model.neighbours.name: none, task.targets: first and task.decoder: independent."
        )
    if reads_texts and config.neighbours.name != "none":
        values["NGRAMS"] = text_features
    if reads_texts and trained is not None and isinstance(trained[1], PlaceHead):
        values |= {"TAGGING": trained[0], "TAG_WORDS": Key(module, "tag_words")}
        values["TEXTS"] = type(text_inputs(config, length, None))
    roots = [name.partition(".")[2] for name in auto_map.values()]
    trunk = config.trunk
    unused: list[Any] = [] if config.neighbours.name != "none" else [text_features, word_features]
    if trunk.positions.name == trunk.segments.name == "none" and not code_hashes(config):
        unused += [LayerBias, PairValues]
    return Program(module, roots, values, modules, unused).text()


def _write_tokenizer(
    folder: Path, encoder: TextEncoder, objective: Any, vocabulary: Vocabulary | None
) -> None:
    symbols, length, padding = encoder.encoder.config.embedder.symbols, encoder.length, encoder.padding
    config: dict[str, Any]
    if symbols == "subwords":
        if vocabulary is None:
            return
        write_atomically(folder / SUBWORDS, vocabulary.model)
        config, name = _subword_fields(vocabulary, length - padding.spare), "SubwordTokenizer"
    else:
        name = "PaddedCanineTokenizer"
        config = {
            "tokenizer_class": "CanineTokenizer",
            "model_max_length": length,
            "pad_group": padding.group,
        }
        config |= {
            "pad_spare": padding.spare,
            "pad_reach": padding.reach,
            "pad_block": padding.block or length,
        }
        # The encoder's positions are bytes, not codepoints.
        if symbols == "bytes":
            config |= {
                "model_max_length": encoder.max_characters + 2,
                "pad_group": 1,
                "pad_spare": 0,
                "pad_reach": 0,
            }
        if objective is not None and objective.name not in PREDICTS_CHARACTERS:
            # The fill-mask pipeline would decode subword ids as characters.
            config["mask_token"] = None
    config["auto_map"] = {"AutoTokenizer": [f"{TOKENIZER}.{name}", None]}
    write_atomically(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
    code = Program(f"{__package__}.{TOKENIZER}", [name], {}).text()
    write_atomically(folder / f"{TOKENIZER}.py", code)


def _subword_fields(vocabulary: Vocabulary, length: int) -> dict[str, Any]:
    special = [f"[{name}]" for name in ("CLS", "SEP", "MASK")]
    added = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    return {
        "model_max_length": length,
        "special_tokens_pattern": "cls_sep",
        **{f"{name[1:-1].lower()}_token": name for name in special},
        "pad_token": vocabulary.pieces[0],
        "unk_token": vocabulary.pieces[1],
        "added_tokens_decoder": {
            str(vocabulary.size + n): {"content": name, **added} for n, name in enumerate(special)
        },
    }


class FolderHead(NamedTuple):
    kind: str  # suffix of its class name in transformers, after "Bert"
    pipeline: str  # the hub's name of the task
    fields: dict[str, Any]  # fields of config.json
    own: dict[str, Any]  # settings from which modeling_tokenfree.py builds it
    is_pooled: bool = False  # it reads the pooled vector
    has_port: bool = True  # transformers has a class with this head


def folder_head(task: DownstreamTask, head: TaskHead) -> FolderHead:
    """Return the description of a trained head. Raises UserError if transformers has no equivalent head."""
    if type(head) is SpanHead and head.types is None:
        return FolderHead("ForQuestionAnswering", "question-answering", {}, {})
    if type(head) is not PlaceHead and (type(head) is not TextHead or head.combine is not None):
        raise UserError(
            f"task.name: {task.name} with these settings has a head that cannot be exported. classification, tagging, "
            "qa_squad, and pairs with task.encode: together can be; for others use `tokenfree predict`."
        )
    assert isinstance(head, (PlaceHead, TextHead))
    unnamed = [f"LABEL_{number}" for number in range(head.classifier.output.out_features)]
    names = ["number"] if head.regression else getattr(task, "labels", ()) or unnamed
    settings: dict[str, Any] = {"dropout": head.classifier.dropout.rate}
    fields: dict[str, Any] = {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
        "classifier_dropout": settings["dropout"],  # BERT has it; CANINE's heads use the encoder's dropout
    }
    if isinstance(head, PlaceHead):
        settings |= {"pooled": head.pooled, "chained": head.chain is not None}
        has_port = not any(settings[name] for name in ("pooled", "chained")) and head.neighbours is None
        return FolderHead(
            "ForTokenClassification", "token-classification", fields, settings, has_port=has_port
        )
    fields["problem_type"] = "regression" if head.regression else "single_label_classification"
    settings["representation"] = head.vector.representation
    is_pooled = settings["representation"] == "pooled"
    return FolderHead(
        "ForSequenceClassification",
        "text-classification",
        fields,
        settings,
        is_pooled=is_pooled,
        has_port=is_pooled and not reads_words(head),
    )


def reads_words(head: Any) -> bool:
    """Return True if a head reads more than vectors of single positions: a linear path, a CRF or vectors of words."""
    parts = (getattr(head, name, None) for name in ("neighbours", "chain", "pooled"))
    return any(part not in (None, False) for part in parts)


def with_head(
    state: Mapping[str, Tensor], fields: Mapping[str, Any], description: FolderHead, head: TaskHead
) -> tuple[StateDict, dict[str, Any]]:
    kind, names = fields["model_type"], ("AutoConfig", "AutoModel", f"AutoModel{description.kind}")
    fields = {**fields, "auto_map": {name: AUTO_MAP[name] for name in names}}
    weights = {f"head.{name}": weight.detach() for name, weight in head.state_dict().items()}
    if kind == "tokenfree":
        return {**state, **weights}, {
            **fields,
            "architectures": [f"Tokenfree{description.kind}"],
            **description.fields,
        }
    kept = {
        f"{kind}.{name}": tensor
        for name, tensor in state.items()
        # Such a BERT has no pooler.
        if description.is_pooled or kind != "bert" or not name.startswith("pooler.")
    }
    for theirs, ours in HEADS.items():
        kept |= {
            name.replace(ours, theirs): weight for name, weight in weights.items() if name.startswith(ours)
        }
    return kept, {**fields, "architectures": [f"{kind.capitalize()}{description.kind}"], **description.fields}
