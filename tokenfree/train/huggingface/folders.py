"""Export of a run as a folder of the library transformers, and import of such a folder as a run."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tokenfree.core.errors import SettingsError, UserError
from tokenfree.core.files import AnyPath, expand_home, write_atomically
from tokenfree.core.settings import build, merge
from tokenfree.core.settings_values import code_hashes, fingerprint, to_mapping
from tokenfree.core.stored_files import check_finished, recorded_hashes
from tokenfree.train.config import PretrainRecipe
from tokenfree.train.huggingface.exported_folder import (
    KINDS,
    VOCABULARY,
    Exported,
    folder_head,
    folder_model,
    model_card,
    new_folder,
    read_model,
    usage,
    with_head,
    write_folder,
)
from tokenfree.train.huggingface.weight_names import POOLER, SAFETENSORS, StateDict
from tokenfree.train.loop.parallel import model_tensors
from tokenfree.train.model.encoder import Encoder, ModelConfig, check
from tokenfree.train.runs import checkpoints
from tokenfree.train.runs.checkpoints import CheckpointState
from tokenfree.train.runs.config import RunConfig, open_run
from tokenfree.train.runs.hashes import write_hashes
from tokenfree.train.runs.run import Run
from tokenfree.train.torch_state import default_settings, random_numbers

# For sentence-transformers: the embedding of a text is the output `mean`.
SENTENCES: Mapping[str, Any] = {
    "modules.json": [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}],
    "sentence_bert_config.json": {
        "modality_config": {"text": {"method": "forward", "method_output_name": "mean"}},
        "module_output_name": "sentence_embedding",
    },
}
OBJECTIVES = {"canine": "canine_s", "bert": "masked_subwords"}
WEIGHTS = (SAFETENSORS, "pytorch_model.bin")
PRETRAINED_LENGTH = 2048  # of CANINE's examples; later rows of its position table are untrained


class FolderModel(NamedTuple):
    kind: str  # model_type
    encoder: Encoder
    has_pooler: bool  # False: the pooler of `encoder` is freshly initialised
    vocabulary: str | None  # SHA-256 of the vocabulary; None: it has none, or it is unknown


@default_settings()
def export_run(
    run: AnyPath, folder: AnyPath, *, step: int | None = None, trust_code: bool = False
) -> Exported:
    """Write `run` as a new `folder` for `from_pretrained`. A fine-tuned run is written with its head.

    Raises UserError if the run does not exist, no tokenizer can produce its input, transformers has no class
    for its task, or the folder holds files, and JobError if the checkpoint is damaged.
    """
    model = read_model(run, step, trust_code=trust_code)
    files, objective, trained = dict[str, Any](), None, None
    texts, pipeline = '["any text", "日本語"]', "feature-extraction"
    if model.task is not None and model.head is not None:
        head = folder_head(model.task, model.head)
        state, fields = folder_model(model, {"head": head.own}, has_port=head.has_port)
        state, fields = with_head(state, fields, head, model.head)
        pipeline, trained = head.pipeline, (model.task, model.head)
        if model.task.name == "pairs" or pipeline == "question-answering":
            texts = '["first text"], ["second text"]'
    else:
        tensors = model.checkpoint.weights()
        heads = {f"lm_{name}": tensor for name, tensor in tensors.items() if name.startswith("head.")}
        objective = model.config.recipe.objective if heads else None
        state, fields = folder_model(model, {})
        state, files = {**state, **heads}, SENTENCES
    kind = "Encoder" if fields["model_type"] == "tokenfree" else fields["model_type"].upper()
    usage_text = usage(fields, model, texts=texts)
    card = model_card(model, kind=kind, library="transformers", pipeline=pipeline, usage=usage_text)
    with new_folder(folder) as target:
        for name, content in files.items():
            write_atomically(target / name, json.dumps(content, indent=2) + "\n")
        write_folder(target, state, fields, model.encoder, card, model.vocabulary, objective, trained)
    return Exported(fields["architectures"][0], model.checkpoint.step)


@default_settings()
def import_folder(
    folder: AnyPath, run: AnyPath, overrides: Mapping[str, Any] | None = None
) -> PretrainRecipe:
    """Create `run` with one checkpoint, at step 0, from a CANINE or BERT in a `folder` of transformers.

    Args:
        folder: Folder written by `save_pretrained`, with config.json and the weights.
        run: Folder to write, new or empty.
        overrides: Keys `model` and `train` of a recipe that replace settings of the folder, such as another
            attention pattern. Its global projections, if separate, start as copies of the local ones.

    Raises UserError if the folder holds no such model, the overrides do not fit its weights, or `run` holds
    files.
    """
    folder = Path(expand_home(folder))
    check_finished(run)
    imported = read_folder(folder)
    mapping = merge(_recipe_of(imported), overrides or {})
    recipe = build(PretrainRecipe, mapping, source=f"import of {folder}")
    problems = check(recipe.model, recipe.train.length)
    if problems:
        raise SettingsError(f"import of {folder}", problems)
    encoder = converted(imported.encoder, recipe.model)
    place = Run(Path(expand_home(run)).absolute())
    config = RunConfig(recipe, f"imported from {folder.absolute()}", manifest="", code=code_hashes(recipe))
    tensors = {f"encoder.{name}": tensor for name, tensor in model_tensors(encoder).items()}
    state = CheckpointState(
        step=0,
        seed=recipe.train.seed,
        recipe=fingerprint(recipe),
        manifest="",
        vocabulary=imported.vocabulary,
        loader={},
        world_size=1,
    )
    # Before the lock, whose file must not be left in a folder of other files.
    open_run(place.folder, config)
    with place.claimed():
        # Another command may have begun a run there meanwhile.
        open_run(place.folder, config)
        previous = place.newest(lambda warning: None)
        if previous is None:
            checkpoints.write(
                place.folder / "checkpoints" / checkpoints.checkpoint_name(0),
                {checkpoints.MODEL: tensors},
                state,
            )
        elif any(
            not torch.equal(tensor, tensors[name])
            for name, tensor in previous.tensors(checkpoints.MODEL).items()
        ):
            raise UserError(f"{run} holds a model of other weights; give another --output")
        if not recorded_hashes(place.storage):
            write_hashes(place.name)
    return recipe


def read_folder(folder: Path) -> FolderModel:
    """Return the model in a folder written by `save_pretrained`.

    Raises UserError if there is no readable one.

    Raises JobError if `export` wrote the folder and one of its files has changed.
    """
    check_finished(folder)
    fields = _read_fields(folder)
    kind = fields.get("model_type")
    if kind == "tokenfree":
        raise UserError(
            f"{folder}: only AutoModel opens this folder. Give the run that it was exported from."
        )
    if not isinstance(kind, str) or kind not in KINDS:
        raise UserError(
            f"{folder}/config.json: model_type {kind!r} is not known; known are {', '.join(KINDS)}"
        )
    weights = _read_weights(folder)
    has_pooler = any(name.endswith(POOLER) for name in weights)
    # Weights that the folder lacks get the same values each time.
    with random_numbers() as seed:
        seed(0)
        encoder, _ = KINDS[kind].from_huggingface(weights, fields)
    vocabulary = fields.get(VOCABULARY)
    return FolderModel(kind, encoder, has_pooler, vocabulary if isinstance(vocabulary, str) else None)


def converted(encoder: Encoder, config: ModelConfig) -> Encoder:
    """Return an encoder of `config` with the weights of `encoder`.

    Attention patterns copy their additional weights.

    Raises UserError if `config` and `encoder` differ in the names or shapes of other weights.
    """
    if config == encoder.config:
        return encoder
    # The random weights are overwritten below.
    with random_numbers():
        new, state = config.build(), encoder.state_dict()
    shapes = [
        {name: tensor.shape for name, tensor in tensors.items()} for tensors in (new.state_dict(), state)
    ]
    copied = [f"trunk.{name}" for name in new.trunk.copy_projections()]
    wrong = sorted({name for name, _ in shapes[0].items() ^ shapes[1].items()}.difference(copied))
    if wrong:
        raise UserError(
            f"the weights do not go with the settings given: {', '.join(wrong)} would be missing or others"
        )
    new.load_state_dict(state, strict=False)
    new.trunk.copy_projections()
    return new


def _recipe_of(imported: FolderModel) -> dict[str, Any]:
    """Return the settings of an imported model. A pooler means that it was trained on pairs of sentences."""
    config = imported.encoder.config
    length = min(PRETRAINED_LENGTH, config.embedder.max_characters)
    length -= length % config.downsampler.rate
    objective = {"name": OBJECTIVES[imported.kind], "next_sentence": imported.has_pooler}
    return {"model": to_mapping(config), "objective": objective, "train": {"length": length}}


def _read_fields(folder: Path) -> dict[str, Any]:
    try:
        fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise UserError(
            f"{folder}: no config.json of transformers. Give a folder that `save_pretrained` wrote."
        )
    return fields


def _read_weights(folder: Path) -> StateDict:
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise UserError(
            f"{folder} holds neither {' nor '.join(WEIGHTS)}. Put the weights there, in one file."
        )
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        weights = torch.load(path, map_location="cpu", weights_only=True)
        if isinstance(weights, dict) and all(map(_is_whole, weights.values())):
            return weights
    except (
        pickle.UnpicklingError,  # its text advises to load the file anyway
        safetensors.SafetensorError,
        RuntimeError,
        EOFError,
        LookupError,
        TypeError,
        ValueError,
    ):
        pass
    raise UserError(
        f"cannot read the weights {path}: damaged, or more than weights. Download them again, or give {SAFETENSORS}."
    )


def _is_whole(tensor: Any) -> bool:
    """Return True if all values of a tensor are stored: a pickle can declare a large tensor in a few bytes."""
    is_plain = isinstance(tensor, Tensor) and tensor.layout == torch.strided and tensor.device.type == "cpu"
    return is_plain and tensor.nbytes <= tensor.untyped_storage().nbytes()
